"""An old worker's answers, kept in ConfigMaps until the rollout is over: after its drain nobody can give them again."""

import base64
import gzip
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kvroll_core.gate import Answer
from kvroll_operator.api.names import LABEL
from kvroll_operator.cluster.client import Api, ApiError, Json
from kvroll_operator.cluster.objects import Owner
from kvroll_operator.cluster.paths import Paths
from kvroll_operator.gate.finding import GateSourceError
from kvroll_operator.rollout.act.effects import StartGate

CHUNK_BYTES = 700_000
"""Of one ConfigMap, whose object may have 1 MiB with its base64."""
MOST_CHUNKS = 16
_KEY = "answers"


@dataclass(frozen=True)
class KeptAnswers:
    """Answers by batch of the trial of that dataset and seed, and who gave them."""

    worker: str
    dataset_digest: str
    seed: int
    answers: Mapping[str, Sequence[Answer]]


@dataclass(frozen=True)
class KeptBaseline:
    """The ConfigMaps of one pool. They go with the pool, and with the next baseline."""

    api: Api
    owner: Owner
    paths: Paths

    async def write(self, effect: StartGate, found: KeptAnswers) -> int:
        """Keeps them; returns the bytes that are stored.

        Raises:
            GateSourceError: too many, or the API server refused.
        """
        packed = _packed(found)
        chunks = [packed[at : at + CHUNK_BYTES] for at in range(0, len(packed), CHUNK_BYTES)]
        if len(chunks) > MOST_CHUNKS:
            most = MOST_CHUNKS * CHUNK_BYTES >> 20
            raise GateSourceError(
                f"the baseline's answers have {len(packed) >> 20} MiB, {most} MiB can be kept: shorten the dataset"
            )
        try:
            await self._drop_others(effect)
            for number, chunk in enumerate(chunks):
                await self.api.apply(
                    self.paths.config_maps(self._name(effect, number)), self._object(effect, number, len(chunks), chunk)
                )
        except ApiError as error:
            raise GateSourceError(f"the baseline could not be kept: {error}") from error
        return len(packed)

    async def read(self, effect: StartGate, dataset_digest: str, seed: int) -> KeptAnswers:
        """What was kept for that rollout and gate.

        Raises:
            GateSourceError: it is not there any more, or of another dataset.
        """
        packed, number, count = b"", 0, 1
        try:
            while number < count:
                item = await self.api.get(self.paths.config_maps(self._name(effect, number)))
                packed += base64.b64decode(item["binaryData"][_KEY])
                count = int(item["data"]["chunks"])
                number += 1
            found = _unpacked(packed)
        except (ApiError, KeyError, ValueError, TypeError, EOFError) as error:
            raise GateSourceError(f"the kept baseline cannot be read: {error}; retry the rollout") from error
        if (found.dataset_digest, found.seed) != (dataset_digest, seed):
            raise GateSourceError("the dataset has changed since the baseline was kept: retry the rollout")
        return found

    async def _drop_others(self, effect: StartGate) -> None:
        selector = f"{LABEL}pool={self.owner.name},{LABEL}gate=baseline"
        for item in await self.api.list(self.paths.config_maps(), selector):
            metadata = item["metadata"]
            ours = any(o.get("uid") == self.owner.uid for o in metadata.get("ownerReferences", []))
            if ours and metadata["labels"].get(f"{LABEL}gate-hash") != _short(effect):
                await self.api.delete(self.paths.config_maps(metadata["name"]), uid=metadata["uid"])

    def _name(self, effect: StartGate, number: int) -> str:
        return f"{self.owner.name}-gate-{_short(effect)}-{number}"

    def _object(self, effect: StartGate, number: int, count: int, chunk: bytes) -> Json:
        labels = {f"{LABEL}gate": "baseline", f"{LABEL}gate-hash": _short(effect)}
        return {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": self.owner.metadata(self._name(effect, number), labels),
            "data": {"chunks": str(count)},
            "binaryData": {_KEY: base64.b64encode(chunk).decode()},
        }


def _short(effect: StartGate) -> str:
    return hashlib.sha256(f"{effect.plan} {effect.gate_hash}".encode()).hexdigest()[:10]


def _packed(found: KeptAnswers) -> bytes:
    told = {
        "worker": found.worker,
        "dataset": found.dataset_digest,
        "seed": found.seed,
        "answers": {name: [answer.to_json() for answer in answers] for name, answers in found.answers.items()},
    }
    return gzip.compress(json.dumps(_short_floats(told), separators=(",", ":")).encode(), mtime=0)


def _short_floats(value: Any) -> Any:
    """Log-probabilities are float32 on the wire; nine digits give each back, their double would have seventeen."""
    if isinstance(value, float):
        return float(f"{value:.9g}")
    if isinstance(value, list | tuple):
        return [_short_floats(one) for one in value]
    return {key: _short_floats(one) for key, one in value.items()} if isinstance(value, dict) else value


def _unpacked(packed: bytes) -> KeptAnswers:
    told = json.loads(gzip.decompress(packed))
    answers = {name: [Answer.from_json(one) for one in found] for name, found in told["answers"].items()}
    return KeptAnswers(str(told["worker"]), str(told["dataset"]), int(told["seed"]), answers)
