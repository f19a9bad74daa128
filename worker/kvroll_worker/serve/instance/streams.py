"""The open Attach streams, one a gateway, and what waits to be sent on each."""

import asyncio

from kvroll.v1 import inference_pb2 as ipb


class GatewayStream:
    """The sending half of one Attach stream. Its queue is bounded by the frames that sessions may have unacknowledged."""

    def __init__(self, gateway_id: str) -> None:
        self.gateway_id = gateway_id
        self._queue: asyncio.Queue[ipb.AttachResponse | None] = asyncio.Queue()
        self.closed = False

    def send(self, message: ipb.AttachResponse) -> None:
        """Queues a message; after the end of the stream it is dropped, for what matters is sent again."""
        if not self.closed:
            self._queue.put_nowait(message)

    def beat(self, message: ipb.AttachResponse) -> None:
        """Queues a heartbeat where nothing waits: behind what a gateway does not read it would only pile up."""
        if self.empty:
            self.send(message)

    def close(self) -> None:
        """Ends the stream after what is queued."""
        if not self.closed:
            self.closed = True
            self._queue.put_nowait(None)

    @property
    def empty(self) -> bool:
        """Whether nothing waits to be sent."""
        return self._queue.empty()

    def next_now(self) -> ipb.AttachResponse | None:
        """What `next` would give, without waiting.

        Raises:
            asyncio.QueueEmpty: nothing waits.
        """
        return self._queue.get_nowait()

    async def next(self) -> ipb.AttachResponse | None:
        """The next message to send, None at the end."""
        return await self._queue.get()
