"""The page pool's books, by example and under random use."""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, MultipleResults, RuleBasedStateMachine, consumes, invariant, multiple, rule

from kvroll_worker.kv.pool import NULL_PAGE, IntegrityError, NoPageError, PagePool


def test_freed_pages_are_taken_again_last_in_first_out() -> None:
    pool = PagePool(6)
    first = pool.allocate(3)
    assert first == [1, 2, 3]
    pool.release([2, 1])
    assert pool.allocate(2) == [1, 2]
    assert pool.generation(1) == 1


def test_allocation_is_all_or_none() -> None:
    pool = PagePool(4)
    pool.allocate(1)
    with pytest.raises(NoPageError, match="asked for 3 pages, 2 of 3 are free"):
        pool.allocate(3)
    assert pool.num_free == 2


def test_the_null_page_and_free_pages_cannot_be_released() -> None:
    pool = PagePool(4)
    for page_id in (NULL_PAGE, 2):
        with pytest.raises(IntegrityError, match="0 holders"):
            pool.release([page_id])


def test_a_page_is_shared_until_its_last_holder_goes() -> None:
    pool = PagePool(4)
    [page_id] = pool.allocate(1)
    pool.register(page_id, b"content")
    assert pool.share(b"content") == page_id
    pool.release([page_id])
    assert pool.share(b"content") == page_id
    pool.release([page_id, page_id])
    assert pool.share(b"content") is None
    assert pool.num_free == 3


def test_integrity_is_checked_against_the_holders() -> None:
    pool = PagePool(4)
    pages = pool.allocate(2)
    pool.check_integrity([pages])
    with pytest.raises(IntegrityError, match=r"1 pages are miscounted; page 2 counts 1 holders, 0 hold it"):
        pool.check_integrity([pages[:1]])
    with pytest.raises(IntegrityError, match="page 1 counts 1 holders, 2 hold it"):
        pool.check_integrity([pages, [1]])


class PoolMachine(RuleBasedStateMachine):
    """Holders take, share, name, forget and give back pages in any order."""

    holders: Bundle[list[int]] = Bundle("holders")

    def __init__(self) -> None:
        super().__init__()
        self.pool = PagePool(9)
        self.alive: list[list[int]] = []
        self.content: dict[bytes, int] = {}

    @rule(target=holders, count=st.integers(0, 6))
    def take(self, count: int) -> list[int] | MultipleResults[list[int]]:
        free = self.pool.num_free
        try:
            pages = self.pool.allocate(count)
        except NoPageError:
            assert count > free
            return multiple()
        assert count <= free
        assert NULL_PAGE not in pages
        self.alive.append(pages)
        return pages

    @rule(target=holders, name=st.binary(min_size=1, max_size=1))
    def share(self, name: bytes) -> list[int] | MultipleResults[list[int]]:
        page_id = self.pool.share(name)
        assert page_id == self.content.get(name)
        if page_id is None:
            return multiple()
        self.alive.append([page_id])
        return self.alive[-1]

    @rule(holder=holders, name=st.binary(min_size=1, max_size=1))
    def register(self, holder: list[int], name: bytes) -> None:
        if holder in self.alive and holder:
            self.pool.register(holder[0], name)
            self.content = {n: p for n, p in self.content.items() if p != holder[0]}
            self.content.setdefault(name, holder[0])

    @rule(holder=consumes(holders))
    def give_back(self, holder: list[int]) -> None:
        before = {page_id: self.pool.generation(page_id) for page_id in holder}
        self.alive = [pages for pages in self.alive if pages is not holder]
        self.pool.release(holder)
        for page_id in holder:
            freed = self.pool.ref_count(page_id) == 0
            assert self.pool.generation(page_id) == before[page_id] + freed
            if freed:
                self.content = {n: p for n, p in self.content.items() if p != page_id}

    @invariant()
    def books_balance(self) -> None:
        self.pool.check_integrity(self.alive)
        assert self.pool.num_free + len({p for pages in self.alive for p in pages}) == self.pool.num_usable


TestPoolMachine = PoolMachine.TestCase
TestPoolMachine.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
