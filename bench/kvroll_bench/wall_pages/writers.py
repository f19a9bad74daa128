"""Pages as the engines write them: names, labels, types and the order of their own source, which `engines.toml` names."""

from collections.abc import Mapping

from kvroll_bench.wall_pages.scene import Counted

_EDGES = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.4, 1.0, 2.5)


def vllm(
    found: Counted, *, labels: str = 'engine="0",model_name="llama-3.1-8b"', mfu: bool = True, old: bool = False,
    cache_dtype: str = "auto", engine: str = "0",
) -> str:  # fmt: skip
    """vLLM V1; `old`: the names of 0.8; `mfu`: whether it was started with --enable-mfu-metrics."""
    blocks = found.scene.pool_tokens // 16
    used = "gpu_cache_usage_perc" if old else "kv_cache_usage_perc"
    prefix = "gpu_prefix_cache" if old else "prefix_cache"
    lines = [
        _gauge("vllm:num_requests_running", labels, found.running),
        _gauge("vllm:num_requests_waiting", labels, found.waiting),
        _gauge(f"vllm:{used}", labels, found.kv_used),
        _counter(f"vllm:{prefix}_queries", labels, found.prompt_tokens),
        _counter(f"vllm:{prefix}_hits", labels, found.prefix_hits),
        _counter("vllm:num_preemptions", labels, found.preemptions),
        _counter("vllm:prompt_tokens", labels, found.prompt_tokens),
        _counter("vllm:generation_tokens", labels, found.generated_tokens),
        _counter("vllm:request_success", f'finished_reason="stop",{labels}', found.generated_tokens / 300),
        _counter("vllm:request_success", f'finished_reason="length",{labels}', found.generated_tokens / 900),
        _histogram("vllm:iteration_tokens_total", labels, found.steps, found.running, (1, 8, 16, 64, 256, 1024)),
        _histogram(
            "vllm:inter_token_latency_seconds", labels, found.generated_tokens, found.inter_token_seconds, _EDGES
        ),
        "# TYPE vllm:cache_config_info gauge",
        f'vllm:cache_config_info{{block_size="16",cache_dtype="{cache_dtype}",enable_prefix_caching="True",engine="{engine}",'
        f'gpu_memory_utilization="0.9",num_gpu_blocks="{blocks}"}} 1.0',
    ]
    if not old:
        lines += [
            "# TYPE vllm:num_requests_waiting_by_reason gauge",
            f'vllm:num_requests_waiting_by_reason{{{labels},reason="capacity"}} {found.waiting}',
            f'vllm:num_requests_waiting_by_reason{{{labels},reason="deferred"}} 0.0',
        ]
    if mfu:
        lines += [
            _counter("vllm:estimated_flops_per_gpu", labels, found.flops),
            _counter("vllm:estimated_read_bytes_per_gpu", labels, found.read_bytes),
            _counter("vllm:estimated_write_bytes_per_gpu", labels, found.read_bytes / 50),
        ]
    return "".join(f"{line}\n" for line in lines)


def sglang(
    found: Counted,
    *,
    rank: str = 'pp_rank="0",tp_rank="0"',
    mfu: bool = True,
    priorities: bool = False,
    extra: str = "",
) -> str:
    """SGLang with --enable-metrics; `mfu`: with --enable-mfu-metrics; `priorities`: with its queues by priority."""
    model = 'engine_type="unified",model_name="meta-llama/Llama-3.1-8B-Instruct"' + extra
    labels = f"{model},{rank}"
    empty = f'{labels},priority=""' if priorities else labels
    lines = [
        _gauge("sglang:num_running_reqs", empty, found.running),
        _gauge("sglang:num_queue_reqs", empty, found.waiting),
        _gauge("sglang:token_usage", labels, found.kv_used),
        _gauge("sglang:full_token_usage", labels, found.kv_used),
        _gauge("sglang:num_used_tokens", labels, round(found.kv_used * found.scene.pool_tokens)),
        _gauge("sglang:max_total_num_tokens", labels, found.scene.pool_tokens),
        _gauge("sglang:gen_throughput", labels, found.running / found.inter_token_seconds),
        _gauge("sglang:cache_hit_rate", labels, found.scene.prefix_hit_share),
        _gauge("sglang:num_retracted_reqs", labels, 0.0),
        _counter("sglang:num_retracted_requests", labels, found.preemptions),
        _counter("sglang:prompt_tokens", model, found.prompt_tokens),
        _counter("sglang:cached_tokens", f'cache_source="device",{model}', found.prefix_hits),
        _counter("sglang:generation_tokens", model, found.generated_tokens),
        _counter("sglang:num_requests", f'is_streaming="true",{model}', found.generated_tokens / 300),
        _histogram(
            "sglang:inter_token_latency_seconds", model, found.generated_tokens, found.inter_token_seconds, _EDGES
        ),
    ]
    if priorities:
        for priority, share in (("0", 0.75), ("10", 0.25)):
            lines += [
                f'sglang:num_running_reqs{{{labels},priority="{priority}"}} {found.running * share}',
                f'sglang:num_queue_reqs{{{labels},priority="{priority}"}} {found.waiting * share}',
            ]
    if mfu:
        lines += [
            _counter("sglang:estimated_flops_per_gpu", labels, found.flops),
            _counter("sglang:estimated_read_bytes_per_gpu", labels, found.read_bytes),
        ]
    return "".join(f"{line}\n" for line in lines)


def trtllm(found: Counted) -> str:
    """trtllm-serve at /prometheus/metrics, with return_perf_metrics."""
    labels = 'engine_type="trtllm",model_name="llama-3.1-8b"'
    blocks = found.scene.pool_tokens // 32
    lines = [
        _counter("trtllm_request_success", f'finished_reason="stop",{labels}', found.generated_tokens / 300),
        _counter("trtllm_prompt_tokens", labels, found.prompt_tokens),
        _counter("trtllm_generation_tokens", labels, found.generated_tokens),
        _counter("trtllm_prompt_cached_tokens", labels, found.prefix_hits),
        _histogram(
            "trtllm_time_per_output_token_seconds",
            labels,
            found.generated_tokens / 300,
            found.inter_token_seconds,
            _EDGES,
        ),
        _gauge("trtllm_kv_cache_hit_rate", labels, found.scene.prefix_hit_share),
        _gauge("trtllm_kv_cache_utilization", labels, found.kv_used),
        _gauge("trtllm_num_requests_running", labels, found.running),
        _gauge("trtllm_num_requests_waiting", labels, found.waiting),
        _gauge("trtllm_max_num_active_requests", labels, 256),
        _gauge("trtllm_iteration_latency_seconds", labels, found.inter_token_seconds),
        _gauge("trtllm_kv_cache_max_blocks", labels, blocks),
        _gauge("trtllm_kv_cache_used_blocks", labels, round(found.kv_used * blocks)),
        _gauge("trtllm_kv_cache_tokens_per_block", labels, 32),
    ]
    return "".join(f"{line}\n" for line in lines)


def triton(found: Counted) -> str:
    """TensorRT-LLM behind Triton: gauges alone, no tokens."""
    blocks = found.scene.pool_tokens // 64
    model = 'model="tensorrt_llm",version="1"'
    used = round(found.kv_used * blocks)
    families: Mapping[str, tuple[str, Mapping[str, float]]] = {
        "nv_trt_llm_request_metrics": (
            "request_type",
            {"active": found.running + found.waiting, "max": 256, "scheduled": found.running, "context": 1, "waiting": found.waiting},
        ),
        "nv_trt_llm_kv_cache_block_metrics": (
            "kv_cache_block_type", {"max": blocks, "free": blocks - used, "used": used, "tokens_per": 64, "fraction": used / blocks},
        ),
        "nv_trt_llm_inflight_batcher_metrics": ("inflight_batcher_specific_metric", {"generation_requests": found.running}),
    }  # fmt: skip
    lines = []
    for name, (label, values) in families.items():
        lines.append(f"# TYPE {name} gauge")
        lines += [f'{name}{{{label}="{word}",{model}}} {number}' for word, number in values.items()]
    return "".join(f"{line}\n" for line in lines)


def llamacpp(found: Counted, *, old: bool = False) -> str:
    """llama-server with --metrics; `old`: while it still told how full its cache is."""
    lines = [
        _plain("llamacpp:prompt_tokens_total", "counter", found.prompt_tokens),
        _plain("llamacpp:prompt_seconds_total", "counter", found.prompt_tokens / 2000),
        _plain("llamacpp:tokens_predicted_total", "counter", found.generated_tokens),
        _plain(
            "llamacpp:tokens_predicted_seconds_total", "counter", found.generated_tokens * found.inter_token_seconds
        ),
        _plain("llamacpp:n_decode_total", "counter", found.steps),
        _plain("llamacpp:n_tokens_max", "counter", 4000),
        _plain("llamacpp:n_busy_slots_per_decode", "counter", found.scene.sessions),
        _plain("llamacpp:prompt_tokens_seconds", "gauge", 2000),
        _plain("llamacpp:predicted_tokens_seconds", "gauge", 1 / found.inter_token_seconds),
        _plain("llamacpp:requests_processing", "gauge", found.running),
        _plain("llamacpp:requests_deferred", "gauge", found.waiting),
    ]
    if old:
        lines.append(_plain("llamacpp:kv_cache_usage_ratio", "gauge", found.kv_used))
    return "".join(f"{line}\n" for line in lines)


def dcgm(found: Counted, *, memory: float, tensor: float) -> str:
    """The DCGM exporter's page of the one device, beside the engine's."""
    labels = 'DCGM_FI_DRIVER_VERSION="570.124.06",Hostname="n1",UUID="GPU-1c0",device="nvidia0",gpu="0",modelName="NVIDIA H100 80GB HBM3"'
    values = {"DRAM_ACTIVE": memory if found.running else 0.0, "PIPE_TENSOR_ACTIVE": tensor if found.running else 0.0}
    return "".join(f"# TYPE DCGM_FI_PROF_{n} gauge\nDCGM_FI_PROF_{n}{{{labels}}} {v}\n" for n, v in values.items())


def _gauge(name: str, labels: str, value: float) -> str:
    return f"# TYPE {name} gauge\n{name}{{{labels}}} {float(value)}"


def _counter(name: str, labels: str, value: float) -> str:
    return f"# TYPE {name} counter\n{name}_total{{{labels}}} {float(value)}"


def _plain(name: str, kind: str, value: float) -> str:
    return (
        f"# TYPE {name} {kind}\n{name} {value:.6g}" if kind == "gauge" else f"# TYPE {name} {kind}\n{name} {int(value)}"
    )


def _histogram(name: str, labels: str, count: float, each: float, edges: tuple[float, ...]) -> str:
    """All observations of one size."""
    lines = [f"# TYPE {name} histogram"]
    lines += [f'{name}_bucket{{{labels},le="{float(e)}"}} {count if each <= e else 0.0}' for e in edges]
    lines += [f'{name}_bucket{{{labels},le="+Inf"}} {count}', f"{name}_sum{{{labels}}} {count * each}"]
    return "\n".join([*lines, f"{name}_count{{{labels}}} {count}"])


def kvroll(found: Counted, *, bytes_per_second: float = 1.2e10, flops_per_second: float = 6e10) -> str:
    """A worker of ours."""
    labels = 'model_name="smollm2"'
    busy = (found.steps - 50_000) * found.scene.step_seconds
    waits = busy if found.scene.waiting and found.scene.kv_used > 0.9 else 0.0
    lines = [
        _gauge("vllm:num_requests_running", labels, found.running),
        _gauge("vllm:num_requests_waiting", labels, found.waiting),
        _gauge("vllm:kv_cache_usage_perc", labels, found.kv_used),
        _counter("vllm:num_preemptions", labels, found.preemptions),
        _counter("vllm:prompt_tokens", labels, found.prompt_tokens),
        _counter("vllm:generation_tokens", labels, found.generated_tokens),
        _counter("vllm:estimated_read_bytes_per_gpu", labels, found.read_bytes),
        _counter("vllm:estimated_flops_per_gpu", labels, found.flops),
        _plain("kvroll_steps_total", "counter", found.steps),
        _plain("kvroll_waiting_for_room_seconds_total", "counter", 1000 + waits),
        f"# TYPE kvroll_step_seconds counter\nkvroll_step_seconds_total {2000 + busy}",
        _plain("kvroll_device_bytes_per_second", "gauge", bytes_per_second),
        _plain("kvroll_device_flops_per_second", "gauge", flops_per_second),
        '# TYPE kvroll_engine_info gauge\nkvroll_engine_info{kv_cache="bf16",weights="fp32"} 1.0',
    ]
    return "".join(f"{line}\n" for line in lines)


def together(*pages: str) -> str:
    """One page of several: a family once, as a Prometheus client writes it."""
    families: dict[str, list[str]] = {}
    for page in pages:
        family = ""
        for line in page.splitlines():
            if line.startswith("# TYPE "):
                family = line
                families.setdefault(family, [])
            else:
                families[family].append(line)
    return "".join("\n".join([family, *lines]) + "\n" for family, lines in families.items())


def labelled(page: str, **labels: str) -> str:
    """The page as a Prometheus federates it: every series with these labels."""
    more = ",".join(f'{key}="{value}"' for key, value in labels.items())
    found = []
    for line in page.splitlines():
        name, brace, rest = line.partition("{")
        if line.startswith("#"):
            found.append(line)
        elif brace:
            found.append(f"{name}{{{more},{rest}")
        else:
            series, _, number = line.partition(" ")
            found.append(f"{series}{{{more}}} {number}")
    return "\n".join(found) + "\n"
