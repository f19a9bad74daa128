"""One machine without Kubernetes: what stands behind `kvroll up`.

Rooms: `api` (the embedded API server: the part of the Kubernetes REST API that kvroll uses, over SQLite). `node` (the
agent, which makes Pods into processes and speaks to the server over HTTP alone), `up` (both, and the Pods of operator and
gateway, as a site).
Imports nothing of ours but kvroll_core: CRDs are handed in as objects. Only kvroll_cli and tests may import this package.
"""
