"""One run of the demo at a terminal: its back end, its screen, its report, and Ctrl-C."""

import asyncio
import json
import signal
import time
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

from rich.text import Text

from kvroll_cli.demo.backends.backend import Backend
from kvroll_cli.demo.screen import screen_of
from kvroll_cli.demo.story import Story
from kvroll_cli.terminal import console


def run(backend_name: str, report_path: Path) -> list[str] | None:
    """Plays the demo, writes the report, and returns what was wrong; None when it was ended by Ctrl-C.

    Raises:
        BackendError: something did not come up or did not complete.
    """
    out = console()
    started = time.monotonic()
    screen = screen_of(out)
    report_path.parent.mkdir(parents=True, exist_ok=True)  # before the minutes, not after them
    with screen:
        report = _interruptible(Story(backend_of(backend_name), screen).run())
        if report is None:
            return None
        report["seconds"] = round(time.monotonic() - started, 1)
        report_path.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
        screen.end(report)
    for fault in report["faults"]:
        out.print(Text(f"fault: {fault}", style="red"), soft_wrap=True)
    out.print(Text(f"report: {report_path}; {report['seconds']:.0f} s"), soft_wrap=True)
    return list(report["faults"])


def backend_of(name: str) -> Backend:
    """The back end of that name."""
    if name == "Kubernetes":
        from kvroll_cli.demo.backends.kubernetes import KubernetesBackend

        return KubernetesBackend("kvroll-demo")
    from kvroll_cli.demo.backends.embedded import EmbeddedBackend

    return EmbeddedBackend()


def _interruptible(running: Coroutine[Any, Any, dict[str, Any]]) -> dict[str, Any] | None:
    """The result; None when Ctrl-C or SIGTERM came first. Further ones do not cut the cleaning up short."""

    async def until_told() -> dict[str, Any] | None:
        loop = asyncio.get_running_loop()
        task = asyncio.ensure_future(running)
        told = False

        def end() -> None:
            nonlocal told
            if not told:
                told = True
                task.cancel()

        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, end)
        try:
            return await task
        except asyncio.CancelledError:
            return None

    return asyncio.run(until_told())
