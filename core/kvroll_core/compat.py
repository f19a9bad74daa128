"""Can a target go on with a session, and how: the descriptor that every worker publishes, and the verdict on a pair of them.

A lattice, not one hash: no serving stack that we read compares the identity of the weights, which a precision rollout changes.
"""

from dataclasses import dataclass, fields

from kvroll_core.precision.formats import KV_FORMATS
from kvroll_core.precision.kv_form import SKIPPED_FORMAT, KvForm
from kvroll_core.words import VerdictKind

FORMAT_VERSION = 1


@dataclass(frozen=True)
class Descriptor:
    """What decides whether KV pages and tokens of one worker mean the same on another."""

    format_version: int
    weights_id: str  # SHA-256 over the sorted shard hashes of the source checkpoint
    weights_dtype: str
    base_model_digest: str  # one for all precisions of one model
    config_hash: str  # architecture, rope, windows, norm eps, vocabulary: KV holds rotated keys
    tokenizer_hash: str
    chat_template_hash: str
    kv_format: str
    kv_layout: str  # order of the axes and tokens of a page, without the dtype: no kernel reorders pages, so another layout is replayed
    scales_hash: str  # "" where scales travel with the pages
    parallelism: str
    engine_version: str
    kernel_build_hash: str
    device_name: (
        str  # a GPU's name, or "cpu" and its architecture: CPUs of one path compute alike, whatever they are called
    )
    compute_capability: str  # of a GPU; "" on a CPU
    driver: str  # of a GPU; "" on a CPU
    runtime_versions: (
        str  # libraries whose results enter the bits, and the paths that they took: numpy and libm, or CUDA
    )
    cpu_isa: str  # the instruction set that the kernels use, not all that the CPU has
    max_model_len: int = 0  # not compared: what a target must have room for
    weight_block: int = 0  # inputs that share a scale, where the dtype lets it be chosen
    head_dtype: str = ""
    kv_skip_layers: str = ""  # indices of the layers whose KV stays bf16, with commas between them
    residual_tokens: int = 0  # newest tokens that a sealed format keeps 16-bit; 0 where the format seals nothing

    @property
    def kv_form(self) -> str:
        """The form of its pages: `kv_format`, and the layers that are skipped."""
        return f"{self.kv_format}/{SKIPPED_FORMAT}:{self.kv_skip_layers}" if self.kv_skip_layers else self.kv_format


@dataclass(frozen=True)
class MovePolicy:
    """What the user allows for one session."""

    allowed: frozenset[VerdictKind]
    kv_across_weights: bool = False
    reproducible: bool = False
    total_tokens: int = 0  # prompt plus the most the session may still generate


@dataclass(frozen=True)
class Verdict:
    """`kind`, every differing field as `field: source -> target`, and what is promised of the continuation."""

    kind: VerdictKind
    reasons: tuple[str, ...]
    guarantee: str


# Numerics: the same bytes, but another machine or kernel may round otherwise.
_NUMERICS = (
    "engine_version",
    "kernel_build_hash",
    "device_name",
    "compute_capability",
    "driver",
    "runtime_versions",
    "cpu_isa",
)
# Text: token ids mean the same only where all of these agree.
_TEXT = ("base_model_digest", "config_hash", "tokenizer_hash", "chat_template_hash")
_WEIGHTS = ("weights_id", "weights_dtype", "weight_block", "head_dtype")
_NOT_COMPARED = ("max_model_len",)

LEVEL_CONVERSIONS = frozenset({("int8", "fp8_e4m3"), ("int8", "mxfp8"), ("fp16", "bf16")})
"""Changes at equal payload bits whose pages are within a tenth of the error that the target makes by itself (measured in
`tests/kernels/test_transcode_error.py`). Their opposites would keep an error several times the target's own."""

_GUARANTEE = {
    VerdictKind.EXACT: "token for token as if undisturbed",
    VerdictKind.CONVERT: "same weights and tokens; the KV cache is transcoded, so later tokens may differ",
    VerdictKind.REPLAY: "same tokens so far; the target recomputes the KV cache, so later tokens may differ",
    VerdictKind.REFUSE: "none",
}


def differences(source: Descriptor, target: Descriptor) -> tuple[str, ...]:
    """Every compared field that differs, as `field: source -> target`, in the descriptor's order."""
    names = [f.name for f in fields(Descriptor) if f.name not in _NOT_COMPARED]
    return tuple(
        f"{n}: {getattr(source, n)} -> {getattr(target, n)}" for n in names if getattr(source, n) != getattr(target, n)
    )


def verdict(source: Descriptor, target: Descriptor, policy: MovePolicy) -> Verdict:
    """What `target` can do with a session of `source` under `policy`, before any byte moves."""
    reasons = differences(source, target)
    differing = {reason.partition(":")[0] for reason in reasons}
    best = _best_kind(differing, source, target, policy)
    if best is not VerdictKind.REFUSE and target.max_model_len and policy.total_tokens > target.max_model_len:
        return _refuse((*reasons, f"context: {policy.total_tokens} tokens do not fit into {target.max_model_len}"))
    for kind in _weaker_or_equal(best):
        if policy.reproducible and kind is not VerdictKind.EXACT:
            return _refuse((*reasons, "reproducible: only Exact is accepted"))
        if kind in policy.allowed:
            return Verdict(kind, reasons, _GUARANTEE[kind])
    if best is not VerdictKind.REFUSE:
        reasons = (*reasons, f"policy: {best} and what is weaker is not allowed")
    return _refuse(reasons)


def _refuse(reasons: tuple[str, ...]) -> Verdict:
    return Verdict(VerdictKind.REFUSE, reasons, _GUARANTEE[VerdictKind.REFUSE])


def _best_kind(differing: set[str], source: Descriptor, target: Descriptor, policy: MovePolicy) -> VerdictKind:
    if "format_version" in differing or differing & set(_TEXT):
        return VerdictKind.REFUSE
    if not differing:
        return VerdictKind.EXACT
    if differing & set(_WEIGHTS) and not policy.kv_across_weights:
        return VerdictKind.REPLAY
    if differing & {"kv_layout", "parallelism", "scales_hash"} or not _convertible(source, target):
        return VerdictKind.REPLAY
    return VerdictKind.CONVERT


def _convertible(source: Descriptor, target: Descriptor) -> bool:
    """Whether the change of each layer is one that converts: a layer that comes back to 16 bits would keep the old error."""
    try:
        changes = KvForm.parse(source.kv_form).changes(KvForm.parse(target.kv_form))
    except ValueError:
        return source.kv_form == target.kv_form
    return all(_transcodable(*change) for change in changes)


def _transcodable(source_format: str, target_format: str) -> bool:
    """Fewer payload bits, or level to a format whose own error is larger than what the source already lost.

    Everything else would keep the old error for the whole context, so the target recomputes instead.
    """
    if source_format not in KV_FORMATS or target_format not in KV_FORMATS:
        return False
    fewer = KV_FORMATS[target_format].payload_bits < KV_FORMATS[source_format].payload_bits
    return fewer or source_format == target_format or (source_format, target_format) in LEVEL_CONVERSIONS


def _weaker_or_equal(best: VerdictKind) -> tuple[VerdictKind, ...]:
    order = (VerdictKind.EXACT, VerdictKind.CONVERT, VerdictKind.REPLAY)
    return order[order.index(best) :] if best in order else ()
