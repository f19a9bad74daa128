"""CEL rules that the CRDs carry, so that the API server refuses a wrong spec with a readable message and no webhook."""

from collections.abc import Mapping
from typing import Any

from pydantic.config import JsonDict

from kvroll_core.precision.formats import KV_FORMATS, PAGE_TOKENS, WEIGHT_FORMATS, KvFormat, WeightFormat
from kvroll_core.precision.sealing import SEALED_FORMATS

VALIDATIONS = "x-kubernetes-validations"


def rules(*entries: JsonDict) -> JsonDict:
    """`json_schema_extra` of a field or model with those rules."""
    return {VALIDATIONS: list(entries)}


def rule(expression: str, message: str) -> JsonDict:
    """A rule with a fixed message."""
    return {"rule": expression, "message": message}


def built_only(what: str, formats: Mapping[str, KvFormat] | Mapping[str, WeightFormat]) -> JsonDict:
    """Refuses by name a dtype word that is known but not built, and says what is."""
    built = [name for name, entry in formats.items() if entry.built]
    listed = ", ".join(f"'{name}'" for name in built)
    return {
        "rule": f"self in [{listed}]",
        "message": f"this {what} dtype is not built in this version; use one of {', '.join(built)}",
        "messageExpression": f"'{what} dtype ' + self + ' is not built in this version; use one of {', '.join(built)}'",
    }


WEIGHTS_BUILT = built_only("weights", WEIGHT_FORMATS)
KV_BUILT = built_only("kvCache", KV_FORMATS)
_SEALED = sorted(SEALED_FORMATS)
RESIDUAL_SEALS = rule(
    f"!has(self.residualTokens) || self.kvCache in [{', '.join(map(repr, _SEALED))}]",
    f"residualTokens means something with kvCache {' and '.join(_SEALED)} alone; leave it out",
)
RESIDUAL_PAGES = rule(
    f"self % {PAGE_TOKENS} == 0", f"residualTokens must be a multiple of {PAGE_TOKENS}: pages are sealed whole"
)
URI = rule(
    "self.startsWith('file:///') || (self.startsWith('pvc://') && size(self) > 6 && !self.startsWith('pvc:///'))",
    "uri must be file:///<absolute path> or pvc://<claim>[/<path>]; hf, s3 and oci are not built in this version",
)
NAME_IMMUTABLE = rule(
    "self == oldSelf", "model.name is immutable: a session means nothing on another model; create another pool"
)
SIZE_IMMUTABLE = rule("self == oldSelf", "groups.size is immutable in this version; create another pool")
ROLLOUT_MOVES = rule(
    "!has(self.maxSurge) || !has(self.maxUnavailable) || self.maxSurge > 0 || self.maxUnavailable > 0",
    "maxSurge and maxUnavailable cannot both be 0: no worker could ever change",
)
UNIQUE = rule("self.all(a, self.exists_one(b, a == b))", "sessions.allow must not name a way on twice")
LAYERS_ONCE = rule("self.all(a, self.exists_one(b, a == b))", "precision.skipLayers must not name a layer twice")
NO_SEALED_SKIP = rule(
    f"!has(self.skipLayers) || size(self.skipLayers) == 0 || !(self.kvCache in [{', '.join(map(repr, _SEALED))}])",
    "precision.skipLayers with kivi4 or kivi2 is not built in this version: leave it out",
)
NO_CHECKPOINT = rule(
    "!self.exists(a, a == 'Checkpoint')", "Checkpoint is not built in this version; leave it out of sessions.allow"
)
DROP_LAST = rule(
    "!self.exists(a, a == 'Drop') || self[size(self) - 1] == 'Drop'",
    "Drop loses sessions, so it must be last in sessions.allow",
)
SOME_WAY = rule(
    "self.exists(a, a in ['Replay', 'Finish', 'Drop'])",
    "sessions.allow needs Replay, Finish or Drop: with the others alone a drain may never end",
)
QUANTITY = rule(
    "isQuantity(self) && quantity(self).isGreaterThan(quantity('0'))",
    "must be a positive quantity of bytes, for example 256Mi or 16Gi",
)


def merged(*parts: Mapping[str, Any]) -> dict[str, Any]:
    """One `json_schema_extra` out of several."""
    return {key: value for part in parts for key, value in part.items()}
