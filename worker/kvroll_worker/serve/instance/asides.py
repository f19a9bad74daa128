"""Sessions that no client waits for: evaluations run in the engine beside the users' sessions, and are in nobody's books."""

import asyncio

from kvroll_worker.engine.step.probe import PromptProbe
from kvroll_worker.request import SessionFailure, SessionState, TokenEvent
from kvroll_worker.serve.instance.loop import EngineLoop, Event


class AsideStoppedError(Exception):
    """This worker takes no evaluations any more; another one does."""


class AsideFailedError(Exception):
    """The engine gave the evaluation up."""


class Asides:
    """Runs on the event loop; each ends with its first event."""

    def __init__(self, loop: EngineLoop) -> None:
        self._loop = loop
        self._waiting: dict[str, asyncio.Future[None]] = {}
        self._stopped = ""

    @property
    def session_ids(self) -> set[str]:
        """Those in the engine now."""
        return set(self._waiting)

    async def run(self, state: SessionState, probe: PromptProbe) -> None:
        """Computes the session's prompt, shows it to the probe and frees it; frees it at once where the caller is cancelled.

        Raises:
            AsideStoppedError: the worker stopped taking them, before or meanwhile.
            AsideFailedError: the model gave numbers that are no numbers.
            EngineError: it does not fit.
        """
        if self._stopped:
            raise AsideStoppedError(self._stopped)
        ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting[state.session_id] = ended

        def refused(error: Exception) -> None:
            if not ended.done():
                ended.set_exception(error)

        self._loop.post(lambda engine: engine.submit(state, probe=probe), fail=refused)
        try:
            await ended
        finally:
            del self._waiting[state.session_id]
            self._loop.post(lambda engine: engine.cancel(state.session_id))

    def take(self, event: Event) -> bool:
        """True for an event of one of these."""
        ended = self._waiting.get(event.session_id)
        if ended is None:
            return False
        if not ended.done():
            match event:
                case SessionFailure(_, code, message):
                    ended.set_exception(AsideFailedError(f"{code}: {message}"))
                case TokenEvent():
                    ended.set_result(None)
        return True

    def stop(self, why: str) -> None:
        """Ends all and takes no more."""
        self._stopped = why
        for ended in self._waiting.values():
            if not ended.done():
                ended.set_exception(AsideStoppedError(why))
