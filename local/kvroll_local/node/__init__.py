"""The node agent: makes the Pods of one API server into processes of this machine and user, as a kubelet makes them into containers.

Decisions are pure and stand apart from effects: `quantity`, `schedule`, `addresses`, `backoff`, `probe`, `identity`, `status`, `podspec`
touch no clock, process or socket; `container`, `logs`, `environment`, `machine`, `client`, `pod`, `agent` do. It speaks to the server
by HTTP alone. Imports nothing of kvroll's other rooms and nothing of `api` or `up`; `up` imports it.
"""
