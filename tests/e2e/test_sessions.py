"""What a client sees while workers are moved from, scaled away or killed: the same tokens as if nothing had happened."""

import asyncio
import os
import signal
from pathlib import Path

import httpx
import pytest

from kvroll_bench.trial import TrialPool
from kvroll_cli.demo.load.transcript import Transcript

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.model, pytest.mark.timeout(420)]
PROMPT = "Describe the day of a lighthouse keeper."
TOKENS = 400


async def streaming(
    pool: TrialPool, http: httpx.AsyncClient, sessions: int
) -> tuple[list[Transcript], list[asyncio.Task[Transcript]]]:
    """Opens the same greedy chat several times and returns once all have received a token."""
    transcripts = [Transcript(prompt=PROMPT) for _ in range(sessions)]
    tasks = [asyncio.create_task(pool.chat(http, PROMPT, TOKENS, t)) for t in transcripts]
    async with asyncio.timeout(60):
        while not all(t.arrivals for t in transcripts):
            assert not [t.error for t in transcripts if t.error]
            await asyncio.sleep(0.05)
    return transcripts, tasks


def ids(transcript: Transcript) -> list[int]:
    return [a.token_id for a in transcript.arrivals]


def check_whole(transcript: Transcript) -> None:
    """Every token of the worker's record arrived, once and in order."""
    assert transcript.error is None
    assert transcript.finish_reason == "length"
    assert [a.index for a in transcript.arrivals] == list(range(TOKENS))
    assert not transcript.is_wrong()


def test_exact_move_continues_token_for_token(pool: TrialPool) -> None:
    async def scenario() -> None:
        await pool.apply(replicas=2)
        async with pool.client() as http:
            undisturbed = await pool.chat(http, PROMPT, TOKENS)
            check_whole(undisturbed)
            transcripts, tasks = await streaming(pool, http, 4)
            await pool.objects.scale("kvpool", pool.name, 1)
            await asyncio.gather(*tasks)
        for transcript in transcripts:
            check_whole(transcript)
            assert ids(transcript) == ids(undisturbed)
        modes = [str(e["mode"]) for t in transcripts for e in t.precision_epochs]
        assert "Exact" in modes, f"no session moved exactly: {modes}"
        assert any(t.stalls() for t in transcripts)

    asyncio.run(scenario())


def test_sigkill_in_mid_stream_is_replayed(pool: TrialPool) -> None:
    async def scenario() -> None:
        await pool.apply(replicas=2)
        victim = (await pool.pods())[0]
        async with pool.client() as http:
            undisturbed = await pool.chat(http, PROMPT, TOKENS)
            transcripts, tasks = await streaming(pool, http, 4)
            os.kill(host_pid(victim["metadata"]["name"]), signal.SIGKILL)
            await asyncio.gather(*tasks)
        for transcript in transcripts:
            check_whole(transcript)
            # Same precision, and an engine whose prefill and decode round alike: even a replay continues as if undisturbed.
            assert ids(transcript) == ids(undisturbed)
        modes = [str(e["mode"]) for t in transcripts for e in t.precision_epochs]
        assert "Replay" in modes, f"no session was replayed: {modes}"

    asyncio.run(scenario())


def host_pid(pod: str) -> int:
    """The process of a local worker Pod as this machine numbers it."""
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit():
            continue
        try:
            environment = (folder / "environ").read_bytes().split(b"\0")
        except OSError:
            continue
        if f"KVROLL_WORKER_ID={pod}".encode() in environment:
            return int(folder.name)
    pytest.skip(f"the process of {pod} is not on this machine: SIGKILL needs the local cluster")
