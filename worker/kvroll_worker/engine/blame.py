"""Whose fault an exception is: one session's, which alone ends, or the engine's, whose state is then unknown.

There are two boundaries and no third. What is done for one session alone (logprobs, penalties, sampling, text, probes) runs in
`for_session`; whatever it raises ends that session. What is done for all of them (kernels, pages, slots) runs in `for_engine`, or outside
both: whatever it raises is an `EngineFault`, which passes through `for_session` too.
"""

import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

import structlog

from kvroll_worker.errors import EngineFault
from kvroll_worker.request import FailureCode, SessionFailure, SessionFault

T = TypeVar("T")
_log = structlog.get_logger("kvroll.worker.engine")


def for_session(session_id: str, act: Callable[[], T]) -> T | SessionFailure:
    """The result of `act`, or the failure of the session that it was done for."""
    try:
        return act()
    except EngineFault:
        raise
    except SessionFault as fault:
        return SessionFailure(session_id, fault.code, str(fault))
    except Exception as error:
        text = f"{type(error).__name__}: {error}"
        _log.error("a session failed", session=session_id, error=text, traceback=traceback.format_exc())
        return SessionFailure(session_id, FailureCode.SESSION_ERROR, f"the session alone failed and was freed: {text}")


@contextmanager
def for_engine(doing: str) -> Iterator[None]:
    """Turns whatever is raised inside into an EngineFault that says what was being done."""
    try:
        yield
    except EngineFault:
        raise
    except Exception as error:
        raise EngineFault(f"{doing}: {type(error).__name__}: {error}; the engine's state is unknown") from error
