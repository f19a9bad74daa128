"""`kvroll advise`: its arguments, and reading a trace of requests. What pays is decided in `kvroll_core.advise`."""
