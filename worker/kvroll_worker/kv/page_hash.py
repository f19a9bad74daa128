"""What a page is named by."""

import xxhash


def content_hash(page: bytes) -> bytes:
    """XXH3-128 of a whole page in the wire format, 16 bytes."""
    return xxhash.xxh3_128_digest(page)
