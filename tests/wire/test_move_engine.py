"""Moves of the real engine on a tiny random model: Exact goes on token for token, Convert and Replay go on as a fresh engine would."""

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from kvroll_kernels.dispatch import native_is_built
from kvroll_worker.engine.engine import Engine
from kvroll_worker.models import identity
from kvroll_worker.request import Sampling, SessionFailure, SessionState, TokenEvent
from tests.doubles.engine_settings import engine_config
from tests.wire.conftest import MakeWorker
from tests.wire.stream_gateway import StreamGateway
from tests.worker.tiny_model import write_model

pytestmark = pytest.mark.slow

PROMPT = [1 + i % 200 for i in range(150)]
KIVI: dict[str, object] = {"kv_cache": "kivi4", "residual_tokens": 64}
MakeTiny = Callable[..., Engine]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("wire") / "model")


@pytest.fixture
def make_tiny(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> MakeTiny:
    monkeypatch.setattr(identity, "cache_dir", lambda: tmp_path)

    def make(folder: Path = model, **settings: object) -> Engine:
        ops = "native" if native_is_built() else "reference"
        defaults = {
            "max_sessions": 8,
            "max_batch_tokens": 128,
            "max_model_len": 512,
            "threads": 1,
            "ops": ops,
            "kv_memory_bytes": 4 << 20,
        }
        return Engine(engine_config(folder, **{**defaults, **settings}))

    return make


def slowed(engine: Engine) -> Engine:
    """A tiny model is done before a move could begin: steps take at least 5 ms."""
    step = engine.step

    def slow() -> list[TokenEvent | SessionFailure]:
        time.sleep(0.005)
        return step()

    engine.step = slow  # type: ignore[method-assign]
    return engine


def generate(engine: Engine, outputs: list[int], num_tokens: int) -> list[int]:
    engine.submit(
        SessionState(
            "x", "m", list(PROMPT), list(outputs), Sampling(1.0, seed=11, max_tokens=num_tokens, ignore_eos=True)
        )
    )
    out = list(outputs)
    while engine.has_work():
        out += [e.token_id for e in engine.step() if isinstance(e, TokenEvent)]
    return out


@pytest.mark.parametrize(
    ("kind", "source_settings", "target_settings", "num_tokens"),
    [
        ("Exact", {}, {}, 120),
        ("Convert", {}, {"kv_cache": "int8"}, 120),
        ("Convert", {}, {"kv_cache": "int8", "skip_layers": (0,)}, 120),
        ("Replay", {}, {"weights": "int8"}, 250),
        ("Replay", {}, {"head": "int8"}, 250),
        ("Exact", KIVI, KIVI, 120),
        ("Convert", {}, KIVI, 120),
        ("Convert", KIVI, {"kv_cache": "kivi2"}, 120),
        ("Convert", KIVI, {"kv_cache": "kivi4", "residual_tokens": 32}, 120),
        ("Replay", KIVI, {}, 250),
    ],
)
async def test_the_engines_sessions_move(
    make_worker: MakeWorker,
    gateway: StreamGateway,
    make_tiny: MakeTiny,
    kind: str,
    source_settings: dict[str, object],
    target_settings: dict[str, object],
    num_tokens: int,
) -> None:
    source, target = (
        await make_worker(slowed(make_tiny(**source_settings))),
        await make_worker(make_tiny(**target_settings)),
    )
    for worker in (source, target):
        await gateway.attach(worker.address)
    session = gateway.submit(source.instance_id, "s", PROMPT, max_tokens=num_tokens, seed=11)
    await gateway.until(lambda: session.log.next_index >= 5)
    await source.admit(False)
    await source.drain(target.target(), allow=[kind])
    [tokens] = await gateway.finished("s")
    assert session.owner == target.instance_id, (await source.report()).drain
    assert session.log.last is not None
    record = session.log.last.record
    moved_at = record.precision_epochs[-1].from_token
    assert 0 < moved_at < num_tokens
    assert [e.mode for e in record.precision_epochs] == ["Start", kind]
    undisturbed = generate(make_tiny(**source_settings), [], num_tokens)
    assert tokens[:moved_at] == undisturbed[:moved_at]
    if kind == "Exact":
        assert tokens == undisturbed
    if kind == "Replay":
        assert tokens == generate(make_tiny(**target_settings), tokens[:moved_at], num_tokens)
    # What a prefill here would not have computed is not there for others.
    assert (target.engine.stats().pages_cached == 0) == (kind == "Convert" or "kv_cache" in target_settings)
    await source.drained()
    receipt = await source.seal()
    assert (receipt.counters.exact, receipt.counters.converted, receipt.counters.replayed) == tuple(
        int(kind == k) for k in ("Exact", "Convert", "Replay")
    )
    for worker in (source, target):
        await worker.host.call(lambda engine: engine.check_integrity())
        assert (await worker.host.call(lambda engine: engine.stats())).pages_free == worker.engine.stats().pages_total


@pytest.fixture(scope="module")
def windowed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    mistral = {"architectures": ["MistralForCausalLM"], "model_type": "mistral", "sliding_window": 33}
    return write_model(tmp_path_factory.mktemp("wire") / "windowed", **mistral)


@pytest.mark.parametrize(("kind", "kv_cache"), [("Exact", "bf16"), ("Convert", "int8")])
async def test_a_windowed_session_moves_with_the_pages_that_it_holds(
    make_worker: MakeWorker, gateway: StreamGateway, make_tiny: MakeTiny, windowed: Path, kind: str, kv_cache: str
) -> None:
    """Two sessions with one prompt: four of its pages have gone before the move, the held one travels once."""
    source = await make_worker(slowed(make_tiny(windowed, prefix_cache="On")))
    target = await make_worker(make_tiny(windowed, kv_cache=kv_cache, prefix_cache="On"))
    for worker in (source, target):
        await gateway.attach(worker.address)
    sessions = [gateway.submit(source.instance_id, name, PROMPT, max_tokens=300, seed=11) for name in ("s", "t")]
    # Past position 160 the window of 33 tokens has left the fourth page; a session that hit the prefix never held the first three.
    await gateway.until(lambda: all(session.log.next_index >= 20 for session in sessions))
    await source.admit(False)
    await source.drain(target.target(), allow=[kind])
    for name, session in zip(("s", "t"), sessions, strict=True):
        [tokens] = await gateway.finished(name)
        assert session.owner == target.instance_id, (await source.report()).drain
        assert session.log.last is not None
        moved_at = session.log.last.record.precision_epochs[-1].from_token
        assert 0 < moved_at < 300
        undisturbed = generate(make_tiny(windowed), [], 300)
        assert tokens[: 300 if kind == "Exact" else moved_at] == undisturbed[: 300 if kind == "Exact" else moved_at]
    await source.drained()
    moved_bytes = source.host.metrics.registry.get_sample_value("kvroll_moved_bytes_total", {"direction": "out"})
    assert moved_bytes, "no page was sent"
    assert moved_bytes <= 12 * target.engine.stats().page_bytes, "what lies outside the window was sent"
    assert source.engine.stats().window_pages_freed_total >= 4
    for worker in (source, target):
        await worker.host.call(lambda engine: engine.check_integrity())
        assert (await worker.host.call(lambda engine: engine.stats())).pages_free == worker.engine.stats().pages_total
