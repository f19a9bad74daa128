"""`python -m kvroll_worker`."""

import os
import signal

# PID 1 of a container ignores SIGTERM until a handler is set; before there is anything to finish, leaving at once is the orderly way.
signal.signal(signal.SIGTERM, lambda *_: os._exit(128 + signal.SIGTERM))

import sys  # noqa: E402

from kvroll_worker.main import main  # noqa: E402

if __name__ == "__main__":
    sys.exit(main())
