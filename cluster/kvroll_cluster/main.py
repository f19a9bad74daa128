"""The command line: up, down, status, env, build, host-mounts, load-image."""

from __future__ import annotations

import argparse
import json
import os
import shlex
import shutil
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import yaml

from kvroll_cluster import build, foreign, host_mounts, images, packages
from kvroll_cluster.errors import ClusterError
from kvroll_cluster.layout import Layout, checkout_folder, layout_from
from kvroll_cluster.processes import boot_id
from kvroll_cluster.startup import Startup
from kvroll_cluster.teardown import check_state_folder, running, tear_down

EXIT_DOWN = 3
PATIENCE_S = 30.0
PROXIES = ("http_proxy", "https_proxy", "all_proxy")


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command; 0 done, 1 failed with a message, 3 `status` of a cluster that is not healthy."""
    options = _parser().parse_args(arguments)
    try:
        return int(options.run(layout_from(os.environ), options))
    except ClusterError as error:
        print(f"kvroll_cluster: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("kvroll_cluster: interrupted", file=sys.stderr)
        return 130


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="kvroll_cluster", description="A two-node Kubernetes on this machine.")
    commands = parser.add_subparsers(required=True, metavar="command")
    for name, function, text in (
        ("up", up, "start it, or say that it runs"),
        ("down", down, "remove it and everything it made"),
        ("status", status, "list components and nodes; exit 3 when not healthy"),
        ("env", env, "print export lines for a shell"),
        ("build", build_only, "build the binaries into the cache and print their folder"),
    ):
        commands.add_parser(name, help=text, description=text).set_defaults(run=function)
    text = "print volumes and volumeMounts with which a Pod runs this machine's Python"
    mounts = commands.add_parser("host-mounts", help=text, description=text)
    mounts.add_argument("-o", "--output", choices=("yaml", "json"), default="yaml")
    mounts.add_argument("--venv", type=Path, help="virtual environment (default: the running one)")
    text = "one more folder, such as that of the models (repeatable)"
    mounts.add_argument("--also", type=Path, action="append", default=[], metavar="FOLDER", help=text)
    mounts.set_defaults(run=print_host_mounts)
    text = "import image archives (docker or OCI) into both nodes"
    load = commands.add_parser("load-image", help=text, description=text)
    load.add_argument("archive", type=Path, nargs="+")
    load.set_defaults(run=load_image)
    return parser


def binaries(layout: Layout) -> Path:
    return build.ensure_binaries(checkout_folder() / "cluster", layout.cache)


def tools_folder(layout: Layout) -> Path | None:
    """The folder of kubectl and helm for a cluster that is not ours; None when PATH has both, which saves the build."""
    return None if shutil.which("kubectl") and shutil.which("helm") else binaries(layout)


def up(layout: Layout, options: argparse.Namespace) -> int:
    """Starts the cluster, unless it is healthy already or another one is chosen."""
    kubeconfig = foreign.chosen_kubeconfig(os.environ, layout)
    if kubeconfig is not None:
        tools = tools_folder(layout)
        foreign.check_reachable(kubeconfig, str(tools / "kubectl") if tools else "kubectl")
        print(f"using the cluster of KUBECONFIG={kubeconfig}")
        return 0
    if os.environ.get("KVROLL_CLUSTER") == "kind":
        print(f"kind cluster {foreign.KIND_NAME} is up; kubeconfig: {foreign.kind_up(layout)}")
        return 0
    packages.ensure_packages()
    folder = binaries(layout)
    with build.locked(_lock_path(layout)):
        return _up_locked(layout, folder)


def _up_locked(layout: Layout, folder: Path) -> int:
    startup = Startup(layout, folder)
    if _claims_ready(layout):
        trouble = startup.trouble(wait_s=PATIENCE_S)
        if trouble is None:
            print(f"already up; kubeconfig: {layout.kubeconfig}")
            return 0
        print(f"not healthy: {trouble}; starting anew", flush=True)
    check_state_folder(layout)
    _remove(layout)
    started_s = time.monotonic()
    try:
        startup.run()
    except BaseException:
        # Half a cluster helps nobody; the logs stay.
        tear_down(layout)
        raise
    print(f"up in {time.monotonic() - started_s:.0f} s; kubeconfig: {layout.kubeconfig}")
    print('for a shell: eval "$(python -m kvroll_cluster env)"')
    return 0


def _claims_ready(layout: Layout) -> bool:
    try:
        ready = json.loads((layout.state / "ready.json").read_text())
    except (FileNotFoundError, ValueError):
        return False
    return bool(ready.get("boot_id") == boot_id())


def _remove(layout: Layout) -> None:
    left = tear_down(layout)
    if left:
        raise ClusterError("expected nothing to be left, found:\n  " + "\n  ".join(left))


def down(layout: Layout, options: argparse.Namespace) -> int:
    """Removes our cluster; one of the user's own is left alone."""
    if foreign.chosen_kubeconfig(os.environ, layout) is not None:
        print("KUBECONFIG names a cluster of your own; it is left alone")
        return 0
    if os.environ.get("KVROLL_CLUSTER") == "kind":
        foreign.kind_down(layout)
        return 0
    if os.geteuid() != 0:
        raise ClusterError("expected root, found another user; run the same command with sudo -E")
    with build.locked(_lock_path(layout)):
        check_state_folder(layout)
        _remove(layout)
    kept = f"; logs of the last run: {layout.logs}" if layout.logs.is_dir() else ""
    print(f"down{kept}")
    return 0


def _lock_path(layout: Layout) -> Path:
    return layout.state.with_name(layout.state.name + ".lock")


def status(layout: Layout, options: argparse.Namespace) -> int:
    """Prints every component with its pid, then the nodes."""
    if not _claims_ready(layout):
        stray = running(layout) if os.geteuid() == 0 else []
        note = f"; {len(stray)} processes of an earlier run are left, `up` and `down` remove them" if stray else ""
        print(f"down{note}")
        return EXIT_DOWN
    startup = Startup(layout, binaries(layout))
    for name, identity in startup.processes.records().items():
        word = "running" if identity.alive() else "DEAD"
        print(f"{name:24} {word:8} pid {identity.pid:<8} {layout.logs}/{name}.log")
    print(startup.kubectl("get", "nodes", "-o", "wide").stdout, end="")
    print(f"kubeconfig: {layout.kubeconfig}")
    trouble = startup.trouble()
    print("healthy" if trouble is None else f"not healthy: {trouble}")
    return EXIT_DOWN if trouble else 0


def env(layout: Layout, options: argparse.Namespace) -> int:
    """Prints export lines; the binaries' folder goes first on PATH."""
    kubeconfig = foreign.chosen_kubeconfig(os.environ, layout)
    if kubeconfig is None and os.environ.get("KVROLL_CLUSTER") == "kind":
        kubeconfig = foreign.kind_kubeconfig(layout)
    tools = tools_folder(layout) if kubeconfig is not None else binaries(layout)
    print(f"export KUBECONFIG={shlex.quote(str(kubeconfig or layout.kubeconfig))}")
    if tools is not None:
        print(f"export PATH={shlex.quote(str(tools))}:$PATH")
    if kubeconfig is None and any(os.environ.get(name) or os.environ.get(name.upper()) for name in PROXIES):
        direct = f"{layout.address},{layout.service_subnet},{layout.pod_supernet}"
        for name in ("no_proxy", "NO_PROXY"):
            print(f"export {name}={direct}${{{name}:+,${name}}}")
    return 0


def build_only(layout: Layout, options: argparse.Namespace) -> int:
    print(binaries(layout))
    return 0


def print_host_mounts(layout: Layout, options: argparse.Namespace) -> int:
    """Prints what a Pod's spec and container need, for Helm values and pod templates."""
    checkout = checkout_folder()
    venv = host_mounts.virtual_environment(checkout, options.venv)
    document = host_mounts.host_mounts(host_mounts.mounted_paths(checkout, venv, options.also))
    text = (
        json.dumps(document, indent=1) + "\n" if options.output == "json" else yaml.safe_dump(document, sort_keys=False)
    )
    print(text, end="")
    return 0


def load_image(layout: Layout, options: argparse.Namespace) -> int:
    """Imports archives into both nodes; Pods use them with imagePullPolicy Never."""
    for node in layout.nodes:
        images.import_archives(node, options.archive)
    return 0
