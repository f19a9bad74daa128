"""Who holds which page: ids, reference counts, generations and the index of full pages by content. Pure accounting, no bytes."""

from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable

from kvroll_worker.errors import EngineFault

NULL_PAGE = 0


class NoPageError(Exception):
    """There are fewer free pages than asked for."""


class IntegrityError(EngineFault):
    """The pool's books do not balance; the message is the arithmetic."""


class PagePool:
    """Pages 1 to num_pages-1; page 0 is the null page that padding points at and nobody holds.

    A page is pinned (reference count >= 1), cached (nobody holds it, but its content was asked to be kept) or free. Freed pages are
    taken again last in, first out: they are still warm. Cached pages are taken only when no page is free, the one that was given back
    first before the others. A page's generation rises each time it becomes free, so that a late writer can tell that the page is no
    longer its own.
    """

    def __init__(self, num_pages: int) -> None:
        if num_pages < 2:
            raise ValueError(f"expected at least 2 pages (one is the null page), found {num_pages}")
        self.num_pages = num_pages
        self.allocation_failures_total = 0
        self.evictions_total = 0
        self.on_evict: Callable[[int], None] = self.unkeep
        self._free = list(range(num_pages - 1, NULL_PAGE, -1))
        self._cached: OrderedDict[int, None] = OrderedDict()  # in the order in which they were given back
        self._kept: set[int] = set()
        self._ref_count = [0] * num_pages
        self._generation = [0] * num_pages
        self._page_by_hash: dict[bytes, int] = {}
        self._hash_by_page: dict[int, bytes] = {}

    @property
    def num_free(self) -> int:
        """Pages that `allocate` can give now: free ones, then cached ones."""
        return len(self._free) + len(self._cached)

    @property
    def num_cached(self) -> int:
        """Pages that nobody holds and whose content is still there."""
        return len(self._cached)

    @property
    def num_usable(self) -> int:
        """All pages but the null page."""
        return self.num_pages - 1

    def ref_count(self, page_id: int) -> int:
        """How many holders a page has."""
        return self._ref_count[page_id]

    def generation(self, page_id: int) -> int:
        """How often the page has become free."""
        return self._generation[page_id]

    def allocate(self, count: int) -> list[int]:
        """That many pages, each with one holder; all or none.

        Raises:
            NoPageError: fewer are free or cached.
        """
        if count > self.num_free:
            self.allocation_failures_total += 1
            raise NoPageError(f"asked for {count} pages, {self.num_free} of {self.num_usable} are free")
        while count > len(self._free):
            self.evictions_total += 1
            self.on_evict(next(iter(self._cached)))
        pages = [self._free.pop() for _ in range(count)]
        for page_id in pages:
            self._ref_count[page_id] = 1
        return pages

    def hold(self, page_id: int) -> None:
        """One more holder for a page that is pinned or cached."""
        if self._ref_count[page_id] == 0:
            if page_id not in self._cached:
                raise IntegrityError(f"page {page_id} was to be shared but it is free")
            del self._cached[page_id]
        self._ref_count[page_id] += 1

    def release(self, page_ids: Iterable[int]) -> None:
        """Takes one holder from each page; one without holders is cached if it is kept, else free and its content forgotten.

        Give a sequence's pages last page first: then a cached page is evicted before those that it follows.
        """
        for page_id in page_ids:
            if page_id == NULL_PAGE or self._ref_count[page_id] < 1:
                raise IntegrityError(f"page {page_id} was released but has {self._ref_count[page_id]} holders")
            self._ref_count[page_id] -= 1
            if self._ref_count[page_id]:
                continue
            if page_id in self._kept:
                self._cached[page_id] = None
            else:
                self._set_free(page_id)

    def keep(self, page_id: int) -> None:
        """Asks that a held page's content outlives its holders."""
        if self._ref_count[page_id] < 1:
            raise IntegrityError(f"page {page_id} was to be kept but nobody holds it")
        self._kept.add(page_id)

    def unkeep(self, page_id: int) -> None:
        """Takes that back: a cached page becomes free now, a pinned one when its last holder goes."""
        self._kept.discard(page_id)
        if page_id in self._cached:
            del self._cached[page_id]
            self._set_free(page_id)

    def is_kept(self, page_id: int) -> bool:
        """True if the page's content is to outlive its holders: it must not be written."""
        return page_id in self._kept

    def register(self, page_id: int, content_hash: bytes) -> None:
        """Names a held, full page by its content, so that others may share it. The first page under a hash keeps the name."""
        if self._ref_count[page_id] < 1:
            raise IntegrityError(f"page {page_id} was registered but nobody holds it")
        self.forget(page_id)
        if content_hash not in self._page_by_hash:
            self._page_by_hash[content_hash] = page_id
            self._hash_by_page[page_id] = content_hash

    def forget(self, page_id: int) -> None:
        """Takes a page out of the content index; its bytes are about to change."""
        content_hash = self._hash_by_page.pop(page_id, None)
        if content_hash is not None:
            del self._page_by_hash[content_hash]

    def share(self, content_hash: bytes) -> int | None:
        """One more holder for the page of that content, or None where there is no such page."""
        page_id = self._page_by_hash.get(content_hash)
        if page_id is not None:
            self.hold(page_id)
        return page_id

    def check_integrity(self, holders: Iterable[Iterable[int]]) -> None:
        """Compares the books with the page lists of everyone who holds pages.

        Raises:
            IntegrityError: free + cached + pinned + null != total, a count differs from its holders, or an index names a free page.
        """
        counted = Counter(page_id for pages in holders for page_id in pages)
        pinned = sum(1 for count in self._ref_count if count)
        free, cached = len(self._free), len(self._cached)
        if free + cached + pinned + 1 != self.num_pages or len({*self._free, *self._cached}) != free + cached:
            sums = f"free {free} + cached {cached} + pinned {pinned} + null 1"
            raise IntegrityError(f"{sums} != total {self.num_pages}")
        wrong = {p: (count, counted[p]) for p, count in enumerate(self._ref_count) if count != counted[p]}
        if wrong:
            page_id, (count, found) = next(iter(wrong.items()))
            raise IntegrityError(
                f"{len(wrong)} pages are miscounted; page {page_id} counts {count} holders, {found} hold it"
            )
        alive = self._kept | {p for p, count in enumerate(self._ref_count) if count}
        if not self._cached.keys() <= self._kept or not self._kept.isdisjoint(self._free):
            raise IntegrityError("a cached page is not kept, or a free page is")
        if any(self._page_by_hash.get(h) != p or p not in alive for p, h in self._hash_by_page.items()):
            raise IntegrityError("the content index names a page that is free or otherwise named")

    def _set_free(self, page_id: int) -> None:
        self.forget(page_id)
        self._generation[page_id] += 1
        self._free.append(page_id)
