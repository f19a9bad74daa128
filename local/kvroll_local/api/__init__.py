"""The embedded API server: one process on loopback that serves the part of the Kubernetes REST API which kvroll uses.

What a caller needs:

- `kvroll_local.api.access.Access.load(state)` makes or reads `DIR/token`, `DIR/api.crt` and `DIR/api.key` (all 0600) and writes the
  kubeconfig: `access.write_kubeconfig(path, url, namespace="default")`.
- `kvroll_local.api.server.ApiServer(state, crds, access, host="127.0.0.1", port=0)`: `await server.start()`, `server.url`,
  `await server.stop()`, or `async with`. It runs in the caller's event loop. `crds` are CustomResourceDefinition objects
  (`kvroll_operator.api.crds`); objects live in `DIR/api.db`, which one process at a time may open (`StoreInUse`).
- `python -m kvroll_local.api --state DIR --crd FILE... [--port N] [--port-file FILE] [--kubeconfig FILE]` is the same as a
  process of its own; `--port-file` is written once it serves, SIGTERM ends it.
- `kvroll_local.api.http.app.application(...)` is the bare ASGI application, without TLS and sockets.

What it leaves to the node agent, over HTTP like any client:

- A Pod is made `Pending` without a node. The agent binds it by `POST …/pods/NAME/binding` (`{"target": {"kind": "Node", "name": NODE}}`)
  or says why not in its status (`PodScheduled=False`, `Unschedulable`). Deleting an unbound or a finished Pod removes it at once;
  a bound one gets a deletionTimestamp, and the agent removes it with `DELETE …?gracePeriodSeconds=0` when its processes have ended.
- `pods/NAME/log` reads `DIR/pods/UID/CONTAINER.log` (`kvroll_local.api.pod_logs`), `pods/NAME:PORT/proxy/…` asks `http://PODIP:PORT/…`.

Rooms: `store` (objects and their history), `schema` (structural schemas and their CEL rules), `patches`, `kinds` (what is served),
`objects` (what a create, change or delete means), `views` (Tables, both forms of Events), all without HTTP; and `http`, `server`.
"""
