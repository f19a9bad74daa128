"""Reads the metrics of engines over HTTP, again and again over a window; any vLLM, or a worker of ours."""

import time
from collections.abc import Callable, Sequence
from urllib.parse import urlsplit

import httpx
from prometheus_client.parser import text_string_to_metric_families

from kvroll_cli.errors import CliError
from kvroll_core.wall import Sample

_TIMEOUT_SECONDS = 5.0


def read_sample(text: str, at: float) -> Sample:
    """One scrape from Prometheus' text format.

    Raises:
        ValueError: it is not that format.
    """
    series: dict[str, dict[tuple[tuple[str, str], ...], float]] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            series.setdefault(sample.name, {})[tuple(sorted(sample.labels.items()))] = sample.value
    return Sample(at, series)


def watch(urls: Sequence[str], *, seconds: float, every: float) -> list[list[Sample]]:
    """Scrapes of each URL over that time, the first and the last `seconds` apart. A URL without a path, or of an API (`/v1`), means the
    metrics of that server: `/metrics`, or where that is not Prometheus' format `/prometheus/metrics`, as TensorRT-LLM has it.

    Raises:
        CliError: one does not answer, or not with metrics.
    """
    with httpx.Client(timeout=_TIMEOUT_SECONDS) as client:
        return look([_Page(client, url).scrape for url in urls], seconds=seconds, every=every)


def look(sources: Sequence[Callable[[], Sample]], *, seconds: float, every: float) -> list[list[Sample]]:
    """Samples of each source over that time, the first and the last `seconds` apart."""
    found = [[source()] for source in sources]
    start = time.monotonic()
    while (left := start + seconds - time.monotonic()) > 0:
        time.sleep(min(every, left))
        for source, samples in zip(sources, found, strict=True):
            samples.append(source())
    return found


class _Page:
    """The metrics of a server; at which of its addresses they are is found out at the first look."""

    def __init__(self, client: httpx.Client, url: str) -> None:
        self._client = client
        root = url.rstrip("/").removesuffix("/v1")
        whole = urlsplit(root).path not in ("", "/")
        self._addresses = [root] if whole else [f"{root}/metrics", f"{root}/prometheus/metrics"]

    def scrape(self) -> Sample:
        """One scrape.

        Raises:
            CliError: it does not answer, or not with metrics.
        """
        first: CliError | None = None
        for address in self._addresses:
            try:
                sample = self._scrape(address)
            except CliError as error:
                first = first or error
            else:
                self._addresses = [address]
                return sample
        assert first is not None
        raise first

    def _scrape(self, address: str) -> Sample:
        try:
            answer = self._client.get(address)
            answer.raise_for_status()
            return read_sample(answer.text, time.monotonic())
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise CliError(
                f"expected Prometheus metrics at {address}, found: {error}{_hint(address, error)}"
            ) from error
        except ValueError as error:
            raise CliError(f"expected Prometheus' text format at {address}, found: {error}") from error


def _hint(address: str, error: Exception) -> str:
    """Of a server that has no such page: the switch that brings it, where engines have one."""
    if not isinstance(error, httpx.HTTPStatusError) or error.response.status_code not in (404, 501):
        return ""
    root = f"{urlsplit(address).scheme}://{urlsplit(address).netloc}"
    return (
        f"; an engine's metrics are at {root}/metrics: SGLang has them with --enable-metrics, llama.cpp with --metrics,"
        f" TensorRT-LLM at {root}/prometheus/metrics with return_perf_metrics: true"
    )
