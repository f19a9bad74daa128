"""Fixtures of the engine's tests: models and engines as factories."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kvroll_kernels.dispatch import native_is_built
from kvroll_worker.engine.engine import Engine
from kvroll_worker.models import identity
from tests.doubles.engine_settings import engine_config
from tests.worker.tiny_model import MakeEngine, MakeModel, memory_for, write_model


@pytest.fixture(scope="session", autouse=True)
def user_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Shard hashes of temporary models do not belong into the user's cache; the imported model stays where it is."""
    folder = tmp_path_factory.mktemp("cache")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(identity, "cache_dir", lambda: folder)
        yield


@pytest.fixture(scope="session")
def make_model(tmp_path_factory: pytest.TempPathFactory) -> MakeModel:
    """Writes a tiny model once per set of overrides."""
    made: dict[str, Path] = {}

    def make(**overrides: Any) -> Path:
        key = json.dumps(overrides, sort_keys=True)
        if key not in made:
            made[key] = write_model(tmp_path_factory.mktemp("model"), **overrides)
        return made[key]

    return make


# The reference takes seconds where native takes milliseconds; without the native build it is all there is.
_OPS = ["native", pytest.param("reference", marks=pytest.mark.slow)] if native_is_built() else ["reference"]


@pytest.fixture(params=_OPS)
def ops_name(request: pytest.FixtureRequest) -> str:
    """Each implementation of the kernels that is there."""
    name: str = request.param
    return name


@pytest.fixture(autouse=True)
def _reference_at_two_precisions(request: pytest.FixtureRequest) -> None:
    """The engine's bookkeeping is the same over any kernels, and tests/kernels holds each format of the reference to its law."""
    case = getattr(request.node, "callspec", None)
    if case is None or case.params.get("ops_name") != "reference" or not native_is_built():
        return
    dtypes = {case.params.get(name) for name in ("weights", "kv_cache")} - {None}
    if len(dtypes) > 1 or not dtypes <= {"bf16", "int8"}:
        pytest.skip("the reference runs whole engines in bf16 or in int8 only")


@pytest.fixture
def make_engine(make_model: MakeModel, ops_name: str) -> MakeEngine:
    """An engine on the tiny model, with room for `pages` usable pages; in a sealed format for about half as many open ones."""

    def make(*, pages: int = 64, model: Path | None = None, **config: Any) -> Engine:
        defaults = {"max_sessions": 8, "max_batch_tokens": 64, "max_model_len": 256, "threads": 1, "ops": ops_name}
        settings = {"residual_tokens": 32, **defaults, **config}
        settings.setdefault("kv_memory_bytes", memory_for(settings.get("kv_cache", "bf16"), pages))
        return Engine(engine_config(model or make_model(), **settings))

    return make
