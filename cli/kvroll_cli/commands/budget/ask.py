"""What `kvroll budget` is asked, made of its options and of the checkpoint: precision, machine, and where each of them came from."""

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from kvroll_cli.errors import UsageError
from kvroll_cli.model_shape import Checkpoint, shape_of
from kvroll_cli.quantity import parse_bytes
from kvroll_core.budget import Ask, ModelShape, Quantised, Ranks, ShapeError, auto_kv_cache, read_quantised
from kvroll_core.precision.formats import (
    PAGE_TOKENS,
    UnknownFormatError,
    chosen_block,
    find_kv_format,
    find_weight_format,
    head_dtype,
)
from kvroll_core.precision.kv_form import SkipLayersError, parse_layers

AUTO = "auto"
_DEFAULT_HEADROOM = 0.1
_PREDICTION = re.compile(r"(num_)?(nextn|mtp)_\w*(layers|modules)")


@dataclass(frozen=True)
class Options:
    """The options of the verb, as they were typed."""

    sessions: int
    tokens: int | None
    device_memory: str | None
    weights: str | None
    weight_block: int
    head: str
    kv: str
    skip_layers: str
    headroom: float | None
    gpu_memory_utilization: float | None
    batch_tokens: int
    residual_tokens: int
    sinks: int
    weights_bytes: str | None
    tensor_parallel: int
    pipeline_parallel: int
    data_parallel: int
    block_size: int
    kv_memory: str | None
    assume: str | None


@dataclass(frozen=True)
class BudgetQuestion:
    """The shape and what is asked of it. `weights_name`: as the checkpoint calls its precision; `weights_source` and `kv_cache_source`:
    sentences; `notes`: what is left out; `weights_known`: false where no bytes of the weights can be told; `idle_bytes`: of the experts
    that a token is not routed to, None where they are a share like any other.
    """

    shape: ModelShape
    ask: Ask
    weights_name: str
    weights_source: str
    kv_cache_source: str
    notes: tuple[str, ...]
    weights_known: bool = True
    weights_fixed: bool = False
    idle_bytes: float | None = None


def question(checkpoint: Checkpoint, options: Options) -> BudgetQuestion:
    """Puts both together.

    Raises:
        UsageError: an option that cannot be, alone or with this model.
    """
    shape = replace(shape_of(checkpoint, options.assume), sinks=options.sinks)
    tokens = options.tokens or shape.max_positions
    if not tokens:
        raise UsageError(f"expected --tokens: {checkpoint.name} does not say how many positions the model knows")
    try:
        quantised, notes = _quantised(checkpoint, options)
        kv, why = auto_kv_cache(checkpoint.config, quantised) if options.kv == AUTO else (options.kv, "asked for")
        find_kv_format(kv)
        find_weight_format(options.weights or "bf16")
        chosen_block("int4", options.weight_block)
        head_dtype(options.weights or "bf16", options.head)
        layers = parse_layers(options.skip_layers)
    except (ShapeError, UnknownFormatError, SkipLayersError) as error:
        raise UsageError(f"{checkpoint.name}: {error}" if isinstance(error, ShapeError) else str(error)) from error
    if layers and not 0 <= min(layers) <= max(layers) < shape.layers:
        raise UsageError(f"expected layers to skip from 0 to {shape.layers - 1}, found {options.skip_layers}")
    ask = Ask(
        weights=options.weights or "bf16",
        kv_cache=kv,
        sessions=options.sessions,
        tokens=tokens,
        device_bytes=parse_bytes(options.device_memory) if options.device_memory else None,
        headroom_fraction=_headroom(options),
        max_batch_tokens=options.batch_tokens,
        residual_tokens=options.residual_tokens,
        weight_block=options.weight_block,
        head=options.head,
        kv_skip_layers=layers,
        ranks=Ranks(options.tensor_parallel, options.pipeline_parallel, options.data_parallel),
        page_tokens=options.block_size,
        kv_memory_bytes=parse_bytes(options.kv_memory) if options.kv_memory else None,
    )
    notes += _notes(checkpoint, shape, tokens)
    return _with_weights(BudgetQuestion(shape, ask, ask.weights, "", why, notes), checkpoint, options, quantised)


def _quantised(checkpoint: Checkpoint, options: Options) -> tuple[Quantised | None, tuple[str, ...]]:
    """The checkpoint's precision, and what is to be said of it.

    Raises:
        ShapeError: it cannot be read, and the size of the weights is not known otherwise.
    """
    try:
        found = read_quantised(checkpoint.config)
    except ShapeError as error:
        if not options.weights_bytes and not checkpoint.tensor_bytes:
            raise
        return None, (f"not read, a KV scheme in it neither: {error}",)
    if found is None or not found.left_out or options.weights_bytes or checkpoint.tensor_bytes or options.weights:
        return found, ()
    return found, (
        f"{found.read} leaves {len(found.left_out)} modules unquantised ({found.left_out[0][:60]}…), which are counted as quantised:"
        " the headers of a folder with its files say the size",
    )


def _headroom(options: Options) -> float:
    share, used = options.headroom, options.gpu_memory_utilization
    if share is not None and used is not None:
        raise UsageError("expected one of --headroom and --gpu-memory-utilization, found both: one is 1 less the other")
    for name, value, least, most in (("--headroom", share, 0.0, 0.9), ("--gpu-memory-utilization", used, 0.1, 1.0)):
        if value is not None and (math.isnan(value) or not least <= value <= most):
            raise UsageError(f"expected {name} from {least} to {most}, found {value}")
    if options.device_memory is None and (share is not None or used is not None):
        name = "--headroom" if used is None else "--gpu-memory-utilization"
        raise UsageError(f"expected --device-memory beside {name}, which is a share of it")
    if used is not None:
        return 1 - used
    return _DEFAULT_HEADROOM if share is None else share


def _with_weights(
    found: BudgetQuestion, checkpoint: Checkpoint, options: Options, quantised: Quantised | None
) -> BudgetQuestion:
    """Weights as they were said, else as the files have them, else by the checkpoint's precision, else by the formula."""

    def fixed(size: int, name: str, source: str) -> BudgetQuestion:
        return replace(
            found,
            ask=replace(found.ask, weights_bytes=size),
            weights_name=name,
            weights_source=source,
            weights_fixed=True,
        )

    name = quantised.name if quantised else found.ask.weights
    if options.weights_bytes:
        return fixed(parse_bytes(options.weights_bytes), options.weights or name, "--weights-bytes")
    if options.weights is None and checkpoint.tensor_bytes:
        return fixed(checkpoint.tensor_bytes, name, f"headers of {checkpoint.files} safetensors files")
    shape = found.shape
    if not shape.facts.weights_counted or shape.compressed:
        family = shape.facts.family or "this model"
        why = f"the weights of {family} are not counted by a formula: say --weights-bytes, or name a folder with its files"
        return replace(found, ask=replace(found.ask, weights_bytes=0), weights_source=why, weights_known=False)
    if options.weights is None and quantised is not None:
        size = quantised.weights_bytes(shape)
        made = fixed(size, name, f"{quantised.read} ({quantised.name}): reckoned by the formula")
        return replace(made, idle_bytes=quantised.idle_bytes(shape))
    return replace(found, weights_source=f"reckoned by the formula for {shape.facts.family or 'plain decoders'}")


def _notes(checkpoint: Checkpoint, shape: ModelShape, tokens: int) -> tuple[str, ...]:
    """What stands in the file and not in the figures."""
    config = checkpoint.config
    found = []
    if 0 < shape.max_positions < tokens:
        found.append(f"{tokens} tokens are more than the {shape.max_positions} positions that the model knows")
    inner = config.get("text_config")
    towers = [key for key in ("vision_config", "audio_config", "speech_config") if config.get(key)]
    if towers and checkpoint.tensor_bytes is None:
        found.append(
            f"{' and '.join(towers)}: the tower's weights are not counted; those of a folder with its files are"
        )
    mtp = [f"{key} {count}" for key, count in _prediction_layers(config, inner if isinstance(inner, dict) else {})]
    if mtp:
        found.append(
            f"{mtp[0]}: prediction layers (MTP), their KV and weights are not counted; speculative decoding adds them"
        )
    if shape.facts.assumed:
        found.append(f"--assume {shape.facts.assumed}: a bound, not this family's cache")
    return tuple(found)


def _prediction_layers(*holders: Mapping[str, Any]) -> Iterator[tuple[str, int]]:
    """Keys such as num_nextn_predict_layers and num_mtp_modules with a number above 0."""
    for holder in holders:
        for key, count in holder.items():
            if _PREDICTION.fullmatch(key) and type(count) is int and count > 0:
                yield key, count


DEFAULT_PAGE_TOKENS = PAGE_TOKENS
