"""A model as Hugging Face writes it: its config.json, and the headers of its safetensors files; from a folder, a file, or `hf://org/name`."""

import json
import os
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kvroll_cli.errors import CliError, UsageError
from kvroll_core.budget import ModelShape, ShapeError, read_quantised

HUB = "hf://"
HUB_ENDPOINT = "HF_ENDPOINT"
_DEFAULT_ENDPOINT = "https://huggingface.co"
_MOST_HEADER_BYTES = 100 * 1024 * 1024  # what the safetensors library refuses, too
_MOST_CONFIG_BYTES = 64 * 1024 * 1024
_TIMEOUT_SECONDS = 30.0

_Range = Callable[[str, int, int], bytes]
"""Bytes of a file by its name, from an offset, so many at most."""


@dataclass(frozen=True)
class Checkpoint:
    """A model's config, and the bytes of its tensors by the headers of its files; None where it has none."""

    name: str
    config: Mapping[str, Any]
    tensor_bytes: int | None = None
    files: int = 0


def read_shape(path: Path | str, assume: str | None = None) -> ModelShape:
    """The shape of the model in that folder, of that config.json, or of that repository.

    Raises:
        UsageError: there is no such file, or it describes no model that we can count.
        CliError: the hub could not be asked.
    """
    return shape_of(read_checkpoint(path), assume)


def read_stored(path: Path | str) -> tuple[ModelShape, tuple[str, float] | None]:
    """The shape of a model, and what its matrices are stored in by its own files: a name and the mean bits of an element; None where they
    are not quantised.

    Raises:
        UsageError: there is no such file, or it describes no model that we can count.
        CliError: the hub could not be asked.
    """
    checkpoint = read_checkpoint(path)
    shape = shape_of(checkpoint)
    try:
        quantised = read_quantised(checkpoint.config)
    except ShapeError as error:
        raise UsageError(f"{checkpoint.name}: {error}") from error
    if quantised is None or not shape.matrix_elements:
        return shape, None
    packed = shape.expert_elements if quantised.experts_only else shape.matrix_elements
    size = packed * quantised.element_bytes + 2 * (shape.matrix_elements - packed)
    return shape, (quantised.name, 8 * size / shape.matrix_elements)


def shape_of(checkpoint: Checkpoint, assume: str | None = None) -> ModelShape:
    """The shape of a model whose config is read.

    Raises:
        UsageError: it describes no model that we can count.
    """
    try:
        return ModelShape.from_config(checkpoint.config, assume)
    except ShapeError as error:
        raise UsageError(f"{checkpoint.name}: {error}") from error


def read_checkpoint(path: Path | str) -> Checkpoint:
    """Config and headers; no weights are read.

    Raises:
        UsageError: there is no such file, or it is no JSON object.
        CliError: the hub could not be asked.
    """
    text = str(path)
    if text.startswith(("hf:/", HUB)):  # a Path folds the slashes
        return _of_hub(text.removeprefix("hf:").strip("/"))
    path = Path(path)
    try:
        folder = path if path.is_dir() else None
        file = path / "config.json" if folder else path
        with file.open("rb") as opened:
            content = opened.read(_MOST_CONFIG_BYTES + 1)
    except (OSError, ValueError) as error:
        found = (error.strerror or str(error)).lower() if isinstance(error, OSError) else str(error)
        raise UsageError(f"expected a model folder or its config.json, found {found}: {path}") from error
    config = _parsed(content, str(file))
    if folder is None:
        return Checkpoint(str(file), config)
    names = sorted(p.name for p in folder.glob("*.safetensors"))
    return _with_headers(str(file), config, names, lambda name, start, most: _slice(folder / name, start, most))


def _slice(file: Path, start: int, most: int) -> bytes:
    with file.open("rb") as opened:
        opened.seek(start)
        return opened.read(most)


def _parsed(content: bytes, name: str) -> Mapping[str, Any]:
    if len(content) > _MOST_CONFIG_BYTES:
        raise UsageError(f"expected a config.json of at most {_MOST_CONFIG_BYTES} bytes, found more in {name}")
    try:
        found = json.loads(content)
    except (ValueError, RecursionError) as error:
        said = "brackets nested too deep" if isinstance(error, RecursionError) else str(error)
        raise UsageError(f"expected JSON in {name}, found {said}") from error
    if not isinstance(found, dict):
        raise UsageError(f"expected a JSON object in {name}, found {type(found).__name__}")
    return found


def _with_headers(name: str, config: Mapping[str, Any], files: list[str], read: _Range) -> Checkpoint:
    if not files:
        return Checkpoint(name, config)
    try:
        sizes = [_tensor_bytes(file, read) for file in files]
    except OSError as error:
        raise UsageError(
            f"expected safetensors beside {name}, found {(error.strerror or str(error)).lower()}"
        ) from error
    return Checkpoint(name, config, sum(sizes), len(files))


def _tensor_bytes(name: str, read: _Range) -> int:
    """Bytes of all tensors of a file: eight bytes of length, then a JSON header with the offsets of each tensor.

    Raises:
        UsageError: another layout.
    """
    prefix = read(name, 0, 8)
    length = struct.unpack("<Q", prefix)[0] if len(prefix) == 8 else 0
    if not 2 <= length <= _MOST_HEADER_BYTES:
        raise UsageError(f"expected a safetensors header in {name}, found a length of {length} bytes")
    header = _parsed(read(name, 8, length), name)
    try:
        spans = [tensor["data_offsets"] for key, tensor in header.items() if key != "__metadata__"]
        ends = [int(end) - int(begin) for begin, end in spans]
    except (TypeError, KeyError, ValueError) as error:
        raise UsageError(f"expected data_offsets of each tensor in {name}, found {error}") from error
    if any(size < 0 for size in ends):
        raise UsageError(f"expected data_offsets in order in {name}, found one that ends before it begins")
    return sum(ends)


def _of_hub(repository: str) -> Checkpoint:
    import httpx

    if repository.count("/") != 1 or not all(repository.split("/")):
        raise UsageError(f"expected {HUB}org/name, found {HUB}{repository}")
    endpoint = os.environ.get(HUB_ENDPOINT, _DEFAULT_ENDPOINT).rstrip("/")
    token = os.environ.get("HF_TOKEN")
    headers = {"authorization": f"Bearer {token}"} if token else {}
    with httpx.Client(follow_redirects=True, timeout=_TIMEOUT_SECONDS, headers=headers) as client:

        def read(name: str, start: int, most: int) -> bytes:
            found = _get(client, f"{endpoint}/{repository}/resolve/main/{name}", start, most)
            if found is None:
                raise UsageError(f"expected {name} in {HUB}{repository}, found none")
            return found

        config = _parsed(read("config.json", 0, _MOST_CONFIG_BYTES), f"{HUB}{repository}/config.json")
        return _with_headers(f"{HUB}{repository}", config, _hub_files(client, endpoint, repository), read)


def _hub_files(client: Any, endpoint: str, repository: str) -> list[str]:
    """The safetensors files by their index, or the one file; none where there is neither."""
    base = f"{endpoint}/{repository}/resolve/main"
    index = _get(client, f"{base}/model.safetensors.index.json", 0, _MOST_CONFIG_BYTES)
    if index is not None:
        held = _parsed(index, f"{HUB}{repository}/model.safetensors.index.json").get("weight_map")
        if not isinstance(held, dict) or not all(isinstance(v, str) for v in held.values()):
            raise UsageError(f"expected weight_map in the index of {HUB}{repository}, found {type(held).__name__}")
        return sorted(set(held.values()))
    return ["model.safetensors"] if _get(client, f"{base}/model.safetensors", 0, 8) is not None else []


def _get(client: Any, url: str, start: int, most: int) -> bytes | None:
    """That range of a file; None where there is no such file.

    Raises:
        CliError: no answer, or another one.
    """
    import httpx

    try:
        with client.stream("GET", url, headers={"range": f"bytes={start}-{start + most - 1}"}) as answer:
            if answer.status_code == httpx.codes.NOT_FOUND:
                return None
            if answer.status_code not in (httpx.codes.OK, httpx.codes.PARTIAL_CONTENT):
                raise CliError(f"expected {url}, found status {answer.status_code}; a gated model needs HF_TOKEN")
            skip = start if answer.status_code == httpx.codes.OK else 0  # a server that knows no ranges sends it all
            found = b""
            for part in answer.iter_bytes():
                found += part
                if len(found) >= skip + most:
                    break
            return found[skip : skip + most]
    except httpx.HTTPError as error:
        raise CliError(
            f"expected an answer from {url}, found {error or type(error).__name__}; without a network name a folder with"
            f" the model's config.json ({HUB_ENDPOINT} names another hub)"
        ) from error
