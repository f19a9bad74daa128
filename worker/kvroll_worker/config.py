"""The worker's flags and environment, checked before anything is loaded."""

import argparse
import os
import re
import socket
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NoReturn
from urllib.parse import unquote, urlparse

from kvroll_core.precision.formats import HEAD_SAME, HEADS, WEIGHT_BLOCK
from kvroll_core.precision.kv_form import parse_layers
from kvroll_core.precision.precision import Precision
from kvroll_core.precision.sealing import DEFAULT_RESIDUAL_TOKENS, OPEN_FORMAT
from kvroll_worker.engine.schedule.scheduler import DEFAULT_BATCH_TOKENS
from kvroll_worker.errors import ConfigError

_UNITS = {
    "": 1,
    "KIB": 1 << 10,
    "MIB": 1 << 20,
    "GIB": 1 << 30,
    "TIB": 1 << 40,
    "KI": 1 << 10,
    "MI": 1 << 20,
    "GI": 1 << 30,
    "TI": 1 << 40,
}
_TERMINATION_MARGIN_SECONDS = 5.0


@dataclass(frozen=True)
class WorkerConfig:
    """Everything that a worker process is told from outside."""

    model_dir: Path
    model_name: str
    precision: Precision
    max_model_len: int | None
    kv_memory_bytes: int
    max_sessions: int
    max_batch_tokens: int
    device: str
    threads: int | None
    ops: str
    prefix_cache: str
    spill_memory_bytes: int
    host: str
    grpc_port: int
    http_port: int
    admit: bool
    orphan_lease_seconds: float
    reservation_lease_seconds: float
    max_unacknowledged: int
    worker_id: str
    instance_id: str
    peer_host: str
    leave_with_stdin: bool
    measure_device: bool
    finish_seconds: float  # after SIGTERM, to finish what can be finished


def parse(arguments: list[str] | None = None, environ: dict[str, str] | None = None) -> WorkerConfig:
    """Reads flags and environment.

    Raises:
        ConfigError: a model URI, dtype, size or device that this version cannot run.
    """
    env = dict(os.environ) if environ is None else environ
    args = _parser(env).parse_args(arguments)
    worker_id = env.get("KVROLL_WORKER_ID") or socket.gethostname()
    grace = _grace_seconds(env)
    if args.device.upper() not in ("CPU", "AUTO"):
        raise ConfigError(f"--device: expected CPU or Auto, found {args.device}: this version has no engine for it yet")
    return WorkerConfig(
        model_dir=model_dir(args.model_uri),
        model_name=args.model_name,
        precision=_precision(args),
        max_model_len=args.max_model_len,
        kv_memory_bytes=parse_bytes(args.kv_memory),
        max_sessions=args.max_sessions,
        max_batch_tokens=args.max_batch_tokens,
        device="CPU",
        threads=args.threads,
        ops=args.ops,
        prefix_cache=args.prefix_cache,
        spill_memory_bytes=parse_bytes(args.spill_memory, "--spill-memory"),
        host=args.host,
        grpc_port=args.grpc_port,
        http_port=args.http_port,
        admit=args.admit,
        orphan_lease_seconds=args.orphan_lease_seconds,
        reservation_lease_seconds=args.reservation_lease_seconds,
        max_unacknowledged=args.max_unacknowledged_frames,
        worker_id=worker_id,
        instance_id=f"{env.get('KVROLL_POD_UID') or worker_id}/{uuid.uuid4().hex[:12]}",
        peer_host=env.get("KVROLL_POD_IP") or "127.0.0.1",
        leave_with_stdin=args.leave_with_stdin,
        measure_device=args.measure_device,
        finish_seconds=max(0.0, grace - _TERMINATION_MARGIN_SECONDS),
    )


def model_dir(uri: str) -> Path:
    """The folder that a `file://` URI names.

    Raises:
        ConfigError: another scheme, another host, or no such folder.
    """
    parts = urlparse(uri)
    if parts.scheme != "file":
        raise ConfigError(
            f"--model-uri: expected file:///folder, found {uri!r}: the operator mounts pvc:// as a folder and passes file://;"
            " hf://, s3:// and oci:// are not built yet"
        )
    if parts.netloc not in ("", "localhost"):
        raise ConfigError(
            f"--model-uri: expected no host in a file:// URI, found {parts.netloc!r}; write file:///folder"
        )
    path = Path(unquote(parts.path))
    if not (path / "config.json").is_file():
        raise ConfigError(f"--model-uri: expected a folder with config.json, found none at {path}")
    return path


def parse_bytes(text: str, flag: str = "--kv-memory") -> int:
    """`256MiB`, `2Gi` or plain bytes.

    Raises:
        ConfigError: not a size.
    """
    match = re.fullmatch(r"([0-9]{1,19})\s*([A-Za-z]*)", text.strip())
    if match is None or match[2].upper() not in _UNITS:
        raise ConfigError(f"{flag}: expected a size like 256MiB or 2Gi, found {text!r}")
    return int(match[1]) * _UNITS[match[2].upper()]


def _precision(args: argparse.Namespace) -> Precision:
    found = Precision(args.weights, args.kv_cache, args.weight_block_size, args.head, (), args.residual_tokens)
    try:
        found.check()
    except ValueError as error:
        raise ConfigError(str(error)) from error
    try:
        kept = replace(found, skip_layers=parse_layers(args.kv_skip_layers)).kv_form.skip_layers
    except ValueError as error:
        raise ConfigError(f"--kv-skip-layers: {error}") from error
    return replace(found, skip_layers=kept)


class _Parser(argparse.ArgumentParser):
    """Says what is wrong in one line: who started this worker for somebody else has a usage of its own."""

    def error(self, message: str) -> NoReturn:
        raise ConfigError(message.removeprefix("argument "))


def _positive(text: str) -> int:
    return _within(text, int(text), 1, 2**31 - 1)


def _port(text: str) -> int:
    return _within(text, int(text), 0, 65_535)


def _within(text: str, value: int, least: int, most: int) -> int:
    if not least <= value <= most:
        raise argparse.ArgumentTypeError(f"expected {least} to {most}, found {text}")
    return value


def _seconds(text: str) -> float:
    value = float(text)
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"expected seconds above 0, found {text}")
    return value


def _grace_seconds(env: Mapping[str, str]) -> float:
    text = env.get("KVROLL_TERMINATION_GRACE_SECONDS", "120")
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < float("inf"):
        raise ConfigError(f"KVROLL_TERMINATION_GRACE_SECONDS: expected seconds from 0, found {text!r}")
    return value


def _parser(env: dict[str, str]) -> argparse.ArgumentParser:
    parser = _Parser(prog="kvroll-worker", description="One kvroll worker: a paged LLM engine whose sessions can move.")
    add = parser.add_argument
    add("--model-uri", required=True, help="file:///folder with config.json, safetensors and tokenizer.json")
    add("--model-name", required=True, help="the name that requests give")
    add("--weights", default="bf16", help="weight dtype (default bf16)")
    add(
        "--weight-block-size",
        type=int,
        default=WEIGHT_BLOCK,
        help=f"inputs that share a scale of int4: 32, 64 or 128 (default {WEIGHT_BLOCK}; other dtypes have none to choose)",
    )
    add("--head", default=HEAD_SAME, choices=HEADS, help="int8: the output head too, and the embedding if it is tied")
    add("--kv-cache", default="bf16", help="KV-cache dtype (default bf16)")
    add("--kv-skip-layers", default="", help="layers whose KV stays bf16 in spite of --kv-cache, such as 0,1,29")
    add(
        "--residual-tokens",
        type=int,
        default=DEFAULT_RESIDUAL_TOKENS,
        help=f"newest tokens that kivi4 and kivi2 keep in {OPEN_FORMAT}, a multiple of 32 (default {DEFAULT_RESIDUAL_TOKENS})",
    )
    add("--max-model-len", type=_positive, default=None, help="tokens of the longest context; unset: the model's own")
    add("--kv-memory", default="256MiB", help="bytes for KV pages (default 256MiB)")
    add("--max-sessions", type=_positive, default=64)
    add(
        "--max-batch-tokens",
        type=_positive,
        default=DEFAULT_BATCH_TOKENS,
        help="tokens of one engine step, which every move and every other session waits for",
    )
    add("--device", default="CPU", help="CPU or Auto")
    add(
        "--threads",
        type=_positive,
        default=env.get("KVROLL_THREADS") or None,
        help="unset: env KVROLL_THREADS, else what the cgroup grants",
    )
    add("--ops", default="native", choices=("native", "reference"), help="kernels")
    add("--prefix-cache", default="Auto", choices=("Auto", "On", "Off"), help="Auto: off while it does not pay")
    add(
        "--spill-memory", default="0", help="bytes for KV of preempted sessions beside the pages (default 0: recompute)"
    )
    add(
        "--host",
        default=env.get("KVROLL_LISTEN_HOST") or "0.0.0.0",
        help="address to listen on (default: env KVROLL_LISTEN_HOST, else 0.0.0.0)",
    )
    add("--grpc-port", type=_port, default=7070)
    add("--http-port", type=_port, default=7071)
    add("--admit", action="store_true", help="open admission at start (else the operator does)")
    add("--leave-with-stdin", action="store_true", help="leave when stdin ends, because whoever started this went away")
    add(
        "--measure-device",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="measure memory, arithmetic and, when idle, each dtype: what `kvroll wall` judges by (default)",
    )
    add(
        "--orphan-lease-seconds",
        type=_seconds,
        default=60.0,
        help="a session that no gateway claims is freed after this",
    )
    add(
        "--reservation-lease-seconds",
        type=_seconds,
        default=30.0,
        help="an incoming move that stands still is freed after this",
    )
    add("--max-unacknowledged-frames", type=_positive, default=256, help="tokens a session may be ahead of its gateway")
    return parser
