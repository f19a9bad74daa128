"""A session as its gateway sees it: the frame log, the ownership rules of docs/design.md §7, and the table that runs them.

All but `table` and `session` is pure: no clock, no event loop, no socket. May not import `routing` or `openai`; both import this.
"""
