"""Bytes as people and Kubernetes write them."""

import re

from kvroll_cli.errors import UsageError
from kvroll_core.quantity import parse_quantity

_MOST_CHARACTERS = 40
_MOST_BYTES = 1 << 60


def parse_bytes(text: str) -> int:
    """`80Gi`, `80GiB`, `1.5T`, `1000`: bytes.

    Raises:
        UsageError: the text is no positive quantity.
    """
    found = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?(?:[kMGT]|[KMGT]i)?)B?", text)
    size = int(parse_quantity(found[1])) if found and len(text) <= _MOST_CHARACTERS else 0
    if not 0 < size <= _MOST_BYTES:
        raise UsageError(f"expected a quantity of bytes such as 512Mi, 80Gi or 80GiB, found {text!r}")
    return size
