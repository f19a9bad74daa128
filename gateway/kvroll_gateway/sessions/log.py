"""The frames of one session on their way to its client, each exactly once and in order."""

from array import array
from collections import deque
from enum import StrEnum

import xxhash

from kvroll.v1 import common_pb2 as pb
from kvroll_core.epoch import Epoch
from kvroll_gateway.sessions.messages import read_epoch


class Entry(StrEnum):
    """What became of an offered frame."""

    ACCEPTED = "accepted"
    DUPLICATE = "duplicate"  # its index was accepted before
    GAP = "gap"  # an index before it is missing: ask Resume
    STALE = "stale"  # not at the current epoch


class DeliveryLog:
    """Accepts only the next index at the current epoch, keeps every id for a replay and unread frames for the client.

    Args:
        capacity: unread frames beyond which the client counts as too slow (`overflowed`); a frame is still accepted then, since the
            worker must never wait for a client.
    """

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._token_ids = array("I")
        self._unread: deque[pb.Frame] = deque()
        self.emitted_chars = 0
        self.duplicates = 0
        self.last: pb.Frame | None = None

    @property
    def next_index(self) -> int:
        return len(self._token_ids)

    @property
    def token_ids(self) -> list[int]:
        return self._token_ids.tolist()

    @property
    def finished(self) -> bool:
        return self.last is not None and self.last.finish_reason != ""

    @property
    def overflowed(self) -> bool:
        return len(self._unread) > self._capacity

    def offer(self, frame: pb.Frame, current: Epoch) -> Entry:
        """Takes the frame if it is the next one at the epoch `current`; says what became of it."""
        if read_epoch(frame.epoch) != current:
            return Entry.STALE
        if frame.index < self.next_index or self.finished:
            self.duplicates += 1
            return Entry.DUPLICATE
        if frame.index > self.next_index:
            return Entry.GAP
        self._token_ids.append(frame.token_id)
        self.emitted_chars += len(frame.text)
        self._unread.append(frame)
        self.last = frame
        return Entry.ACCEPTED

    def take(self) -> list[pb.Frame]:
        """The frames that the client has not read yet, in order; they count as read."""
        frames = list(self._unread)
        self._unread.clear()
        return frames

    def digest(self) -> str:
        """XXH3-128 hex over the little-endian uint32 output ids, as the worker's record computes it."""
        ids = array("I", self._token_ids)
        if ids.itemsize != 4:  # pragma: no cover - no platform that we run on
            raise RuntimeError(f"expected 4-byte unsigned ints, found {ids.itemsize}")
        return xxhash.xxh3_128_hexdigest(ids.tobytes())
