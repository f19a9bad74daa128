"""Metrics pages of engines that run: counters grow with each look, over real HTTP."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

Page = Callable[[int], str]


def vllm_page(
    look: int,
    *,
    running: float = 32.0,
    waiting: float = 0,
    kv_used: float = 0.4,
    read_bytes: float = 0,
    flops: float = 0,
) -> str:
    """What vLLM 0.32 shows on its nth look: its names, labels and `_total` endings."""
    label = 'engine="0",model_name="llama-3.1-8b"'
    lines = [
        "# HELP vllm:num_requests_running Number of requests in model execution batches.",
        "# TYPE vllm:num_requests_running gauge",
        f"vllm:num_requests_running{{{label}}} {running}",
        "# TYPE vllm:num_requests_waiting gauge",
        f"vllm:num_requests_waiting{{{label}}} {waiting}",
        "# TYPE vllm:num_requests_waiting_by_reason gauge",
        f'vllm:num_requests_waiting_by_reason{{{label},reason="capacity"}} {waiting}',
        f'vllm:num_requests_waiting_by_reason{{{label},reason="deferred"}} 0.0',
        "# TYPE vllm:kv_cache_usage_perc gauge",
        f"vllm:kv_cache_usage_perc{{{label}}} {kv_used}",
        "# TYPE vllm:cache_config_info gauge",
        'vllm:cache_config_info{block_size="16",cache_dtype="auto",engine="0",num_gpu_blocks="27000"} 1.0',
    ]
    counters = {
        "num_preemptions": 0,
        "prompt_tokens": 1000 * look,
        "generation_tokens": 3200 * look,
        "prefix_cache_queries": 1000 * look,
        "prefix_cache_hits": 250 * look,
        "estimated_read_bytes_per_gpu": read_bytes * look,
        "estimated_flops_per_gpu": flops * look,
    }
    for name, value in counters.items():
        lines += [f"# TYPE vllm:{name} counter", f"vllm:{name}_total{{{label}}} {float(value)}"]
    lines += ["# TYPE vllm:inter_token_latency_seconds histogram"]
    for edge, count in (("0.01", 10), ("0.02", 90), ("0.04", 100), ("+Inf", 100)):
        lines.append(f'vllm:inter_token_latency_seconds_bucket{{{label},le="{edge}"}} {float(count * look)}')
    lines.append(f"vllm:inter_token_latency_seconds_sum{{{label}}} {1.5 * look}")
    lines.append(f"vllm:inter_token_latency_seconds_count{{{label}}} {100.0 * look}")
    return "\n".join(lines) + "\n"


@contextmanager
def served(page: Page) -> Iterator[str]:
    """The base URL under which the page is at `/metrics`; it counts the looks from 1."""
    looks = [0]

    def answer(path: str) -> str | None:
        looks[0] += 1
        return page(looks[0]) if path == "/metrics" else None

    with answered(answer, "text/plain; version=0.0.4; charset=utf-8") as url:
        yield url


@contextmanager
def answered(answer: Callable[[str], str | None], content_type: str = "application/json") -> Iterator[str]:
    """The base URL of a server that answers each path with that; None is a 404."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            text = answer(self.path)
            body = (text or "").encode()
            self.send_response(404 if text is None else 200)
            self.send_header("Content-Type", content_type)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    thread.join()
    server.server_close()
