"""Loopback addresses: each site has a /24 of 127.0.0.0/8, each of its Pods one address in it."""

import hashlib
from collections.abc import Collection, Iterator

SERVER_HOST = 1
FIRST_POD, LAST_POD = 10, 254
_LOW, _HIGH = 16, 240  # 127.0.* and the lowest octets are where resolvers and distributions put names of their own


def subnets(seed: str) -> Iterator[str]:
    """Candidates for a site's first three octets, always the same ones for the same seed, all of them in the end."""
    count = (_HIGH - _LOW) * 256
    start = int.from_bytes(hashlib.sha256(seed.encode()).digest()[:4], "big") % count
    for step in range(count):
        high, low = divmod((start + step * 7919) % count, 256)
        yield f"127.{_LOW + high}.{low}"


def server_address(subnet: str) -> str:
    """Where the site's API server listens."""
    return f"{subnet}.{SERVER_HOST}"


def allocate(subnet: str, taken: Collection[str], last: str = "") -> str | None:
    """The next free Pod address after `last`, None where all are taken.

    It goes round rather than back to the lowest: whoever still dials a Pod that is gone meets nobody, not its successor.
    """
    count = LAST_POD - FIRST_POD + 1
    own = last.startswith(f"{subnet}.")
    begin = int(last.rsplit(".", 1)[1]) - FIRST_POD + 1 if own else 0
    for step in range(count):
        address = f"{subnet}.{FIRST_POD + (begin + step) % count}"
        if address not in taken:
            return address
    return None
