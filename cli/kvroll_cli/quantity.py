"""Bytes as people and Kubernetes write them."""

import re

from kvroll_cli.errors import UsageError

_UNITS = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40}

_MOST_CHARACTERS = 40
_MOST_BYTES = 1 << 60


def parse_bytes(text: str) -> int:
    """`80Gi`, `80GiB`, `1.5T`, `1000`: bytes.

    Raises:
        UsageError: the text is no positive quantity.
    """
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([kMGT]?|[KMGT]i)B?", text)
    size = _floor(found.group(1), _UNITS[found.group(2)]) if found and len(text) <= _MOST_CHARACTERS else 0
    if not 0 < size <= _MOST_BYTES:
        raise UsageError(f"expected a quantity of bytes such as 512Mi, 80Gi or 80GiB, found {text!r}")
    return size


def _floor(number: str, unit: int) -> int:
    """A whole number is taken exactly."""
    return int(float(number) * unit) if "." in number else int(number) * unit
