"""Lets `python -m kvroll_cluster` start the launcher."""

from kvroll_cluster.main import main

raise SystemExit(main())
