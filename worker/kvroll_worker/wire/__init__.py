"""Between the messages of `kvroll.v1` and the worker's values.

Lives here: the codec, and the checks of what a gateway or another worker asks for. Pure: no gRPC, no event loop, no engine; all that is
decided here is what must not be read or can never be served. Imported by `move` and `serve`.
"""
