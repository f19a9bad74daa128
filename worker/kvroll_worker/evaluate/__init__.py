"""What a precision costs in quality, measured through the cache that it writes itself.

Lives here: the pure metrics and the bar (`metrics`), the needle prompts (`needles`), the texts (`texts`), and the one module that runs an
engine (`forced`). Nothing here opens a port or a file. May import `engine` and kvroll_core; imported by `serve` and by the benches.
"""
