"""A cluster that we did not start: the user's KUBECONFIG, or kind."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

from kvroll_cluster.errors import ClusterError
from kvroll_cluster.layout import Layout

KIND_NAME = "kvroll"


def chosen_kubeconfig(environ: Mapping[str, str], layout: Layout) -> Path | None:
    """The kubeconfig of a cluster of the user's own; our own one, which `env` exports, does not count."""
    value = environ.get("KUBECONFIG", "")
    if not value or value == str(layout.kubeconfig):
        return None
    return Path(value)


def check_reachable(kubeconfig: Path, kubectl: str) -> None:
    """Raises: ClusterError when the cluster does not answer within 10 s."""
    command = [kubectl, "--kubeconfig", str(kubeconfig), "--request-timeout=10s", "get", "--raw", "/readyz"]
    done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    if done.returncode != 0:
        raise ClusterError(f"KUBECONFIG={kubeconfig} is set, but that cluster does not answer: {done.stderr.strip()}")


def kind_up(layout: Layout) -> Path:
    """Creates the kind cluster where it is absent and returns its kubeconfig.

    Raises: ClusterError without kind or when kind fails.
    """
    if shutil.which("kind") is None:
        raise ClusterError(
            "KVROLL_CLUSTER=kind: expected `kind` on PATH, found none; install it or unset KVROLL_CLUSTER"
        )
    if KIND_NAME not in _kind("get", "clusters").split():
        _kind("create", "cluster", "--name", KIND_NAME, "--kubeconfig", os.devnull)
    layout.state.mkdir(parents=True, exist_ok=True)
    path = kind_kubeconfig(layout)
    path.touch(mode=0o600)
    path.write_text(_kind("get", "kubeconfig", "--name", KIND_NAME))
    return path


def kind_down(layout: Layout) -> None:
    _kind("delete", "cluster", "--name", KIND_NAME)
    kind_kubeconfig(layout).unlink(missing_ok=True)


def kind_kubeconfig(layout: Layout) -> Path:
    return layout.state / "kind.kubeconfig"


def _kind(*arguments: str) -> str:
    done = subprocess.run(["kind", *arguments], capture_output=True, text=True, stdin=subprocess.DEVNULL)
    if done.returncode != 0:
        raise ClusterError(f"`kind {' '.join(arguments)}` failed: {done.stderr.strip()}")
    return done.stdout
