"""The frames of one session that its gateway has not acknowledged (docs/design.md §7 rule 5)."""

from collections import deque
from typing import Generic, TypeVar

F = TypeVar("F")


class FrameOrderError(Exception):
    """The engine gave a token out of order: the stream of that session can no longer be trusted."""


class UnacknowledgedFrames(Generic[F]):
    """Frames [acknowledged, next_index) of a session's output; an acknowledgement is cumulative and never goes back."""

    def __init__(self, first_index: int = 0) -> None:
        self.acknowledged = first_index
        self._frames: deque[F] = deque()

    @property
    def next_index(self) -> int:
        """The index that the next frame must have."""
        return self.acknowledged + len(self._frames)

    def __len__(self) -> int:
        return len(self._frames)

    def append(self, index: int, frame: F) -> None:
        """Keeps one frame.

        Raises:
            FrameOrderError: `index` is not the next one.
        """
        if index != self.next_index:
            raise FrameOrderError(f"expected the token with index {self.next_index}, found {index}")
        self._frames.append(frame)

    def acknowledge(self, next_index: int) -> int:
        """Drops every frame below `next_index`, however far it lies ahead or behind; returns how many were dropped."""
        dropped = 0
        while self._frames and self.acknowledged < next_index:
            self._frames.popleft()
            self.acknowledged += 1
            dropped += 1
        return dropped

    def since(self, next_index: int) -> tuple[F, ...]:
        """The kept frames from max(next_index, acknowledged) on, in order."""
        return tuple(self._frames)[max(0, next_index - self.acknowledged) :]
