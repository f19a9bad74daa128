"""The gateway: holds the client's stream, owns the session, and keeps both alive while workers come, go and hand over.

Rooms: `sessions` (pure: frame log, ownership; and the table that runs them), `routing` (which workers exist, who gets a session,
the stream to each), `openai` (HTTP and SSE), `main`.
Imports kvroll_core and kvroll.v1; only kvroll_cli (`kvroll serve`) may import the gateway.
"""
