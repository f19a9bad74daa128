"""One machine without Kubernetes: what stands behind `kvroll up`.

Rooms: `api` (the embedded API server: the part of the Kubernetes REST API that kvroll uses, over SQLite). The node agent, which makes Pods
into processes, lives beside it and speaks to it over HTTP alone.
Imports nothing of ours but kvroll_core: CRDs are handed in as objects. Only kvroll_cli and tests may import this package.
"""
