"""The HTTP face: paths, bodies, discovery, lists, watches, subresources. Says what was asked; `objects` says what it means.

The only room beside `server` that knows starlette and the event loop. Imported by `server` and tests.
"""
