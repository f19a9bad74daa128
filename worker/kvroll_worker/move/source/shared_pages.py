"""Pages that several moves to one target need: the first sends them, the others wait and name them."""

import asyncio


class SharedPages:
    """Which page hashes are being sent to which target instance now."""

    def __init__(self) -> None:
        self._sending: dict[tuple[str, bytes], asyncio.Event] = {}

    def claim(self, instance_id: str, hashes: list[bytes]) -> tuple[list[bytes], list[asyncio.Event]]:
        """(those that the caller must send and then `landed`, events of those that another move is sending)."""
        mine, others = [], []
        for page_hash in hashes:
            sending = self._sending.get((instance_id, page_hash))
            if sending is None:
                self._sending[instance_id, page_hash] = asyncio.Event()
                mine.append(page_hash)
            else:
                others.append(sending)
        return mine, others

    def landed(self, instance_id: str, hashes: list[bytes]) -> None:
        """The caller's Push has ended, well or not: whoever waits asks the target by name."""
        for page_hash in hashes:
            event = self._sending.pop((instance_id, page_hash), None)
            if event is not None:
                event.set()
