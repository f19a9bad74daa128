"""`kvroll gate`: its verbs, scoring by a served model (`server`), and the table. Judging is `kvroll_core.gate`."""
