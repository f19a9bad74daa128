"""A listening socket, bound before its address is told."""

import socket

from kvroll_cli.errors import CliError


def bound(host: str, port: int) -> socket.socket:
    """Listens on host:port; port 0 is a free one.

    Raises:
        CliError: the port is taken, or the host is not this machine's.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen()  # before its address is told: the first client may come at once
    except OSError as error:
        listener.close()
        raise CliError(f"cannot listen on {host}:{port}: {error.strerror}; choose another --port") from error
    return listener
