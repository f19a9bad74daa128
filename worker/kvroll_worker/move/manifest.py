"""What a moved session is checked against: hashes of pages and the digest over everything."""

from collections.abc import Sequence

import xxhash
from google_crc32c import value as _crc32c

from kvroll.v1 import common_pb2 as pb

HASH_BYTES = 16
CHUNK_BYTES = 1 << 20
"""Most bytes of page data in one message: the fastest size measured over gRPC, and small enough to interleave."""


def chunk_crc(data: bytes) -> int:
    """CRC32C of one chunk."""
    return int(_crc32c(data))


def root_digest(state: pb.SessionState, page_hashes: Sequence[bytes], num_kv_tokens: int, first_page: int = 0) -> bytes:
    """XXH3-128 over the state (serialised deterministically), then each page's hash, then the covered tokens as 8 little-endian bytes,
    then, where pages before it are absent, the first page's index in the same way.
    """
    digest = xxhash.xxh3_128(state.SerializeToString(deterministic=True))
    for page_hash in page_hashes:
        digest.update(page_hash)
    digest.update(num_kv_tokens.to_bytes(8, "little"))
    if first_page:  # a hash is 16 bytes: the two tails cannot be taken for one another
        digest.update(first_page.to_bytes(8, "little"))
    return digest.digest()


def chunks(page: bytes) -> list[bytes]:
    """A page cut into parts of at most `CHUNK_BYTES`."""
    return [page[at : at + CHUNK_BYTES] for at in range(0, len(page), CHUNK_BYTES)]
