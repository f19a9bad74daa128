"""The small real model, fetched when it is absent."""

import asyncio
import sys
from pathlib import Path

from kvroll_cli.demo.backends.objects import BackendError

_MODULE = "kvroll_worker.models.smollm2"


async def ensure() -> Path:
    """The model's folder. The worker's own importer makes it, in a process of its own.

    Raises:
        BackendError: it could not be fetched; the message is the importer's.
    """
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", _MODULE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    try:
        out, err = await process.communicate()
    finally:
        if process.returncode is None:
            process.terminate()
            await process.wait()
    if process.returncode:
        raise BackendError(f"`python -m {_MODULE}` exited with {process.returncode}: {err.decode().strip()}")
    return Path(out.decode().splitlines()[-1])
