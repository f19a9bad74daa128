"""Which pages of a session lie inside the windows of its layers: the one arithmetic that start-up budget, admission,
engine and moves of our worker share.
"""

from dataclasses import dataclass

from kvroll_core.budget.cache import pages_for
from kvroll_core.budget.shape import ModelShape
from kvroll_core.precision.formats import PAGE_TOKENS
from kvroll_core.precision.sealing import SEALED_FORMATS


@dataclass(frozen=True)
class PageWindow:
    """A page holds its tokens of all layers, so it can be freed only where every layer has a window and the largest
    one has passed it.

    `tokens`: the largest window, the token itself included; 0: some layer looks back on everything, no page is ever
    freed. `batch_tokens`: the most tokens of a session that one step computes.
    """

    tokens: int = 0
    batch_tokens: int = 1

    def first_page(self, num_kv: int) -> int:
        """Index of the first page that a session with KV of its first `num_kv` tokens still needs.

        The next token stands at `num_kv` and sees the `tokens` positions that end there; all later ones see less.
        """
        return max(num_kv + 1 - self.tokens, 0) // PAGE_TOKENS if self.tokens else 0

    def end_page(self, num_kv: int, num_tokens: int) -> int:
        """Index behind the last page that a session of `num_tokens` ids needs for its next step at least.

        A session with windows gets pages for what the next step may compute and not for all its ids: behind the
        window it gives one back for each that it takes.
        """
        every = pages_for(num_tokens)
        return min(every, self.first_page(num_kv) + self._most_pages) if self.tokens else every

    def session_pages(self, num_tokens: int) -> int:
        """The most pages that a session of that many tokens holds at once, while it prefills too.

        One step touches the window and its rows, `tokens` + `batch_tokens` - 1 positions, which begin anywhere in a
        page (vLLM's `SlidingWindowSpec` counts the same way).
        """
        every = pages_for(num_tokens)
        return min(every, self._most_pages) if self.tokens else every

    def decoding_pages(self, num_tokens: int) -> int:
        """Pages that a session of that many tokens holds while it decodes: KV covers all of them but the last."""
        return self.end_page(num_tokens - 1, num_tokens) - self.first_page(num_tokens - 1)

    def most_tokens(self, num_pages: int, max_tokens: int) -> int:
        """Tokens of the longest session that so many pages can run, at most `max_tokens`."""
        return max_tokens if self.session_pages(max_tokens) <= num_pages else num_pages * PAGE_TOKENS

    @property
    def _most_pages(self) -> int:
        return pages_for(self.tokens + self.batch_tokens - 2) + 1


def page_window(shape: ModelShape, batch_tokens: int, kv_cache: str) -> PageWindow:
    """The window of a worker's pages: none for a model with one layer that looks back on everything, or keeps its first
    tokens for ever (`sinks`), and none for a sealed format, whose ring of open pages counts from the first page on.
    """
    everywhere = len(shape.windows) == shape.layers and all(shape.windows) and not shape.sinks
    everywhere = everywhere and kv_cache not in SEALED_FORMATS
    return PageWindow(max(shape.windows) if everywhere else 0, batch_tokens)
