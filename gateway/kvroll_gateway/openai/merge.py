"""The frames of the several sessions of one answer as one stream, in the order in which they come."""

import asyncio
from collections.abc import AsyncGenerator, Sequence

from kvroll.v1 import common_pb2 as pb
from kvroll_gateway.sessions.session import GatewaySession, SessionFailedError

_Item = tuple[int, pb.Frame | SessionFailedError | None]


async def merged(sessions: Sequence[GatewaySession]) -> AsyncGenerator[tuple[int, pb.Frame], None]:
    """Every frame of every session with the session's place.

    Raises:
        SessionFailedError: the first session that ended without its last token.
    """
    if len(sessions) == 1:
        async for frame in sessions[0].frames():
            yield 0, frame
        return
    # Of size 1: what a slow client does not read stays in the sessions' logs, whose bound cuts it off.
    queue: asyncio.Queue[_Item] = asyncio.Queue(1)
    pumps = [asyncio.create_task(_pump(place, session, queue)) for place, session in enumerate(sessions)]
    try:
        left = len(pumps)
        while left:
            place, item = await queue.get()
            if isinstance(item, SessionFailedError):
                raise item
            if item is None:
                left -= 1
            else:
                yield place, item
    finally:
        for pump in pumps:
            pump.cancel()
        await asyncio.gather(*pumps, return_exceptions=True)


async def _pump(place: int, session: GatewaySession, queue: "asyncio.Queue[_Item]") -> None:
    try:
        async for frame in session.frames():
            await queue.put((place, frame))
    except SessionFailedError as error:
        await queue.put((place, error))
    else:
        await queue.put((place, None))
