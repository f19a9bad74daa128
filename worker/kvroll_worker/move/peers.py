"""Channels to other workers: one a peer instance, each with a subchannel pool of its own."""

import asyncio
import contextlib
from typing import TYPE_CHECKING

import grpc
import grpc.aio

from kvroll.v1 import session_pb2 as spb
from kvroll.v1.session_pb2_grpc import SessionServiceStub
from kvroll.wire.channels import client_options
from kvroll_worker.move.messages import Peer

if TYPE_CHECKING:
    from kvroll.v1.session_pb2_grpc import SessionServiceAsyncStub

_ABORT_TRIES = 3
_ABORT_SECONDS = 5.0


class Peers:
    """Stubs of other workers by instance; a restarted instance gets a channel of its own."""

    def __init__(self) -> None:
        self._channels: dict[tuple[str, str], grpc.aio.Channel] = {}

    def stub(self, peer: Peer) -> "SessionServiceAsyncStub":
        """The session service of that instance."""
        key = (peer.instance_id, peer.address)
        if key not in self._channels:
            self._channels[key] = grpc.aio.insecure_channel(peer.address, options=client_options())
        return SessionServiceStub(self._channels[key])

    async def abort(self, peer: Peer, migration_id: str, session_id: str, reason: str) -> None:
        """Tells the target that a move is off; gives up after a few tries, for its lease frees the reservation too."""
        request = spb.AbortRequest(migration_id=migration_id, session_id=session_id, reason=reason[:500])
        for attempt in range(_ABORT_TRIES):
            with contextlib.suppress(grpc.aio.AioRpcError):
                await self.stub(peer).Abort(request, timeout=_ABORT_SECONDS)
                return
            await asyncio.sleep(0.2 * 2**attempt)

    async def close(self) -> None:
        """Closes every channel."""
        for channel in self._channels.values():
            await channel.close()
        self._channels.clear()
