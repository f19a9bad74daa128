"""Full pages by the ids that lead to them: what one session computed, another takes. Pure bookkeeping: no bytes, no clock, no torch."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from kvroll_core.precision.formats import PAGE_TOKENS
from kvroll_worker.kv.pool import NULL_PAGE, IntegrityError, PagePool


@dataclass(frozen=True)
class CacheSalt:
    """What two sessions must have in common, besides their ids, for a page of one to be right for the other.

    The dtypes are the effective ones, never a default's name (vllm#49438: "auto" let two dtypes share pages). `tenant` keeps users
    from learning by timing what others asked (vLLM's `cache_salt`).
    """

    weights_id: str
    weights_dtype: str
    kv_format: str
    layout_version: int
    tenant: str = ""


@dataclass(eq=False)
class _Node:
    """One cached page; the root of a salt has none and says the salt."""

    page_id: int
    key: tuple[int, ...]
    parent: "_Node | None"
    salt: CacheSalt
    children: dict[tuple[int, ...], "_Node"] = field(default_factory=dict)


class PrefixCache:
    """A radix tree a salt whose edges are whole pages of 32 ids.

    A tree and not a table of chained hashes: the ids themselves are compared, so no two prompts can ever collide (vllm#12621), nothing
    is hashed twice, and what hangs below an evicted page can be found. Only whole pages are shared, so nothing is copied on write.

    Eviction is least recently given back first (the pool's order of cached pages). A session that holds a page holds those before it
    and gives them back last page first, so the oldest cached page is a leaf. A page that came in by content alone (a move) can break
    that order: evicting a page therefore takes out all that follows it.

    A session with windows gives pages back at its front while it goes on. They stay here as others do, in their place on the path; a
    match is a whole path still, of which a session takes only what its windows see. When one is evicted, the path behind it goes out
    too, though a window might still find its own pages there: vLLM's groups keep such ends, at the price of nodes without pages.
    """

    def __init__(self, pool: PagePool) -> None:
        self._pool = pool
        self._roots: dict[CacheSalt, _Node] = {}
        self._node_by_page: dict[int, _Node] = {}
        pool.on_evict = self.drop

    def __len__(self) -> int:
        return len(self._node_by_page)

    def match(self, salt: CacheSalt, ids: Sequence[int], max_tokens: int) -> list[int]:
        """The pages of the longest cached prefix of `ids` of at most `max_tokens` tokens; nobody holds them by that."""
        pages: list[int] = []
        node = self._roots.get(salt)
        for key in _keys(ids, max_tokens // PAGE_TOKENS):
            node = node.children.get(key) if node is not None else None
            if node is None:
                break
            pages.append(node.page_id)
        return pages

    def take(self, pages: Sequence[int]) -> None:
        """One more holder for each of the matched pages."""
        for page_id in pages:
            self._pool.hold(page_id)

    def insert(self, salt: CacheSalt, ids: Sequence[int], pages: list[int], num_pages: int) -> int:
        """Makes the first `num_pages` of a session's full pages known; returns the index of the first page that was replaced.

        Where another page is already known for the same ids, the session takes that one (equal bit for bit, by the law of determinism)
        and gives its own back, in `pages` itself; `num_pages` is returned where there is none. Null pages in front (the session's windows
        have passed them) only lead the way: where the cache does not know their ids any more, nothing behind them is entered.
        """
        root = node = self._roots.setdefault(salt, _Node(0, (), None, salt))
        replaced = num_pages
        for index, key in enumerate(_keys(ids, num_pages)):
            child = node.children.get(key)
            if child is None:
                if pages[index] == NULL_PAGE:
                    break
                if pages[index] in self._node_by_page:
                    break  # the same bytes under another salt, shared by content: a page has one place
                child = node.children[key] = _Node(pages[index], key, node, salt)
                self._node_by_page[pages[index]] = child
                self._pool.keep(pages[index])
            elif pages[index] not in (NULL_PAGE, child.page_id):
                self._pool.hold(child.page_id)
                self._pool.release([pages[index]])
                pages[index] = child.page_id
                replaced = min(replaced, index)
            node = child
        self._prune(root)
        return replaced

    def drop(self, page_id: int) -> None:
        """Takes a page and all that follows it out of the tree; a page that is not in it is fine."""
        top = self._node_by_page.get(page_id)
        if top is None:
            return
        assert top.parent is not None
        del top.parent.children[top.key]
        self._drop_below(top)
        self._prune(top.parent)

    def clear(self) -> None:
        """Forgets everything: what nobody holds becomes free."""
        for root in self._roots.values():
            for node in root.children.values():
                self._drop_below(node)
        self._roots.clear()

    def check_integrity(self) -> None:
        """Raises IntegrityError if tree, index and pool disagree about which pages are known."""
        found = {node.page_id for root in self._roots.values() for node in _subtree(root) if node is not root}
        if found != self._node_by_page.keys() or not all(self._pool.is_kept(page_id) for page_id in found):
            raise IntegrityError(f"the prefix cache holds {len(found)} pages, its index {len(self._node_by_page)}")
        for page_id, node in self._node_by_page.items():
            if node.page_id != page_id or node.parent is None or node.parent.children.get(node.key) is not node:
                raise IntegrityError(f"the prefix cache's node of page {page_id} does not hang where it says")

    def _prune(self, node: _Node) -> None:
        """A salt without pages is forgotten: there may be as many as tenants."""
        if node.parent is None and not node.children:
            del self._roots[node.salt]

    def _drop_below(self, top: _Node) -> None:
        # Children first: the page that was to be evicted is the last to become free and so the first to be taken.
        for node in reversed(list(_subtree(top))):
            del self._node_by_page[node.page_id]
            self._pool.unkeep(node.page_id)


def _keys(ids: Sequence[int], num_pages: int) -> Iterator[tuple[int, ...]]:
    for start in range(0, num_pages * PAGE_TOKENS, PAGE_TOKENS):
        yield tuple(ids[start : start + PAGE_TOKENS])


def _subtree(top: _Node) -> Iterator[_Node]:
    """Parents before children; a loop and no recursion, because a prompt may be thousands of pages deep."""
    stack = [top]
    while stack:
        node = stack.pop()
        yield node
        stack += node.children.values()
