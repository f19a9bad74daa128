"""The words that code compares: one enum each, the value is the word that users see everywhere."""

from enum import StrEnum


class WayOn(StrEnum):
    """What can become of a session that a drain finds; the order in `sessions.allow` is the preference."""

    FINISH_SOON = "FinishSoon"
    EXACT = "Exact"
    CONVERT = "Convert"
    REPLAY = "Replay"
    CHECKPOINT = "Checkpoint"
    FINISH = "Finish"
    DROP = "Drop"


class VerdictKind(StrEnum):
    """What a target can do with a session."""

    EXACT = "Exact"
    CONVERT = "Convert"
    REPLAY = "Replay"
    REFUSE = "Refuse"


DEFAULT_ALLOW: tuple[WayOn, ...] = (WayOn.FINISH_SOON, WayOn.CONVERT, WayOn.EXACT, WayOn.REPLAY, WayOn.FINISH)
