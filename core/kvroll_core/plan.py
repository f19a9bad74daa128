"""The plan of a rollout and its progress, as recorded on the ControllerRevision that the plan leads to.

Everything that a restarted operator must know and cannot see from pods stands here; each field is one annotation, all are written together.
"""

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Annotated, Any, TypeVar

from pydantic import AllowInfNan, Field, NonNegativeInt, PositiveInt, TypeAdapter, ValidationError

from kvroll_core.group_list import MOST_GROUPS, packed, unpacked
from kvroll_core.price import Price

PREFIX = "kvroll.dev/"
MOST_EVIDENCE = 200
"""Entries of a record, about 200 bytes each: one a group of a pool that has many is too much for an annotation, and older ones are of
groups long through."""


class RecordError(ValueError):
    """An annotation of a record is not what the operator wrote there."""


Group = Annotated[int, Field(ge=0, lt=MOST_GROUPS)]
Seconds = Annotated[float, AllowInfNan(False), Field(ge=0, lt=2**33)]
"""Unix seconds that a calendar can show."""


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

    group: Group
    at: Seconds
    step: Step


@dataclass(frozen=True)
class Plan:
    """One rollout: immutable but for `began_at` (its first group entered), `finished_at` and `ended`. The plan with the highest `seq` of a
    pool is in force.
    """

    id: str
    seq: PositiveInt
    to: str
    reason: PlanReason
    started_at: Seconds
    from_revision: str = ""
    base: Mapping[Group, str] = field(default_factory=dict)
    order: tuple[Group, ...] = ()
    finished_at: Seconds | None = None
    ended: str = ""
    began_at: Seconds | None = None


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
    at: Seconds
    report: str = ""


@dataclass(frozen=True)
class RolloutRecord:
    """What one ControllerRevision's annotations say.

    `stable` is the seq of the last plan that completed here, 0: none; `approved` the id of the plan that a user approved; `price` what the
    plan was priced at when its first group entered; `baseline` the hashes of gates for which an old worker's answers are kept; `leaving`
    the UIDs of workers that a user asked to drain. `cancelled` names workers whose drain a user cancelled, by Pod UID, with the generation
    of the spec for which that holds.

    Journals outlive their WorkerDrains: `tally` sums those of this plan that are gone, `lost` the sessions lost in all that are gone, for
    whatever reason they were made; `counted` are the UIDs of those that stand in the sums and may still be seen.
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
    cancelled: Mapping[str, int] = field(default_factory=dict)
    tally: Mapping[str, int] = field(default_factory=dict)
    lost: int = 0
    counted: frozenset[str] = frozenset()

    @property
    def is_complete(self) -> bool:
        """The plan recorded here was carried out."""
        return self.plan is not None and self.stable >= self.plan.seq

    def with_turn(self, turn: Turn) -> "RolloutRecord":
        """A copy in which that group is in turn, from then on."""
        others = tuple(t for t in self.turn if t.group != turn.group)
        return replace(self, turn=(*others, turn))

    def with_evidence(self, found: StoredEvidence) -> "RolloutRecord":
        """A copy with that evidence instead of any of the same point and gate; the only one that keeps its report."""
        others = [e for e in self.evidence if (e.point, e.gate_hash) != (found.point, found.gate_hash)]
        kept = others[-MOST_EVIDENCE + 1 :]
        return replace(self, evidence=(*(replace(e, report="") for e in kept), found))

    def to_annotations(self) -> dict[str, str | None]:
        """Annotations by full name; None removes one. Written as one patch."""
        return {
            f"{PREFIX}plan": _packed_plan(self.plan) if self.plan else None,
            f"{PREFIX}turn": _TURN.dump_json(self.turn).decode() if self.turn else None,
            f"{PREFIX}done": packed(sorted(self.done)) or None,
            f"{PREFIX}stable": str(self.stable) if self.stable else None,
            f"{PREFIX}pinned": _PIN.dump_json(self.pin).decode() if self.pin else None,
            f"{PREFIX}hold": "true" if self.hold else None,
            f"{PREFIX}approved": self.approved or None,
            f"{PREFIX}leaving": json.dumps(sorted(self.leaving)) if self.leaving else None,
            f"{PREFIX}price": _PRICE.dump_json(self.price).decode() if self.price else None,
            f"{PREFIX}evidence": _EVIDENCE.dump_json(self.evidence).decode() if self.evidence else None,
            f"{PREFIX}baseline": json.dumps(sorted(self.baseline)) if self.baseline else None,
            f"{PREFIX}cancelled": json.dumps(dict(self.cancelled), sort_keys=True) if self.cancelled else None,
            f"{PREFIX}tally": json.dumps(dict(self.tally), sort_keys=True) if self.tally else None,
            f"{PREFIX}lost": str(self.lost) if self.lost else None,
            f"{PREFIX}counted": json.dumps(sorted(self.counted)) if self.counted else None,
        }

    @classmethod
    def from_annotations(cls, annotations: Mapping[str, Any]) -> "RolloutRecord":
        """Reads what `to_annotations` wrote, and what earlier versions did.

        Raises:
            RecordError: somebody else wrote there; it names the annotation.
        """

        def read(name: str, parse: Callable[[str], T], absent: T) -> T:
            text = annotations.get(f"{PREFIX}{name}")
            if not text:
                return absent
            try:
                return parse(text)
            except (ValueError, TypeError, AttributeError, RecursionError) as error:
                raise RecordError(
                    f"annotation {PREFIX}{name}: cannot be read: {_shown(text)}: {_why(error)}"
                ) from error

        return cls(
            plan=read("plan", _unpacked_plan, None),
            turn=read("turn", _TURN.validate_json, ()),
            done=read("done", _groups, frozenset()),
            stable=read("stable", _COUNT.validate_json, 0),
            pin=read("pinned", _PIN.validate_json, None),
            hold=annotations.get(f"{PREFIX}hold") == "true",
            approved=annotations.get(f"{PREFIX}approved") or "",
            price=_price_of(annotations.get(f"{PREFIX}price")),
            evidence=read("evidence", _EVIDENCE.validate_json, ()),
            baseline=read("baseline", _WORDS.validate_json, frozenset()),
            leaving=read("leaving", _WORDS.validate_json, frozenset()),
            cancelled=read("cancelled", _COUNTS.validate_json, {}),
            tally=read("tally", _COUNTS.validate_json, {}),
            lost=read("lost", _COUNT.validate_json, 0),
            counted=read("counted", _WORDS.validate_json, frozenset()),
        )


T = TypeVar("T")
_PLAN = TypeAdapter(Plan)
_TURN = TypeAdapter(tuple[Turn, ...])
_PIN = TypeAdapter(Pin)
_PRICE = TypeAdapter(Price)
_EVIDENCE = TypeAdapter(tuple[StoredEvidence, ...])
_COUNT = TypeAdapter(NonNegativeInt)
_COUNTS = TypeAdapter(dict[str, NonNegativeInt])
_WORDS = TypeAdapter(frozenset[str])
_GROUPS = TypeAdapter(frozenset[Group])


def _packed_plan(plan: Plan) -> str:
    """As JSON, with the groups of a base revision as one text, and so the order."""
    found = _PLAN.dump_python(plan, mode="json")
    revisions = sorted(set(plan.base.values()))
    found["base"] = {r: packed(sorted(g for g, base in plan.base.items() if base == r)) for r in revisions}
    found["order"] = packed(plan.order)
    return json.dumps(found, separators=(",", ":"))


def _unpacked_plan(text: str) -> Plan:
    found = json.loads(text)
    base, order = found.get("base"), found.get("order")
    if isinstance(order, str):
        found["order"] = unpacked(order)
        found["base"] = {g: revision for revision, groups in dict(base).items() for g in unpacked(groups)}
    return _PLAN.validate_python(found)


def _groups(text: str) -> frozenset[int]:
    return _GROUPS.validate_json(text) if text.startswith("[") else frozenset(unpacked(text))


def _shown(text: str) -> str:
    return repr(text if len(text) <= 60 else text[:60] + "...")


def _why(error: Exception) -> str:
    if isinstance(error, ValidationError):
        first = error.errors(include_url=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        return f"{where}: {first['msg']}" if where else str(first["msg"])
    return str(error)[:200]


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
