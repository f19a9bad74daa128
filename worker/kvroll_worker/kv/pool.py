"""Who holds which page: ids, reference counts, generations and the index of full pages by content. Pure accounting, no bytes."""

from collections import Counter
from collections.abc import Iterable

NULL_PAGE = 0


class NoPageError(Exception):
    """There are fewer free pages than asked for."""


class IntegrityError(Exception):
    """The pool's books do not balance; the message is the arithmetic."""


class PagePool:
    """Pages 1 to num_pages-1; page 0 is the null page that padding points at and nobody holds.

    A page is free or held (reference count >= 1). Freed pages are taken again last in, first out: they are still warm.
    A page's generation rises each time it becomes free, so that a late writer can tell that the page is no longer its own.
    """

    def __init__(self, num_pages: int) -> None:
        if num_pages < 2:
            raise ValueError(f"expected at least 2 pages (one is the null page), found {num_pages}")
        self.num_pages = num_pages
        self._free = list(range(num_pages - 1, NULL_PAGE, -1))
        self._ref_count = [0] * num_pages
        self._generation = [0] * num_pages
        self._page_by_hash: dict[bytes, int] = {}
        self._hash_by_page: dict[int, bytes] = {}

    @property
    def num_free(self) -> int:
        """Pages that `allocate` can give now."""
        return len(self._free)

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
            NoPageError: fewer are free.
        """
        if count > len(self._free):
            raise NoPageError(f"asked for {count} pages, {len(self._free)} of {self.num_usable} are free")
        pages = [self._free.pop() for _ in range(count)]
        for page_id in pages:
            self._ref_count[page_id] = 1
        return pages

    def release(self, page_ids: Iterable[int]) -> None:
        """Takes one holder from each page; a page without holders is free and its content is forgotten."""
        for page_id in page_ids:
            if page_id == NULL_PAGE or self._ref_count[page_id] < 1:
                raise IntegrityError(f"page {page_id} was released but has {self._ref_count[page_id]} holders")
            self._ref_count[page_id] -= 1
            if self._ref_count[page_id] == 0:
                self.forget(page_id)
                self._generation[page_id] += 1
                self._free.append(page_id)

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
            self._ref_count[page_id] += 1
        return page_id

    def check_integrity(self, holders: Iterable[Iterable[int]]) -> None:
        """Compares the books with the page lists of everyone who holds pages.

        Raises:
            IntegrityError: free + held + null != total, a count differs from its holders, or the content index names a free page.
        """
        counted = Counter(page_id for pages in holders for page_id in pages)
        held = sum(1 for count in self._ref_count if count)
        if len(self._free) + held + 1 != self.num_pages or len(set(self._free)) != len(self._free):
            raise IntegrityError(f"free {len(self._free)} + held {held} + null 1 != total {self.num_pages}")
        wrong = {p: (count, counted[p]) for p, count in enumerate(self._ref_count) if count != counted[p]}
        if wrong:
            page_id, (count, found) = next(iter(wrong.items()))
            raise IntegrityError(
                f"{len(wrong)} pages are miscounted; page {page_id} counts {count} holders, {found} hold it"
            )
        if any(self._page_by_hash.get(h) != p or not self._ref_count[p] for p, h in self._hash_by_page.items()):
            raise IntegrityError("the content index names a page that is free or otherwise named")
