"""status.plan: the price of a rollout beside what it came to. `kvroll plan` prints the same."""

from collections.abc import Mapping

from pydantic import Field

from kvroll_core.price import Blocker, Price, Rate
from kvroll_operator.api.parts import Status

NO_WAY = "None"


class PlannedWay(Status):
    """Sessions that take one way on."""

    way: str = Field(
        description="FinishSoon, Exact, Convert, Replay, Checkpoint, Finish, Drop, or None: no way is open."
    )
    sessions: int = Field(default=0, description="Sessions, each counted by every drain that finds it.")
    bytes: int = Field(default=0, description="Bytes of KV pages to move.")
    tokens: int = Field(default=0, description="Tokens to compute again.")


class PlanCost(Status):
    """What the rollout costs."""

    sessions: int = Field(default=0, description="Sessions held now by the groups that change.")
    held: int = Field(default=0, description="The same, each counted by every drain that will find it.")
    groups: int = Field(default=0, description="Groups that change.")
    ways: list[PlannedWay] = Field(
        default_factory=list,
        description="What becomes of them.",
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["way"]},
    )
    bytes_to_move: int = Field(default=0, description="Bytes of KV pages, in the targets' formats.")
    tokens_to_replay: int = Field(default=0, description="Tokens to compute again.")
    surge_devices: int = Field(default=0, description="Devices needed beyond the pool's.")
    device_seconds_idle: int = Field(default=0, description="Device-seconds in which a worker loads, or stands empty.")
    seconds: int = Field(default=0, description="Seconds from the first group's entry to the end.")
    seconds_low: int | None = Field(
        default=None, description="The same by the fastest rates that workers measured; unset where their rates agree."
    )
    seconds_high: int | None = Field(
        default=None, description="The same by the slowest rates that workers measured; unset where their rates agree."
    )


class PlanBenefit(Status):
    """What the rollout gains."""

    bytes_per_step_ratio: float = Field(default=0, description="Bytes that a step reads, after over before.")
    sessions_ratio: float | None = Field(default=None, description="Sessions that fit, after over before.")
    weights_bytes_before: int = Field(default=0, description="Weight bytes that a step of all workers reads.")
    weights_bytes_after: int = Field(default=0, description="The same afterwards.")
    kv_bytes_before: int = Field(default=0, description="KV bytes that a step of all sessions reads.")
    kv_bytes_after: int = Field(default=0, description="The same afterwards.")
    basis: str = Field(default="Modelled", description="Modelled: from the formats' sizes; no speed is promised.")


class PlanKvFit(Status):
    """Whether the KV cache fits at the target precision."""

    fits: bool | None = Field(default=None, description="The target's pages hold what is held now.")
    problem: str = Field(default="", description="Why not, with the arithmetic.", max_length=2048)
    pages_held: int = Field(default=0, description="Pages that the sessions hold now.")
    pages_before: int = Field(default=0, description="Pages of all workers now.")
    pages_after: int = Field(default=0, description="Pages of all workers afterwards.")
    sessions_before: int = Field(default=0, description="Sessions of the mean length that fit now.")
    sessions_after: int = Field(default=0, description="Sessions of the mean length that fit afterwards.")


class PlanRate(Status):
    """A rate that the seconds rest on."""

    name: str = Field(description="stepSeconds, prefillTokenSeconds, moveBytesPerSecond or startSeconds.")
    value: float = Field(description="The figure.")
    source: str = Field(description="Measured or Assumed.")
    low: float | None = Field(default=None, description="The least that a worker measured, where they disagree.")
    high: float | None = Field(default=None, description="The most that a worker measured, where they disagree.")


class PlanBlocker(Status):
    """What keeps the rollout from beginning or ending."""

    reason: str = Field(description="DoesNotFit, NoWayOn, NoSurgeDevice, CreateRefused, Paused or AwaitingApproval.")
    message: str = Field(default="", description="For people.", max_length=2048)


class PlanActual(Status):
    """What it came to so far, as the drains counted."""

    held: int = Field(default=0, description="Sessions that drains found.")
    bytes_moved: int = Field(default=0, description="Bytes of KV pages that were sent.")
    tokens_replayed: int = Field(default=0, description="Tokens computed again.")
    seconds: int | None = Field(
        default=None, description="Seconds from the first group's entry until it was complete; unset before."
    )


class PlanStatus(Status):
    """A price, and what it came to. Empty where nothing is priced: the first rollout of a pool, or workers that do not answer."""

    id: str = Field(default="", description="The rollout that this is about.")
    cost: PlanCost | None = Field(default=None, description="What it costs.")
    benefit: PlanBenefit | None = Field(default=None, description="What it gains.")
    kv_fit: PlanKvFit | None = Field(default=None, description="KV fit at the target precision.")
    rates: list[PlanRate] = Field(
        default_factory=list,
        description="Rates behind the seconds.",
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]},
    )
    blockers: list[PlanBlocker] = Field(default_factory=list, description="What keeps it from beginning or ending.")
    warnings: list[str] = Field(default_factory=list, description="What the price cannot know.")
    actual: PlanActual | None = Field(default=None, description="What it came to; from the first group's entry on.")


def plan_of(
    price: Price, rollout_id: str = "", holds: Mapping[Blocker, str] | None = None, actual: PlanActual | None = None
) -> PlanStatus:
    """The status of a price; `holds` are added to its own blockers, each with words for people."""
    rates = price.rates
    return PlanStatus(
        id=rollout_id,
        cost=_cost(price),
        benefit=_benefit(price),
        kv_fit=PlanKvFit(**{name: getattr(price.fit, name) for name in PlanKvFit.model_fields}),
        rates=[
            _rate("stepSeconds", rates.step_seconds),
            _rate("prefillTokenSeconds", rates.prefill_token_seconds),
            _rate("moveBytesPerSecond", rates.move_bytes_per_second),
            _rate("startSeconds", rates.start_seconds),
        ],
        blockers=[
            *(PlanBlocker(reason=reason, message=message[:2048]) for reason, message in price.blockers),
            *blockers_of(holds or {}),
        ],
        warnings=list(price.warnings),
        actual=actual,
    )


def blockers_of(holds: Mapping[Blocker, str]) -> list[PlanBlocker]:
    """As a status shows them."""
    return [PlanBlocker(reason=reason, message=message[:2048]) for reason, message in holds.items()]


def _cost(price: Price) -> PlanCost:
    low, high = price.seconds_range or (None, None)
    return PlanCost(
        sessions=price.sessions,
        held=price.held,
        groups=price.groups,
        ways=[PlannedWay(way=w.way or NO_WAY, sessions=w.sessions, bytes=w.bytes, tokens=w.tokens) for w in price.ways],
        bytes_to_move=price.bytes_to_move,
        tokens_to_replay=price.tokens_to_replay,
        surge_devices=price.surge_devices,
        device_seconds_idle=round(price.device_seconds_idle),
        seconds=round(price.seconds),
        seconds_low=None if low is None else round(low),
        seconds_high=None if high is None else round(high),
    )


def _benefit(price: Price) -> PlanBenefit:
    benefit = price.benefit
    return PlanBenefit(
        bytes_per_step_ratio=round(benefit.bytes_per_step_ratio, 4),
        sessions_ratio=None if benefit.sessions_ratio is None else round(benefit.sessions_ratio, 4),
        weights_bytes_before=benefit.weights_bytes_before,
        weights_bytes_after=benefit.weights_bytes_after,
        kv_bytes_before=benefit.kv_bytes_before,
        kv_bytes_after=benefit.kv_bytes_after,
    )


def _rate(name: str, rate: Rate) -> PlanRate:
    low, high = (rate.low, rate.high) if rate.is_unsteady else (None, None)
    return PlanRate(name=name, value=_short(rate.value) or 0.0, source=rate.source, low=_short(low), high=_short(high))


def _short(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.2g}")
