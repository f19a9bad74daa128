"""How sessions come by pages, let others share them and give them back: pool, prefix cache and spill as one. No torch, no clock."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from kvroll_core.precision.formats import PAGE_TOKENS
from kvroll_worker.engine.schedule.open_pages import OpenPages
from kvroll_worker.engine.schedule.spill import SpillStore
from kvroll_worker.engine.session import EngineSession
from kvroll_worker.kv.cache_switch import CacheMode, CacheSwitch
from kvroll_worker.kv.pool import NULL_PAGE, IntegrityError, PagePool
from kvroll_worker.kv.prefix_cache import CacheSalt, PrefixCache

_NO_SALT = CacheSalt("", "", "", 0)


@dataclass
class PrefixCounts:
    """Tokens that were looked up and found at first admissions, and found by sessions that came back from a preemption."""

    queries: int = 0
    hits: int = 0
    resumed: int = 0


class Paging:
    """The only place where a session's page list changes.

    A session's pages, by index. In a format that seals nothing every page is in one of four states, whose borders only move right
    (until all is given back):

        0             num_passed       num_published      num_kv / 32        len(pages)      all ids
        |    passed       |    published    |       full       |    to be written  |    not held yet    |
        |  [0, passed)    |  others may     |  its own until   |  its own alone:   |  `grow`, before a  |
        |  null pages,    |  read them; kept|  `publish` finds |  the step writes  |  step needs them   |
        |  freed by       |  in the cache   |  or makes a page |  the next tokens  |                    |
        |  `advance`      |  after the end  |  of that content |  here             |                    |

    `passed` may be ahead of `published`: a window does not wait for the cache. In a sealed format (kivi) nothing is passed or published,
    and the two pools divide the session instead:

        0                              num_sealed                                   all ids
        |            sealed                |                  open                     |
        |  `pages`: low-bit, final, of     |  `open_pages`: 16-bit, a ring of the      |
        |  the pool                        |  small pool; the oldest is sealed into    |
        |                                  |  the next of `pages` by `due_seals`       |

    Raises (all methods that give pages):
        NoPageError: fewer pages are free than asked for.
    """

    def __init__(
        self,
        pool: PagePool,
        *,
        mode: CacheMode = CacheMode.OFF,
        salt: CacheSalt = _NO_SALT,
        spill: SpillStore | None = None,
        open_pages: OpenPages | None = None,
    ) -> None:
        self.pool = pool
        self.open = open_pages or OpenPages()
        self.cache = PrefixCache(pool)
        self.switch = CacheSwitch(mode)
        self.counts = PrefixCounts()
        self.spill = spill
        self.window_pages_freed_total = 0
        self._salt = salt
        self._switches_told = 0

    # -- pages in

    def matched(self, session: EngineSession) -> list[int]:
        """The cached pages that a session without pages would take: all before its last id at most, which has to be computed."""
        if not self.switch.on or not _may_read(session):
            return []
        return self.cache.match(self._salt_of(session), session.ids, session.num_tokens - 1)

    def num_needed(self, session: EngineSession) -> int:
        """Pages that are not free now but would have to be, for the session to be admitted."""
        matched = self.matched(session)
        _, first, end = _span(session, len(matched))
        return end - first - sum(1 for page_id in matched[first:] if self.pool.ref_count(page_id))

    def admit(self, session: EngineSession) -> None:
        """Gives a session the pages that it needs for its ids, as many as possible with their KV."""
        matched = self.matched(session)
        session.num_kv, first, end = _span(session, len(matched))
        self.cache.take(matched)  # first: what is held cannot be evicted for the rest
        self.pool.release(
            reversed(matched[:first])
        )  # was used, and is not needed: evicted after all that was used before
        known = matched[first:]
        session.pages = [NULL_PAGE] * first + known + self.pool.allocate(end - first - len(known))
        session.num_passed, session.num_published, session.num_admitted = first, len(matched), session.num_tokens
        self.open.grow(session)
        self._count(session, len(matched) * PAGE_TOKENS)
        if session.spilled is not None:
            assert self.spill is not None
            self.spill.restore(session, len(matched))
        else:
            session.state.kv_converted = False  # all of it is computed here

    def grow(self, session: EngineSession) -> None:
        """Gives a running session the pages that it lacks for its ids."""
        session.pages += self.pool.allocate(session.num_missing_pages)
        self.open.grow(session)

    def advance(self, session: EngineSession) -> None:
        """After a step: lets others take what has become full, and gives back what no layer will look at again.

        The pages that the session needs next instead are taken at once, if that is enough for them: else a prefill would lose its room
        with every step to whoever waits.
        """
        self.publish(session)
        first = min(session.window.first_page(session.num_kv), len(session.pages))
        if (passed := first - session.num_passed) <= 0:
            return
        self.pool.release(reversed(session.pages[session.num_passed : first]))
        session.pages[session.num_passed : first] = [NULL_PAGE] * passed
        session.num_tabled = min(session.num_tabled, session.num_passed)
        session.num_passed = first
        self.window_pages_freed_total += passed
        if session.num_missing_pages <= self.pool.num_free:
            self.grow(session)

    # -- pages shared

    def publish(self, session: EngineSession) -> None:
        """Lets others take the pages that have become full; equal pages of two sessions become one."""
        full = session.num_kv // PAGE_TOKENS
        if full <= session.num_published or session.state.kv_converted or not self.switch.on:
            return
        replaced = self.cache.insert(self._salt_of(session), session.ids, session.pages, full)
        session.num_published, session.num_tabled = full, min(session.num_tabled, replaced)

    def shared_tokens(self, session: EngineSession, leader: EngineSession) -> int:
        """Tokens that `leader` is going to publish and `session` could take."""
        if not self.switch.on or leader.state.kv_converted or not _may_read(session):
            return 0
        if session.state.cache_salt != leader.state.cache_salt:
            return 0
        most = min(session.num_tokens - 1, leader.target_kv) // PAGE_TOKENS
        pages = 0
        while pages < most and _page(session, pages) == _page(leader, pages):
            pages += 1
        return pages * PAGE_TOKENS

    def disown(self, session: EngineSession) -> None:
        """Takes a session's pages out of the cache: its KV is not to be trusted."""
        passed = self.cache.match(self._salt_of(session), session.ids, PAGE_TOKENS) if session.num_passed else []
        for page_id in (*passed, *session.held_pages):  # what the window has passed hangs below the first page too
            self.cache.drop(page_id)

    # -- pages out

    def give_back(self, session: EngineSession) -> None:
        """Takes all pages; full ones that were published stay cached."""
        self.pool.release(reversed(session.held_pages))
        session.pages, session.num_kv, session.num_tabled, session.num_published = [], 0, 0, 0
        session.num_passed = 0
        self.open.give_back(session)

    def preempt(self, session: EngineSession) -> None:
        """Takes all pages of a session that will come back, after copying them if there is room for that."""
        session.preempted = True
        if self.spill is not None:
            self.spill.spill(session)
        self.give_back(session)

    def forget(self, session: EngineSession) -> None:
        """Drops what was spilled of a session that will not come back."""
        if self.spill is not None:
            self.spill.drop(session)

    # -- looking

    @property
    def most_pages(self) -> int:
        """Pages of the longest session that there is room for."""
        return self.pool.num_usable + self.open.sealing.open_pages

    def switched(self) -> bool:
        """True once after the cache was turned on or off."""
        told, self._switches_told = self._switches_told, self.switch.switches_total
        return told != self._switches_told

    def figures(self) -> dict[str, Any]:
        """Its part of `EngineStats`, by field."""
        return {
            "pages_total": self.pool.num_usable + self.open.num_usable,
            "pages_free": self.pool.num_free + self.open.num_free,
            "pages_cached": self.pool.num_cached,
            "evictions_total": self.pool.evictions_total,
            "allocation_failures_total": self.pool.allocation_failures_total,
            "prefix_queries_total": self.counts.queries,
            "prefix_hits_total": self.counts.hits,
            "prefix_resumed_total": self.counts.resumed,
            "prefix_cache_on": self.switch.on,
            "prefix_switches_total": self.switch.switches_total,
            "window_pages_freed_total": self.window_pages_freed_total,
        }

    def check_integrity(self, sessions: Iterable[EngineSession]) -> None:
        """Raises IntegrityError if the cache's books do not balance, a page that will be written has another reader, or a session has
        other pages than its windows ask for.
        """
        self.cache.check_integrity()
        for session in sessions:
            _check_window(session)
            written = session.num_sealed if session.sealing.seals else session.num_kv // PAGE_TOKENS
            for page_id in session.pages[written:]:
                if self.pool.ref_count(page_id) != 1 or self.pool.is_kept(page_id):
                    raise IntegrityError(
                        f"page {page_id} of {session.session_id} is to be written but others may read it"
                    )

    def _count(self, session: EngineSession, found: int) -> None:
        if session.scores_prompt:
            return
        if session.preempted:
            self.counts.resumed += found
            return
        session.num_cached = found
        if self.switch.on:
            self.counts.queries += session.num_tokens
            self.counts.hits += found
        if self.switch.record(session.num_tokens, found) and not self.switch.on:
            self.cache.clear()

    def _salt_of(self, session: EngineSession) -> CacheSalt:
        return replace(self._salt, tenant=session.state.cache_salt)


def _span(session: EngineSession, num_matched: int) -> tuple[int, int, int]:
    """(tokens that KV will cover, first page that is needed then, the one behind the last) of a session that would be admitted."""
    spilled = session.spilled.num_kv if session.spilled is not None else 0
    num_kv = max(num_matched * PAGE_TOKENS, spilled)
    return num_kv, session.window.first_page(num_kv), session.end_page(num_kv)


def _check_window(session: EngineSession) -> None:
    null = [page_id == NULL_PAGE for page_id in session.pages]
    passed = min(session.window.first_page(session.num_kv), len(session.pages))
    if session.num_passed != passed or not all(null[:passed]) or any(null[passed:]):
        raise IntegrityError(
            f"{session.session_id} with KV of {session.num_kv} tokens: expected null pages up to {passed} and none behind,"
            f" found {session.num_passed} passed and null pages at {[i for i, is_null in enumerate(null) if is_null][-5:]}"
        )


def _may_read(session: EngineSession) -> bool:
    # Prompt logprobs come from computing the prompt; spilled KV of other numerics has to come back as it was.
    return not session.scores_prompt and not (session.spilled is not None and session.state.kv_converted)


def _page(session: EngineSession, index: int) -> list[int]:
    return session.ids[index * PAGE_TOKENS : (index + 1) * PAGE_TOKENS]
