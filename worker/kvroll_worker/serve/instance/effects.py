"""The one place where the ledger's effects are carried out."""

import asyncio
from collections.abc import Callable, Iterable

from kvroll.v1 import common_pb2 as pb
from kvroll.v1 import inference_pb2 as ipb
from kvroll_worker.move.peers import Peers
from kvroll_worker.move.source.attempt import SourceMove
from kvroll_worker.own import effects as fx
from kvroll_worker.request import SessionFailure
from kvroll_worker.serve.instance import outgoing
from kvroll_worker.serve.instance.events import SessionEvents
from kvroll_worker.serve.instance.gateways import Gateways
from kvroll_worker.serve.instance.loop import EngineLoop
from kvroll_worker.serve.instance.tasks import BackgroundTasks
from kvroll_worker.serve.metrics import Metrics


class EffectRunner:
    """Carries effects out in order: on the engine, to gateways, to peers, and to whoever waits for the end of a move.

    `events` ends the session for which something failed here.
    """

    def __init__(
        self,
        loop: EngineLoop,
        gateways: Gateways,
        peers: Peers,
        tasks: BackgroundTasks,
        metrics: Metrics,
        events: SessionEvents,
    ) -> None:
        self._loop = loop
        self._gateways = gateways
        self._peers = peers
        self._tasks = tasks
        self._metrics = metrics
        self._events = events
        self._move_ends: dict[SourceMove, asyncio.Event] = {}
        self._gone_listeners: list[Callable[[str, str], None]] = []

    def on_gone(self, listener: Callable[[str, str], None]) -> None:
        """Calls `listener(session_id, way)` for every session that leaves the books."""
        self._gone_listeners.append(listener)

    async def ended(self, move: SourceMove) -> None:
        """Returns when the move has ended."""
        if not move.ended:
            await self._move_ends.setdefault(move, asyncio.Event()).wait()

    def run(self, effects: Iterable[fx.Effect]) -> None:
        """Carries effects out in order; frames of one gateway that follow each other share one message."""
        batches: dict[str, list[pb.Frame]] = {}
        for effect in effects:
            if isinstance(effect, fx.SendFrames):
                try:
                    frames = outgoing.frames_to_wire(effect.frames, effect.epoch, effect.record)
                except Exception as error:  # the other effects are other sessions'
                    self._flush(batches)
                    self.run(self._events.blame(effect.session_id, error))
                else:
                    batches.setdefault(effect.gateway_id, []).extend(frames)
            else:
                self._flush(batches)
                self._act(effect)
        self._flush(batches)

    def _flush(self, batches: dict[str, list[pb.Frame]]) -> None:
        for gateway_id, frames in batches.items():
            self._gateways.send(gateway_id, ipb.AttachResponse(frames=ipb.FrameBatch(frames=frames)))
        batches.clear()

    def _act(self, effect: fx.Effect) -> None:
        match effect:
            case fx.Free(session_id):
                self._loop.post(lambda engine: engine.cancel(session_id))
            case fx.Freeze(session_id):
                self._loop.post(lambda engine: engine.freeze(session_id), fail=_ignore)
            case fx.Thaw(session_id):
                self._loop.post(lambda engine: engine.thaw(session_id), fail=_ignore)
            case fx.Release(session_id):
                self._loop.post(
                    lambda engine: engine.release(session_id),
                    fail=lambda error: self._release_failed(session_id, error),
                )
            case fx.AbortPeer(move):
                self._tasks.spawn(self._peers.abort(move.target, move.migration_id, move.session_id, move.reason))
            case fx.MoveEnded(move):
                end = self._move_ends.pop(move, None)
                if end is not None:
                    end.set()
            case fx.Gone(session_id, way):
                self._metrics.left(way)
                for listener in self._gone_listeners:
                    listener(session_id, way)
            case fx.SendFrames():
                raise AssertionError("frames are batched by run()")
            case _:
                self._gateways.send(effect.gateway_id, outgoing.message_of(effect))

    def _release_failed(self, session_id: str, error: Exception) -> None:
        failure = SessionFailure(session_id, "release_failed", f"{type(error).__name__}: {error}")
        self.run(self._events.failed(failure))


def _ignore(_: Exception) -> None:
    """The session ended before the command came: that is no error."""
