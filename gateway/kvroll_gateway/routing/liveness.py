"""When a worker counts as lost: pure rules over what was heard of it and when."""

from dataclasses import dataclass

from kvroll.v1 import inference_pb2 as inf

_STEPS = 4.0
_UNMEASURED = 6.0


@dataclass(frozen=True)
class Patience:
    """Seconds until a worker counts as lost, where its port refuses (`refused`) and where nothing is heard (`silent`).

    `silent` is also the least that an engine may take for one step. Where its longest recent step says more, it may take some of those: a
    slow machine with a long prompt is not stuck. Before its first step nothing is known of its speed, and it gets more still.
    """

    refused_seconds: float = 3.0
    silent_seconds: float = 6.0

    def step_seconds(self, beat: inf.Heartbeat) -> float:
        """How long the engine that sent `beat` may be without progress."""
        if beat.longest_step_seconds == 0.0:
            return _UNMEASURED * self.silent_seconds
        return max(self.silent_seconds, _STEPS * beat.longest_step_seconds)

    def is_stuck(self, beat: inf.Heartbeat) -> bool:
        """True if the engine has been in one step or command for longer than any step takes. An idle engine never is."""
        return beat.busy_seconds > self.step_seconds(beat)


class Hearing:
    """Since when nothing is heard of one stream, told from this process having stood still itself.

    Args:
        now_seconds: monotonic time at which something was heard.
        tick_seconds: how often `silent_seconds` is asked for.
    """

    def __init__(self, now_seconds: float, tick_seconds: float) -> None:
        self.heard_seconds = self._asked_seconds = now_seconds
        self._tick_seconds = tick_seconds

    def heard(self, now_seconds: float) -> None:
        self.heard_seconds = now_seconds

    def silent_seconds(self, now_seconds: float) -> float:
        """Seconds without a word; those in which this process did not run do not count, for it could not have listened."""
        slept_seconds = now_seconds - self._asked_seconds - self._tick_seconds
        self._asked_seconds = now_seconds
        if slept_seconds > self._tick_seconds:
            self.heard_seconds = min(now_seconds, self.heard_seconds + slept_seconds)
        return now_seconds - self.heard_seconds
