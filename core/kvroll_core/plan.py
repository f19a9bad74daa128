"""The plan of a rollout and its progress, as recorded on the ControllerRevision that the plan leads to.

Everything that a restarted operator must know and cannot see from pods stands here; each field is one annotation, all are written together.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from pydantic import TypeAdapter, ValidationError

from kvroll_core.price import Price

PREFIX = "kvroll.dev/"
MOST_EVIDENCE = 500
"""Entries of a record, about 200 bytes each: one a group of a pool that has many is too much for an annotation, and older ones are of
groups long through."""


class PlanReason(StrEnum):
    """Why a plan was written."""

    INITIAL = "Initial"
    UPDATE = "Update"
    REVERT = "Revert"
    ROLLBACK = "Rollback"
    MAKE_ROOM = "MakeRoom"


class Step(StrEnum):
    """How a group changes: the new worker first, or (a group that serves nothing, or maxSurge 0) the old one first."""

    SURGE = "Surge"
    DRAIN_FIRST = "DrainFirst"


class OnFailure(StrEnum):
    """What follows a failed plan."""

    PAUSE = "Pause"
    ROLLBACK = "Rollback"


@dataclass(frozen=True)
class Turn:
    """A group whose change is under way, since `at` (unix seconds)."""

    group: int
    at: float
    step: Step


@dataclass(frozen=True)
class Plan:
    """One rollout: immutable but for `began_at` (its first group entered), `finished_at` and `ended`. The plan with the highest `seq` of a
    pool is in force.
    """

    id: str
    seq: int
    to: str
    reason: PlanReason
    started_at: float
    from_revision: str = ""
    base: Mapping[int, str] = field(default_factory=dict)
    order: tuple[int, ...] = ()
    finished_at: float | None = None
    ended: str = ""
    began_at: float | None = None


@dataclass(frozen=True)
class Pin:
    """Plan `plan` to this revision failed or was aborted: `then` says what the pool does until a retry or another spec."""

    plan: str
    reason: str
    then: OnFailure


@dataclass(frozen=True)
class StoredEvidence:
    """What a gate found at `point` (`Canary`, `G<group>` or `Final`) of the plan beside it, under the gate whose hash is `gate_hash`.

    `verdict` is a word of the gate, `at` unix seconds. `digest` is the SHA-256 of `report`, the evidence as JSON; older reports are dropped
    (an object's annotations hold 256 KiB at most), their digests stay.
    """

    point: str
    gate_hash: str
    verdict: str
    digest: str
    at: float
    report: str = ""


@dataclass(frozen=True)
class Record:
    """What one ControllerRevision's annotations say. `stable` is the seq of the last plan that completed here, 0: none; `approved` the id
    of the plan that a user approved; `price` what the plan was priced at when its first group entered; `baseline` the hashes of gates for
    which an old worker's answers are kept; `leaving` the UIDs of workers that a user asked to drain.
    """

    plan: Plan | None = None
    turn: tuple[Turn, ...] = ()
    done: frozenset[int] = frozenset()
    stable: int = 0
    pin: Pin | None = None
    hold: bool = False
    approved: str = ""
    price: Price | None = None
    evidence: tuple[StoredEvidence, ...] = ()
    baseline: frozenset[str] = frozenset()
    leaving: frozenset[str] = frozenset()

    @property
    def is_complete(self) -> bool:
        """The plan recorded here was carried out."""
        return self.plan is not None and self.stable >= self.plan.seq

    def with_turn(self, turn: Turn) -> "Record":
        """A copy in which that group is in turn, from then on."""
        others = tuple(t for t in self.turn if t.group != turn.group)
        return replace(self, turn=(*others, turn))

    def with_evidence(self, found: StoredEvidence) -> "Record":
        """A copy with that evidence instead of any of the same point and gate; the only one that keeps its report."""
        others = [e for e in self.evidence if (e.point, e.gate_hash) != (found.point, found.gate_hash)]
        kept = others[-MOST_EVIDENCE + 1 :]
        return replace(self, evidence=(*(replace(e, report="") for e in kept), found))

    def to_annotations(self) -> dict[str, str | None]:
        """Annotations by full name; None removes one. Written as one patch."""
        return {
            f"{PREFIX}plan": _PLAN.dump_json(self.plan).decode() if self.plan else None,
            f"{PREFIX}turn": _TURN.dump_json(self.turn).decode() if self.turn else None,
            f"{PREFIX}done": json.dumps(sorted(self.done)) if self.done else None,
            f"{PREFIX}stable": str(self.stable) if self.stable else None,
            f"{PREFIX}pinned": _PIN.dump_json(self.pin).decode() if self.pin else None,
            f"{PREFIX}hold": "true" if self.hold else None,
            f"{PREFIX}approved": self.approved or None,
            f"{PREFIX}leaving": json.dumps(sorted(self.leaving)) if self.leaving else None,
            f"{PREFIX}price": _PRICE.dump_json(self.price).decode() if self.price else None,
            f"{PREFIX}evidence": _EVIDENCE.dump_json(self.evidence).decode() if self.evidence else None,
            f"{PREFIX}baseline": json.dumps(sorted(self.baseline)) if self.baseline else None,
        }

    @classmethod
    def from_annotations(cls, annotations: Mapping[str, Any]) -> "Record":
        """Reads what `to_annotations` wrote.

        Raises:
            pydantic.ValidationError: somebody else wrote there.
        """

        def read(name: str) -> str | None:
            return annotations.get(f"{PREFIX}{name}")

        plan, turn, pin, evidence = read("plan"), read("turn"), read("pinned"), read("evidence")
        return cls(
            plan=_PLAN.validate_json(plan) if plan else None,
            turn=_TURN.validate_json(turn) if turn else (),
            done=frozenset(json.loads(read("done") or "[]")),
            stable=int(read("stable") or 0),
            pin=_PIN.validate_json(pin) if pin else None,
            hold=read("hold") == "true",
            approved=read("approved") or "",
            price=_price_of(read("price")),
            evidence=_EVIDENCE.validate_json(evidence) if evidence else (),
            baseline=frozenset(json.loads(read("baseline") or "[]")),
            leaving=frozenset(json.loads(read("leaving") or "[]")),
        )


_PLAN = TypeAdapter(Plan)
_TURN = TypeAdapter(tuple[Turn, ...])
_PIN = TypeAdapter(Pin)
_PRICE = TypeAdapter(Price)
_EVIDENCE = TypeAdapter(tuple[StoredEvidence, ...])


def _price_of(text: str | None) -> Price | None:
    """Nothing is decided by a price, so one of another version's shape is forgotten and holds no rollout up."""
    try:
        return _PRICE.validate_json(text) if text else None
    except ValidationError:
        return None


def plan_id(*, pool_uid: str, from_revision: str, to: str, policy: str, seq: int) -> str:
    """Ten characters that name one rollout. `seq` is in it, so that an old decision never applies to the same change made again."""
    text = "\n".join((pool_uid, from_revision, to, policy, str(seq)))
    return hashlib.sha256(text.encode()).hexdigest()[:10]
