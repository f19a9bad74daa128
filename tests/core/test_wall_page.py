"""Which engines a page shows, and whose its series are."""

from collections.abc import Mapping

import pytest

from kvroll_core.budget import ModelShape
from kvroll_core.wall import (
    Found,
    Labels,
    Machine,
    Sample,
    SeriesError,
    Told,
    counters_between,
    engine_named,
    engines,
    engines_in,
    judge_engine,
    routers,
)
from kvroll_core.wall.engine import Selector

Series = dict[str, dict[Labels, float]]


def labelled(**labels: str) -> Labels:
    return tuple(sorted(labels.items()))


def two(name: str, *labels: Labels, value: float = 1.0) -> Series:
    return {name: dict.fromkeys(labels, value)}


def looks(series: Mapping[str, Mapping[Labels, float]], times: int = 2) -> list[Sample]:
    """Everything grows with each look."""
    return [
        Sample(float(n), {k: {i: v * (n + 1) for i, v in f.items()} for k, f in series.items()}) for n in range(times)
    ]


A, B = labelled(engine="0", model_name="m"), labelled(engine="1", model_name="m")


def names(found: tuple[Found, ...]) -> list[str]:
    return [one.name for one in found]


def test_data_parallel_engines_are_told_apart_and_no_counter_is_counted_twice() -> None:
    series = two("vllm:num_requests_running", A, B) | two("vllm:estimated_read_bytes_per_gpu_total", A, B, value=5.0)
    found = engines_in(looks(series))
    assert names(found) == ["engine=0", "engine=1"]
    assert [counters_between(one.views).read_bytes for one in found] == [5.0, 5.0]


def test_a_series_that_tells_no_engine_belongs_to_none_of_two() -> None:
    series = two("vllm:num_requests_running", A, B)
    for shared in ("vllm:estimated_read_bytes_per_gpu_total", "DCGM_FI_PROF_DRAM_ACTIVE"):
        series |= two(shared, labelled(gpu="0"))
    for one in engines_in(looks(series)):
        counters = counters_between(one.views)
        assert (counters.read_bytes, counters.memory_active) == (None, None)
    alone = two("vllm:num_requests_running", A) | two("vllm:estimated_read_bytes_per_gpu_total", labelled(gpu="0"))
    [one] = engines_in(looks(alone))
    assert counters_between(one.views).read_bytes == 1.0
    assert one.name == ""


def test_ranks_are_one_engine_and_show_one_figure() -> None:
    ranks = [labelled(model_name="m", tp_rank=str(n), pp_rank="0") for n in range(4)]
    [one] = engines_in(looks(two("sglang:num_running_reqs", *ranks, value=8.0)))
    assert counters_between(one.views).running == 12.0  # the mean of 8 and 16, not of four times as many


def test_a_breakdown_is_not_added_to_its_sum() -> None:
    series = two("sglang:num_running_reqs", labelled(model_name="m", priority=""), value=3.0)
    series["sglang:num_running_reqs"] |= {
        labelled(model_name="m", priority="1"): 2.0,
        labelled(model_name="m", priority="2"): 1.0,
    }
    [one] = engines_in(looks(series, times=2))
    assert counters_between(one.views).running == 4.5


def test_engines_of_several_kinds_on_one_page_keep_their_own() -> None:
    series = two("vllm:num_requests_running", labelled(pod="a")) | two(
        "llamacpp:requests_processing", labelled(pod="b")
    )
    found = engines_in(looks(series))
    assert [(one.engine.title, one.name) for one in found] == [("vLLM", "pod=a"), ("llama.cpp", "pod=b")]


def test_a_worker_of_ours_is_no_vllm_though_it_has_its_names() -> None:
    series = two("vllm:num_requests_running", labelled(pod="a"), labelled(pod="b")) | two(
        "kvroll_steps_total", labelled(pod="b")
    )
    assert [one.engine.name for one in engines_in(looks(series))] == ["vllm", "kvroll"]


def test_a_member_of_a_family_is_chosen_by_its_label() -> None:
    family = "nv_trt_llm_request_metrics"
    series: Series = {
        family: {labelled(request_type="scheduled", model="m"): 4.0, labelled(request_type="waiting", model="m"): 9.0}
    }
    [one] = engines_in(looks(series))
    assert one.engine.name == "triton"
    counters = counters_between(one.views)
    assert (counters.running, counters.waiting) == (6.0, 13.5)


@pytest.mark.parametrize("router", routers(), ids=lambda r: r.title)
def test_a_router_is_refused_and_told_what_to_ask_instead(router: object) -> None:
    for mark in router.marks:  # type: ignore[attr-defined]
        with pytest.raises(SeriesError, match="say --metrics-url http://ENGINE/metrics"):
            engines_in(looks(two("vllm:num_requests_running", A) | two(mark, ())))


def test_a_gateway_that_knows_its_engines_names_them() -> None:
    url = "http://127.0.0.1:37793/metrics"
    series = two("kvroll_gateway_sessions", ()) | two("kvroll_gateway_engine_metrics_info", labelled(url=url))
    with pytest.raises(SeriesError, match=f"say --metrics-url {url}"):
        engines_in(looks(series))


def test_a_share_in_per_cent_is_no_share() -> None:
    [one] = engines_in(looks(two("vllm:num_requests_running", A) | two("vllm:kv_cache_usage_perc", A, value=40.0)))
    with pytest.raises(SeriesError, match="expected a share from 0 to 1 in vllm:kv_cache_usage_perc, found 40"):
        counters_between(one.views)


def test_the_table_of_engines_is_whole() -> None:
    for engine in engines():
        assert {"running", "waiting"} <= set(engine.series)
        assert engine.source
        for switch in engine.switches:
            assert switch.lever in ("kvCache", "weights")
            assert 1 < switch.bits < 16
            assert switch.flag
            assert not switch.alias or engine.switch(switch.lever, switch.alias)
    assert str(Selector.parse("a:b{c=d}")) == 'a:b{c="d"}'
    with pytest.raises(ValueError, match=r"expected name or name.*, found 'a b'"):
        Selector.parse("a b")


def test_what_runs_already_is_read_from_the_page() -> None:
    info = labelled(block_size="16", num_gpu_blocks="1000", cache_dtype="fp8_e5m2", engine="0")
    [one] = engines_in(looks(two("vllm:num_requests_running", A) | two("vllm:cache_config_info", info)))
    assert one.views[-1].cache_dtype() == "fp8_e5m2"
    assert one.views[-1].pool_tokens() == 16_000
    assert engine_named("vllm").switch("kvCache", "fp8_e5m2").bits == 8  # type: ignore[union-attr]


def test_devices_share_the_bytes_that_are_reckoned() -> None:
    shape = ModelShape(32, 4096, 32, 8, 128, 14336, 128256, False, 131072)
    info = labelled(block_size="16", num_gpu_blocks="20000", cache_dtype="auto", engine="0")
    series = two("vllm:num_requests_running", A, value=8.0) | two("vllm:generation_tokens_total", A, value=800.0)
    samples = [
        Sample(s.at, {**s.series, "vllm:kv_cache_usage_perc": {A: 0.3}, "vllm:cache_config_info": {info: 1.0}})
        for s in looks(series)
    ]
    [found] = engines_in(samples)
    used = []
    for devices in (1, 4):
        told = Told(shape=shape, machine=Machine(3e12, 600e12), devices=devices)
        verdict = judge_engine(found, told).verdict
        used.append((verdict.value("bandwidth_used"), verdict.value("compute_used")))
    (whole, flops), (part, part_flops) = used
    assert whole
    assert flops
    assert part == pytest.approx(whole / 4)
    assert part_flops == pytest.approx(flops / 4)
