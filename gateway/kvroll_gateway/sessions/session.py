"""One session in service: its ownership, and the client that waits for its tokens."""

import asyncio
from collections.abc import AsyncIterator, Callable

from kvroll.v1 import common_pb2 as pb
from kvroll_gateway.sessions.ownership import Ownership
from kvroll_gateway.sessions.phases import TERMINAL, Failure, OwnershipPhase


class SessionFailedError(Exception):
    """The session ended without its last token; `failure` says why."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.message)
        self.failure = failure


class GatewaySession:
    """What the HTTP side holds: waits for admission, reads frames, cancels.

    Args:
        ownership: the state machine, which only the table feeds.
        cancel: called with a reason when the client goes.
        created_seconds: monotonic time of the request.
    """

    def __init__(self, ownership: Ownership, cancel: Callable[[str], None], created_seconds: float) -> None:
        self.ownership = ownership
        self.cancel = cancel
        self.created_seconds = created_seconds
        self.seeking_since_seconds: float | None = created_seconds
        self.next_try_seconds = created_seconds
        self.target_missed_since_seconds: float | None = None
        self.last_token_seconds: float | None = None
        self.ended_seconds: float | None = None
        self.quarantined = False
        self._changed = asyncio.Event()

    @property
    def session_id(self) -> str:
        return self.ownership.session_id

    @property
    def prompt_tokens(self) -> int:
        state = self.ownership.state
        return len(state.prompt_token_ids) if state is not None else 0

    def wake(self) -> None:
        self._changed.set()

    async def admitted(self) -> None:
        """Returns once a worker took the session.

        Raises:
            SessionFailedError: no worker did.
        """
        while self.ownership.state is None:
            self._raise_failure()
            await self._wait()

    async def frames(self) -> AsyncIterator[pb.Frame]:
        """Every token exactly once, in order, to the last.

        Raises:
            SessionFailedError: there will be no last token.
        """
        while True:
            for frame in self.ownership.log.take():
                yield frame
                if frame.finish_reason:
                    return
            self._raise_failure()
            await self._wait()

    def _raise_failure(self) -> None:
        if self.ownership.phase in TERMINAL and self.ownership.phase is not OwnershipPhase.FINISHED:
            raise SessionFailedError(self.ownership.failure or Failure("cancelled", "the session was cancelled"))

    async def _wait(self) -> None:
        self._changed.clear()
        if not self.ownership.log.finished and self.ownership.phase not in TERMINAL:
            await self._changed.wait()
