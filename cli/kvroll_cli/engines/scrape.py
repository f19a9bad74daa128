"""Reads the metrics of engines over HTTP, again and again over a window; any vLLM, or a worker of ours."""

import time
from collections.abc import Callable, Sequence
from functools import partial
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
    """Scrapes of each URL over that time, the first and the last `seconds` apart; a URL without a path means its
    `/metrics`.

    Raises:
        CliError: one does not answer, or not with metrics.
    """
    with httpx.Client(timeout=_TIMEOUT_SECONDS) as client:
        return look([partial(_scrape, client, url) for url in urls], seconds=seconds, every=every)


def look(sources: Sequence[Callable[[], Sample]], *, seconds: float, every: float) -> list[list[Sample]]:
    """Samples of each source over that time, the first and the last `seconds` apart."""
    found = [[source()] for source in sources]
    start = time.monotonic()
    while (left := start + seconds - time.monotonic()) > 0:
        time.sleep(min(every, left))
        for source, samples in zip(sources, found, strict=True):
            samples.append(source())
    return found


def _scrape(client: httpx.Client, url: str) -> Sample:
    address = url if urlsplit(url).path not in ("", "/") else f"{url.rstrip('/')}/metrics"
    try:
        answer = client.get(address)
        answer.raise_for_status()
        return read_sample(answer.text, time.monotonic())
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise CliError(f"expected Prometheus metrics at {address}, found: {error}") from error
    except ValueError as error:
        raise CliError(f"expected Prometheus' text format at {address}, found: {error}") from error
