"""The engine's own thread: commands run between steps, and the thread sleeps when there is nothing to do."""

import asyncio
import contextlib
import queue
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import structlog

from kvroll_worker.errors import EngineFault
from kvroll_worker.port import EnginePort
from kvroll_worker.request import SessionFailure, TokenEvent

T = TypeVar("T")
Event = TokenEvent | SessionFailure
_log = structlog.get_logger("kvroll.worker.loop")
_STEP_SMOOTHING = 0.1
_OUTLIER_FADING = 0.999  # a step: half after 700


class EngineStoppedError(Exception):
    """The engine's thread has ended; no command will be run any more."""


class EngineLoop:
    """Runs one engine on one thread. What ends one session alone is an event of the step; whatever `step` raises, and an EngineFault of
    a command, ends the thread and is given to `on_crash`.

    Results of commands and events of steps reach the event loop in the order in which they came to be: whoever froze a session
    and gets the answer has seen every token before it.
    """

    def __init__(
        self,
        engine: EnginePort,
        on_events: Callable[[Sequence[Event]], None],
        on_crash: Callable[[BaseException], None],
    ) -> None:
        self._engine = engine
        self._on_events = on_events
        self._on_crash = on_crash
        self._commands: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="engine", daemon=True)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopped = False
        self.step_seconds = 0.0  # smoothed; 0 before the first step
        self.busy_seconds = 0.0  # inside steps, since the start
        self.busy_cpu_seconds = 0.0  # of this thread inside steps: how much of them the machine gave it
        self.step_began: float | None = None  # monotonic seconds, None between steps
        self.longest_step_seconds = 0.0  # of the recent steps: an outlier is forgotten by and by
        self._act_began: float | None = None  # of a step or of a command

    @property
    def busy_for_seconds(self) -> float:
        """The age of the engine's last progress: since when it is inside one step or one command; 0 while it waits for work."""
        began = self._act_began  # written by the engine's thread: read once
        return time.monotonic() - began if began is not None else 0.0

    def start(self) -> None:
        """Starts the thread; answers and events go to the running event loop."""
        self._loop = asyncio.get_running_loop()
        self._thread.start()

    @property
    def alive(self) -> bool:
        return self._thread.is_alive()

    async def stop(self) -> None:
        """Ends the thread at the next step border."""
        self._commands.put(None)
        await asyncio.to_thread(self._thread.join, 30.0)

    def post(
        self,
        act: Callable[[EnginePort], T],
        then: Callable[[T], None] | None = None,
        fail: Callable[[Exception], None] | None = None,
    ) -> None:
        """Queues `act`; afterwards `then` or `fail` runs on the event loop, before any event of a later step.

        An exception without `fail` is logged: it means that ledger and engine disagree.
        """

        def command() -> None:
            try:
                result = act(self._engine)
            except EngineFault:
                raise
            except Exception as error:
                self._deliver(fail or _log_failure, error)
            else:
                if then is not None:
                    self._deliver(then, result)

        if self._stopped:
            (fail or _log_failure)(EngineStoppedError("the engine has stopped"))
        else:
            self._commands.put(command)

    async def call(self, act: Callable[[EnginePort], T]) -> T:
        """Runs `act` between two steps and returns its result or raises its exception."""
        done: asyncio.Future[T] = asyncio.get_running_loop().create_future()

        def succeed(result: T) -> None:
            if not done.done():
                done.set_result(result)

        def fail(error: Exception) -> None:
            if not done.done():
                done.set_exception(error)

        self.post(act, succeed, fail)
        return await done

    def _run(self) -> None:
        try:
            while self._run_commands():
                if self._engine.has_work():
                    self._step()
        except BaseException as error:
            self._deliver(self._on_crash, error)
        finally:
            self._stopped = True

    def _run_commands(self) -> bool:
        """Runs what is queued; waits for a command where the engine has no work. False: stop."""
        block = not self._engine.has_work()
        while True:
            try:
                command = self._commands.get(block=block)
            except queue.Empty:
                return True
            if command is None:
                return False
            self._act_began = time.monotonic()
            command()
            self._act_began = None
            block = False

    def _step(self) -> None:
        began = self.step_began = self._act_began = time.monotonic()
        cpu_began = time.thread_time()
        events: Sequence[Event] = self._engine.step()
        self.step_began = self._act_began = None
        took = time.monotonic() - began
        self.longest_step_seconds = max(took, self.longest_step_seconds * _OUTLIER_FADING)
        self.busy_seconds += took
        self.busy_cpu_seconds += time.thread_time() - cpu_began
        self.step_seconds = (
            took if self.step_seconds == 0.0 else self.step_seconds + _STEP_SMOOTHING * (took - self.step_seconds)
        )
        if events:
            self._deliver(self._on_events, events)

    def _deliver(self, callback: Callable[[Any], None], value: Any) -> None:
        assert self._loop is not None
        with contextlib.suppress(RuntimeError):  # the event loop is closed: nobody listens any more
            self._loop.call_soon_threadsafe(callback, value)


def _log_failure(error: Exception) -> None:
    _log.error("an engine command failed", error=f"{type(error).__name__}: {error}")
