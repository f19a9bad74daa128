"""The options of every gRPC channel and server of kvroll, in one place: who pings whom, how often, and how long messages may be.

A peer whose process stands still, or whose packets are dropped, says nothing at all. Both ends therefore ping while a call is open and
close the connection where no answer comes in `SILENT_SECONDS`; both must also permit the other's pings, or they are taken for abuse.
"""

SILENT_SECONDS = 10.0
"""A connection on which nothing is heard for so long is closed, by either end."""

MESSAGE_BYTES = 64 << 20
"""Of one message, in either direction: a Submit carries a whole prompt, TransferOwnership whole states."""

Options = list[tuple[str, int]]

_INITIAL_BACKOFF_MS = 200
_MAX_BACKOFF_MS = 2_000
_MIN_RECEIVED_PING_MS = 500


def client_options(silent_seconds: float = SILENT_SECONDS, message_bytes: int = MESSAGE_BYTES) -> Options:
    """For `grpc.aio.insecure_channel`.

    The channel has a subchannel pool of its own, so that another one's back-off is not waited out, and retries nothing by itself: whether a
    call may be made twice is known to its caller alone.
    """
    return [
        ("grpc.use_local_subchannel_pool", 1),
        ("grpc.enable_retries", 0),
        ("grpc.initial_reconnect_backoff_ms", _INITIAL_BACKOFF_MS),
        ("grpc.max_reconnect_backoff_ms", _MAX_BACKOFF_MS),
        *_both(silent_seconds, message_bytes),
    ]


def server_options(silent_seconds: float = SILENT_SECONDS, message_bytes: int = MESSAGE_BYTES) -> Options:
    """For `grpc.aio.server`. A port that is taken is refused instead of shared with who has it."""
    return [
        ("grpc.so_reuseport", 0),
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.http2.min_recv_ping_interval_without_data_ms", _MIN_RECEIVED_PING_MS),
        ("grpc.http2.max_ping_strikes", 0),
        *_both(silent_seconds, message_bytes),
    ]


def _both(silent_seconds: float, message_bytes: int) -> Options:
    """A ping after two fifths of the time, its answer within two fifths more: the last fifth is for the timers' coarseness.

    `ping_timeout_ms` bounds every ping, those of flow control too; without it their minute holds a broken connection open whatever
    `keepalive_timeout_ms` says.
    """
    part_ms = max(1, round(silent_seconds * 400))
    return [
        ("grpc.max_receive_message_length", message_bytes),
        ("grpc.max_send_message_length", message_bytes),
        ("grpc.keepalive_time_ms", part_ms),
        ("grpc.keepalive_timeout_ms", part_ms),
        ("grpc.http2.ping_timeout_ms", part_ms),
        ("grpc.http2.max_pings_without_data", 0),
    ]
