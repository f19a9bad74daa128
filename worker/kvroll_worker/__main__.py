"""`python -m kvroll_worker`."""

import sys

from kvroll_worker.main import main

sys.exit(main())
