"""`python -m kvroll_local.api`: the embedded API server as a process of its own."""

import argparse
import asyncio
import logging
import signal
import sys
from pathlib import Path
from typing import Any

import yaml

from kvroll_local.api.access import Access, write_private
from kvroll_local.api.kinds.crd import CrdUnusable
from kvroll_local.api.schema.rules import RuleUnusable
from kvroll_local.api.server import ApiServer
from kvroll_local.api.store.database import StoreInUse, StoreUnreadable

_YAML = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m kvroll_local.api", description=__doc__)
    parser.add_argument(
        "--state",
        type=Path,
        required=True,
        metavar="DIR",
        help="the store, token and certificate; one server at a time",
    )
    parser.add_argument(
        "--crd", type=Path, nargs="+", required=True, metavar="FILE", help="CustomResourceDefinitions to serve"
    )
    parser.add_argument("--port", type=int, default=0, help="on 127.0.0.1; 0 takes a free one")
    parser.add_argument("--port-file", type=Path, metavar="FILE", help="gets the port once it serves")
    parser.add_argument("--kubeconfig", type=Path, metavar="FILE", help="gets a kubeconfig once it serves")
    parser.add_argument("--log-level", default="INFO", choices=["DEBUG", "INFO", "WARNING"])
    return parser.parse_args()


async def _serve(args: argparse.Namespace) -> None:
    crds: list[dict[str, Any]] = [crd for path in args.crd for crd in yaml.load_all(path.read_text(), _YAML) if crd]
    ended = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, ended.set)
    access = Access.load(args.state)
    async with ApiServer(args.state, crds, access, port=args.port) as server:
        if args.kubeconfig:
            access.write_kubeconfig(args.kubeconfig, server.url)
        if args.port_file:
            write_private(args.port_file, server.url.rpartition(":")[2].encode())
        await ended.wait()


def main() -> None:
    args = _arguments()
    logging.basicConfig(level=args.log_level, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    try:
        asyncio.run(_serve(args))
    except (StoreInUse, StoreUnreadable, CrdUnusable, RuleUnusable, OSError) as error:
        sys.exit(f"kvroll: {error}")


if __name__ == "__main__":
    main()
