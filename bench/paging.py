"""What pages waste and what the prefix cache saves, on a mixed trace: `python bench/paging.py`.

The real scheduler, pool and cache run the trace; the model is left out, because none of these figures depends on it. Chats with a few
system prompts go on for some turns (each turn brings all that was said), documents are asked about once or a few times, some requests
want several choices, and some prompts are like no other. Lengths are drawn so that prompts and outputs are of some hundred tokens, as
in the chat traces of the PagedAttention paper (arXiv 2309.06180 §6.2, where contiguous allocation wastes 62 to 80 percent and pages
under 4). Writes build/bench/paging.json.
"""

import argparse
import json
import random
import time
from collections.abc import Iterator
from dataclasses import asdict, astuple, dataclass
from pathlib import Path
from typing import cast

from kvroll_core.precision.formats import PAGE_TOKENS
from kvroll_worker.engine.schedule.paging import Paging
from kvroll_worker.engine.schedule.scheduler import Limits, Scheduler
from kvroll_worker.engine.session import EngineSession
from kvroll_worker.engine.text.detokenizer import TextStream
from kvroll_worker.kv.cache_switch import CacheMode
from kvroll_worker.kv.pool import PagePool
from kvroll_worker.request import Sampling, SessionState

MAX_MODEL_LEN = 2048
VOCAB = 49152
NO_TEXT = cast(TextStream, None)


@dataclass
class Ask:
    """One request of the trace; `n` choices of the same prompt."""

    at_step: int
    prompt: list[int]
    max_tokens: int
    tokens: int  # after which it ends by itself
    n: int = 1


@dataclass
class Result:
    """Percentages are means over the steps, of slots that sessions hold; the last is what scheduling and the cache cost on this machine."""

    waste_percent: float
    contiguous_waste_percent: float
    reserved_waste_percent: float
    hit_token_rate: float
    prefill_tokens: int
    prefill_tokens_saved: int
    evictions: int
    preemptions: int
    peak_pages: int
    steps: int
    schedule_us_per_step: float


@dataclass
class Held:
    """Token slots at one step. Pages that are shared count once in `slots`; a last page's empty slots are never shared."""

    tokens: int
    slots: int
    empty: int
    longest: int  # that contiguous allocation of the longest context would hold
    asked: int  # that contiguous allocation of prompt + max_tokens would hold


def trace(seed: int, chats: int) -> list[Ask]:
    """The requests in order of arrival."""
    draw = random.Random(seed)

    def ids(count: int) -> list[int]:
        return [draw.randrange(VOCAB) for _ in range(count)]

    systems, documents = [ids(n) for n in (90, 260, 410)], [ids(n) for n in (700, 1100)]
    asks = []
    for chat in range(chats):
        at, kind = chat * 8, draw.random()
        if kind < 0.6:
            said = list(draw.choice(systems))
            for _ in range(draw.randint(1, 5)):
                said += ids(draw.randint(10, 120))
                answer = draw.randint(20, 300)
                if len(said) + 400 > MAX_MODEL_LEN:
                    break
                asks.append(Ask(at, list(said), 400, answer))
                said += ids(answer)  # nearly what was answered: the last turn's output has other ids here
                at += answer + draw.randint(20, 200)
        elif kind < 0.75:
            asks.append(Ask(at, draw.choice(documents) + ids(draw.randint(10, 60)), 300, draw.randint(20, 200)))
        elif kind < 0.85:
            asks.append(Ask(at, ids(draw.randint(40, 500)), 300, draw.randint(50, 200), n=4))
        else:
            asks.append(Ask(at, ids(draw.randint(20, 900)), 400, draw.randint(20, 400)))
    return sorted(asks, key=lambda ask: ask.at_step)


class Replay:
    """Runs a trace step by step; every generated id is an arbitrary one."""

    def __init__(self, asks: list[Ask], pages: int, mode: CacheMode) -> None:
        self._asks, self._draw = asks, random.Random(1)
        self._pool = PagePool(pages + 1)
        self._paging = Paging(self._pool, mode=mode)
        self._scheduler = Scheduler(self._paging, Limits(64, 256))
        self._ends: dict[EngineSession, int] = {}
        self._held: list[Held] = []
        self._prefilled, self._seconds = 0, 0.0

    def run(self) -> Result:
        """All of it, until every session has ended."""
        steps, arriving = 0, iter(self._arrivals())
        coming = next(arriving, None)
        while coming is not None or self._scheduler.has_work():
            while coming is not None and coming[0] <= steps:
                self._scheduler.add(coming[1])
                coming = next(arriving, None)
            self._step()
            steps += 1
        return self._result(steps)

    def _arrivals(self) -> Iterator[tuple[int, EngineSession]]:
        number = 0
        for ask in self._asks:
            for _ in range(ask.n):
                state = SessionState(str(number), "m", list(ask.prompt), sampling=Sampling(max_tokens=ask.max_tokens))
                session = EngineSession(state, NO_TEXT, number)
                self._ends[session] = ask.tokens
                number += 1
                yield ask.at_step, session

    def _step(self) -> None:
        began = time.perf_counter()
        chunks = self._scheduler.schedule()
        self._seconds += time.perf_counter() - began
        for chunk in chunks:
            chunk.session.num_kv += chunk.length
            self._prefilled += max(min(chunk.length, chunk.session.num_admitted - chunk.start), 0)
            if chunk.samples:
                chunk.session.append(self._draw.randrange(VOCAB))
        began = time.perf_counter()
        for chunk in chunks:
            self._paging.publish(chunk.session)
        self._seconds += time.perf_counter() - began
        for session in [chunk.session for chunk in chunks]:
            if len(session.state.output_token_ids) >= self._ends[session]:
                self._scheduler.remove(session)
        if self._scheduler.running:
            self._held.append(self._look())

    def _look(self) -> Held:
        running = self._scheduler.running
        slots = PAGE_TOKENS * len({page_id for session in running for page_id in session.pages})
        return Held(
            tokens=sum(s.num_tokens for s in running),
            slots=slots,
            empty=sum(len(s.pages) * PAGE_TOKENS - s.num_tokens for s in running),
            longest=len(running) * MAX_MODEL_LEN,
            asked=sum(len(s.state.prompt_token_ids) + s.state.sampling.max_tokens for s in running),
        )

    def _result(self, steps: int) -> Result:
        counts, pool = self._paging.counts, self._pool
        tokens, slots, empty, longest, asked = (sum(column) for column in zip(*map(astuple, self._held), strict=True))
        return Result(
            waste_percent=round(100 * empty / slots, 2),
            contiguous_waste_percent=round(100 * (1 - tokens / longest), 2),
            reserved_waste_percent=round(100 * (1 - tokens / asked), 2),
            hit_token_rate=round(counts.hits / max(counts.queries, 1), 4),
            prefill_tokens=self._prefilled,
            prefill_tokens_saved=counts.hits + counts.resumed,
            evictions=pool.evictions_total,
            preemptions=self._scheduler.preemptions_total,
            peak_pages=max(held.slots for held in self._held) // PAGE_TOKENS,
            steps=steps,
            schedule_us_per_step=round(1e6 * self._seconds / steps, 1),
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--chats", type=int, default=200)
    parser.add_argument("--pages", type=int, nargs="+", default=[1600, 500, 250])
    parser.add_argument("--out", type=Path, default=Path("build/bench/paging.json"))
    options = parser.parse_args()
    options.out.parent.mkdir(parents=True, exist_ok=True)
    report = []
    for pages in options.pages:
        for mode in (CacheMode.OFF, CacheMode.ON, CacheMode.AUTO):
            asks = trace(options.seed, options.chats)
            result = Replay(asks, pages, mode).run()
            report.append({"pages": pages, "prefix_cache": mode.value, **asdict(result)})
            print(report[-1], flush=True)
            traced = {"seed": options.seed, "chats": options.chats}
            options.out.write_text(json.dumps({"trace": traced, "runs": report}, indent=1))


if __name__ == "__main__":
    main()
