"""When a page of a sealed KV format (kivi4, kivi2) is sealed: the one rule that kernels, engine, moves and budgets follow.

KIVI (arXiv 2402.02750) keeps the newest tokens 16-bit and quantises older ones in groups. Here a group is a page, and which form of
a page a token reads is a function of that token's own position, never of how a prompt was cut into steps: so a session that was
batched, chunked, preempted or moved reads the same numbers.
"""

from dataclasses import dataclass

from kvroll_core.precision.formats import PAGE_TOKENS

SEALED_FORMATS = frozenset({"kivi4", "kivi2"})
OPEN_FORMAT = "bf16"
"""Of the pages that are not sealed yet."""
DEFAULT_RESIDUAL_TOKENS = 128


class ResidualError(ValueError):
    """A residual that pages cannot be sealed by."""


def check_residual(residual_tokens: int) -> None:
    """Raises ResidualError unless it is a positive multiple of a page's tokens."""
    if residual_tokens < PAGE_TOKENS or residual_tokens % PAGE_TOKENS:
        raise ResidualError(
            f"residual_tokens must be a multiple of {PAGE_TOKENS}, at least {PAGE_TOKENS}, found {residual_tokens}"
        )


def sealed_pages(position: int, residual_tokens: int) -> int:
    """Leading pages that the token at `position` reads sealed: all but those of the `residual_tokens` before its own page."""
    return max(position - residual_tokens, 0) // PAGE_TOKENS


@dataclass(frozen=True)
class Sealing:
    """The rule for one format; in a format without open pages nothing is ever sealed, and `residual_tokens` means nothing.

    Raises:
        ResidualError: a sealed format with a residual that is not whole pages.
    """

    kv_format: str
    residual_tokens: int = DEFAULT_RESIDUAL_TOKENS

    def __post_init__(self) -> None:
        if self.seals:
            check_residual(self.residual_tokens)

    @property
    def seals(self) -> bool:
        """Whether the format has sealed and open pages."""
        return self.kv_format in SEALED_FORMATS

    @property
    def open_pages(self) -> int:
        """Open pages that a long session holds: its residual and the page under way; 0 where the format has none."""
        return self.residual_tokens // PAGE_TOKENS + 1 if self.seals else 0

    def sealed(self, num_kv_tokens: int) -> int:
        """Leading pages that every token from position `num_kv_tokens` on reads sealed."""
        return sealed_pages(num_kv_tokens, self.residual_tokens) if self.seals else 0

    def opened(self, num_tokens: int) -> int:
        """Open pages that a session of so many ids holds."""
        return min(-(-num_tokens // PAGE_TOKENS), self.open_pages)

    def settled(self, num_tokens: int) -> int:
        """Pages beside the open ones that a session of so many ids holds; all of them where there are no open ones."""
        return -(-num_tokens // PAGE_TOKENS) - self.opened(num_tokens)

    def final(self, num_kv_tokens: int) -> int:
        """Leading pages whose bytes no later token changes."""
        return self.sealed(num_kv_tokens) if self.seals else num_kv_tokens // PAGE_TOKENS

    def form(self, page_index: int, num_kv_tokens: int) -> str:
        """The format in which that page of a session with so many tokens of KV travels and rests."""
        return OPEN_FORMAT if self.seals and page_index >= self.sealed(num_kv_tokens) else self.kv_format


UNSEALED = Sealing(OPEN_FORMAT)
"""Of the formats without open pages."""
