"""The prefix cache's books: what matches, what is shared, what is evicted first."""

from dataclasses import replace

import pytest

from kvroll_worker.kv.cache_switch import CacheMode, CacheSwitch
from kvroll_worker.kv.pool import IntegrityError, PagePool
from kvroll_worker.kv.prefix_cache import CacheSalt, PrefixCache

SALT = CacheSalt("weights", "bf16", "int8", 1)


def ids_of(*pages: int, rest: int = 0) -> list[int]:
    """32 ids a page, the same page number the same ids."""
    return [1000 * page + n for page in pages for n in range(32)] + [7] * rest


def computed(cache: PrefixCache, pool: PagePool, ids: list[int], salt: CacheSalt = SALT) -> list[int]:
    """What a session does that finds what is cached and computes the rest."""
    pages = cache.match(salt, ids, len(ids) - 1)
    cache.take(pages)
    pages += pool.allocate(-(-len(ids) // 32) - len(pages))
    cache.insert(salt, ids, pages, len(ids) // 32)
    cache.check_integrity()
    return pages


def test_the_longest_page_aligned_prefix_matches_and_the_last_id_is_left_to_compute() -> None:
    pool = PagePool(9)
    cache = PrefixCache(pool)
    pages = computed(cache, pool, ids_of(1, 2, 3, rest=5))
    assert cache.match(SALT, ids_of(1, 2, 3, rest=9), 104) == pages[:3]
    assert cache.match(SALT, ids_of(1, 2, 3), 95) == pages[:2]
    assert cache.match(SALT, ids_of(1, 2, 9), 95) == pages[:2]
    assert cache.match(SALT, ids_of(1)[1:] + ids_of(2), 62) == []
    assert cache.match(SALT, ids_of(2, 3), 64) == []


@pytest.mark.parametrize(
    "other",
    [
        replace(SALT, weights_id="other"),
        replace(SALT, weights_dtype="int8"),
        replace(SALT, kv_format="bf16"),
        replace(SALT, layout_version=2),
        replace(SALT, tenant="other"),
    ],
    ids=["weights_id", "weights_dtype", "kv_format", "layout_version", "tenant"],
)
def test_every_field_of_the_salt_separates(other: CacheSalt) -> None:
    pool = PagePool(9)
    cache = PrefixCache(pool)
    computed(cache, pool, ids_of(1, 2, rest=1))
    assert cache.match(other, ids_of(1, 2, rest=1), 64) == []


def test_equal_pages_of_two_sessions_become_one() -> None:
    pool = PagePool(9)
    cache = PrefixCache(pool)
    ids = ids_of(1, 2, rest=1)
    first, second = pool.allocate(3), pool.allocate(3)
    assert cache.insert(SALT, ids, first, 1) == 1
    assert cache.insert(SALT, ids, second, 2) == 0
    assert second[0] == first[0]
    assert cache.insert(SALT, ids, first, 2) == 1
    assert second[:2] == first[:2]
    pool.check_integrity([first, second])
    cache.check_integrity()
    assert pool.num_free == 8 - 4


def test_the_oldest_leaf_goes_first_and_only_when_no_page_is_free() -> None:
    pool = PagePool(7)
    cache = PrefixCache(pool)
    old, new = computed(cache, pool, ids_of(1, 2)), computed(cache, pool, ids_of(1, 3))
    pool.release(reversed(old))
    pool.release(reversed(new))
    assert (pool.num_cached, pool.num_free) == (3, 6)
    taken = pool.allocate(3)
    assert pool.evictions_total == 0
    taken += pool.allocate(1)
    assert pool.evictions_total == 1
    assert cache.match(SALT, ids_of(1, 2), 64) == old[:1]
    assert cache.match(SALT, ids_of(1, 3), 64) == new
    taken += pool.allocate(2)
    assert len(cache) == 0
    pool.check_integrity([taken])
    cache.check_integrity()


def test_what_is_taken_is_not_evicted() -> None:
    pool = PagePool(5)
    cache = PrefixCache(pool)
    pool.release(reversed(computed(cache, pool, ids_of(1, 2))))
    held = computed(cache, pool, ids_of(1, 5))
    assert pool.num_cached == 1
    taken = pool.allocate(2)
    pool.check_integrity([held, taken])
    assert cache.match(SALT, ids_of(1, 5), 64) == held
    assert cache.match(SALT, ids_of(1, 2), 64) == held[:1]


def test_evicting_a_page_takes_out_what_follows_it_even_if_that_is_held() -> None:
    pool = PagePool(5)
    cache = PrefixCache(pool)
    pages = computed(cache, pool, ids_of(1, 2))
    pool.hold(pages[1])  # a move shared it by content, without the page before
    pool.release(reversed(pages))
    rest = pool.allocate(3)
    assert pages[0] in rest
    assert cache.match(SALT, ids_of(1, 2), 64) == []
    pool.check_integrity([rest, pages[1:]])
    cache.check_integrity()
    pool.release([pages[1]])
    assert pool.num_free == 1


def test_what_is_evicted_leaves_the_tree_and_the_pool_at_once() -> None:
    pool = PagePool(6)
    cache = PrefixCache(pool)
    pages = computed(cache, pool, ids_of(1, 2))
    pool.release(reversed(pages))
    before = pool.generation(pages[1])
    cache.drop(pages[1])
    assert (len(cache), pool.num_cached, pool.is_kept(pages[1])) == (1, 1, False)
    assert pool.generation(pages[1]) == before + 1
    cache.check_integrity()
    pool.check_integrity([pool.allocate(5)])
    assert len(cache) == 0


def test_null_pages_lead_the_way_to_what_a_window_still_sees() -> None:
    pool = PagePool(9)
    cache = PrefixCache(pool)
    ids = ids_of(1, 2, 3, rest=1)
    pages = computed(cache, pool, ids_of(1, 2, rest=1))
    pool.release([pages[0]])  # the window has passed it
    mine = [0, pages[1], *pages[2:]]
    assert cache.insert(SALT, ids, mine, 3) == 3
    assert cache.match(SALT, ids, 96) == pages
    assert mine[0] == 0
    cache.drop(pages[0])
    assert cache.insert(SALT, ids, mine, 3) == 3
    assert (len(cache), cache.match(SALT, ids, 96)) == (0, [])
    cache.check_integrity()
    pool.check_integrity([mine[1:]])


def test_clear_frees_what_nobody_holds() -> None:
    pool = PagePool(6)
    cache = PrefixCache(pool)
    pool.release(reversed(computed(cache, pool, ids_of(1, 2))))
    held = computed(cache, pool, ids_of(3))
    cache.clear()
    assert (pool.num_cached, pool.num_free, len(cache)) == (0, 4, 0)
    pool.check_integrity([held])
    pool.release(held)
    assert pool.num_free == 5


def test_a_page_that_tree_and_pool_disagree_about_is_found() -> None:
    pool = PagePool(6)
    cache = PrefixCache(pool)
    pages = computed(cache, pool, ids_of(1))
    pool.unkeep(pages[0])
    with pytest.raises(IntegrityError, match="the prefix cache holds"):
        cache.check_integrity()


def test_auto_turns_off_what_does_not_pay_and_tries_again() -> None:
    switch = CacheSwitch(CacheMode.AUTO)
    window, pause = CacheSwitch.WINDOW_TOKENS, CacheSwitch.PAUSE_TOKENS
    assert not switch.record(window - 1, 0)
    assert switch.record(1, 0)
    assert not switch.on
    assert "hit rate 0.0 of tokens is below 0.01" in str(switch.describe())
    assert not switch.record(pause - 1, 0)
    assert switch.record(1, 0)
    assert switch.on
    assert not switch.record(window, window // 50)
    assert switch.on
    assert switch.record(window, window // 200)
    assert switch.switches_total == 3


@pytest.mark.parametrize("mode", [CacheMode.ON, CacheMode.OFF])
def test_on_and_off_do_not_measure(mode: CacheMode) -> None:
    switch = CacheSwitch(mode)
    assert not switch.record(100 * CacheSwitch.PAUSE_TOKENS, 0)
    assert switch.on is (mode is CacheMode.ON)
