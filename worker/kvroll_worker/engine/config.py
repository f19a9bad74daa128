"""What an engine is asked to be, and the identity that results."""

import platform
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path

from kvroll_core.budget import BudgetRequest
from kvroll_core.compat import FORMAT_VERSION, Descriptor
from kvroll_core.precision.codec import described
from kvroll_core.precision.formats import LAYOUT_VERSION, PAGE_TOKENS
from kvroll_core.precision.precision import Precision
from kvroll_core.precision.sealing import check_residual
from kvroll_kernels.ops import Ops
from kvroll_worker.engine import machine
from kvroll_worker.engine.schedule.scheduler import DEFAULT_BATCH_TOKENS
from kvroll_worker.kv.prefix_cache import CacheSalt
from kvroll_worker.models.identity import chat_template_hash, config_hash, tokenizer_hash, weights_id
from kvroll_worker.models.spec import ModelSpec
from kvroll_worker.models.tokenizer import Tokenizer

ENGINE_VERSION = "kvroll-0.1"
"""Raised with any change that may alter a logit or a sampled token for the same inputs."""


@dataclass(frozen=True)
class EngineConfig:
    """`kv_memory_bytes` is the size of the page pool; `max_model_len` None is the model's own; `ops` names the kernels.

    `prefix_cache` is Auto, On or Off; `spill_memory_bytes` is how much KV of preempted sessions may be kept outside the pool, 0: none,
    they recompute it.
    """

    model_dir: Path
    precision: Precision = field(default_factory=Precision)
    _: KW_ONLY
    max_model_len: int | None = None
    kv_memory_bytes: int = 256 * 1024 * 1024
    max_sessions: int = 64
    max_batch_tokens: int = DEFAULT_BATCH_TOKENS
    threads: int = field(default_factory=machine.cpu_count)
    ops: str = "native"
    prefix_cache: str = "Auto"
    spill_memory_bytes: int = 0

    def __post_init__(self) -> None:
        for name in ("max_sessions", "max_batch_tokens", "threads"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, found {getattr(self, name)}")
        check_residual(self.precision.residual_tokens)


def budget_request(config: EngineConfig, spec: ModelSpec) -> BudgetRequest:
    """The config as the question that the budget answers."""
    return BudgetRequest(
        config.precision,
        max_model_len=config.max_model_len or spec.shape.max_positions,
        max_sessions=config.max_sessions,
        max_batch_tokens=config.max_batch_tokens,
        kv_memory_bytes=config.kv_memory_bytes,
        memory_limit_bytes=machine.memory_limit_bytes(),
    )


def describe(config: EngineConfig, spec: ModelSpec, tokenizer: Tokenizer, ops: Ops, max_model_len: int) -> Descriptor:
    """The descriptor that decides what another worker can do with this one's sessions."""
    weights = weights_id(config.model_dir)
    return Descriptor(
        format_version=FORMAT_VERSION,
        weights_id=weights,
        # Weights are quantised while loading, so all precisions of a model share its source checkpoint.
        base_model_digest=weights,
        config_hash=config_hash(spec),
        tokenizer_hash=tokenizer_hash(config.model_dir),
        chat_template_hash=chat_template_hash(tokenizer),
        kv_layout=f"v{LAYOUT_VERSION} {PAGE_TOKENS} [layer][K|V][kv_head][token][payload], scales",
        scales_hash="",
        parallelism="tp1",
        engine_version=ENGINE_VERSION,
        kernel_build_hash=f"{ops.name} {ops.build_hash()}",
        device_name=f"cpu {platform.machine()}",  # what decides bits is below; a chip's name says nothing about them
        compute_capability="",  # of a GPU, as its driver is
        driver="",
        runtime_versions=machine.math_runtime(),
        cpu_isa=ops.isa,
        max_model_len=max_model_len,
        **described(config.precision),
    )


def cache_salt(descriptor: Descriptor) -> CacheSalt:
    """What pages in this engine's prefix cache depend on beside their ids: a tied head in int8 is the embedding that KV was made from."""
    weights = f"{descriptor.weights_dtype}/{descriptor.weight_block} head {descriptor.head_dtype}"
    return CacheSalt(descriptor.weights_id, weights, descriptor.kv_form, LAYOUT_VERSION)
