"""The cluster's part of the host's network: an address on lo, a bridge a node, kube-proxy's nftables."""

from __future__ import annotations

import json
import subprocess
from contextlib import suppress
from pathlib import Path

from kvroll_cluster.errors import ClusterError
from kvroll_cluster.layout import Layout
from kvroll_cluster.packages import search_path
from kvroll_cluster.processes import Processes

PROXY_TABLES = (("ip", "kube-proxy"), ("ip6", "kube-proxy"))
# What forwarding between the bridges needs; the second is absent where br_netfilter is not loaded.
SYSCTLS = {"net/ipv4/ip_forward": "1", "net/bridge/bridge-nf-call-iptables": "1"}
FORWARD_COMMENT = "kvroll-cluster"


class Network:
    """Sets the network up and takes it down; both may be repeated."""

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self._processes = Processes(layout)
        self._saved = layout.state / "sysctls.json"

    def up(self) -> None:
        """Adds the namespace (not for index 0), the address, the route to Services, the bridges and forwarding."""
        layout = self.layout
        if layout.netns is not None and not Path(f"/run/netns/{layout.netns}").exists():
            self._host("ip", "netns", "add", layout.netns)
        self._run("ip", "link", "set", "lo", "up")
        self._run("ip", "address", "replace", f"{layout.address}/32", "dev", "lo")
        # Without a default route the host could not even begin to reach a Service address.
        self._run("ip", "route", "replace", layout.service_subnet, "dev", "lo", "src", layout.address)
        for node in layout.nodes:
            gateway = node.pod_subnet.replace(".0/24", ".1/24")
            if not self._succeeds("ip", "link", "show", node.bridge):
                self._run("ip", "link", "add", node.bridge, "type", "bridge")
            self._run("ip", "address", "replace", gateway, "dev", node.bridge)
            self._run("ip", "link", "set", node.bridge, "up")
        self._set_sysctls()
        self._allow_forwarding()

    def down(self) -> None:
        """Removes all of it and gives the sysctls their earlier values back."""
        netns = self.layout.netns
        if netns is None:
            self.clear()
        elif Path(f"/run/netns/{netns}").exists():
            self.clear()
            self._host("ip", "netns", "delete", netns)

    def clear(self) -> None:
        """Removes what lies inside the cluster's network namespace, the host's own for index 0."""
        layout = self.layout
        for rule in self._forward_rules():
            while self._succeeds("iptables", "-w", "-D", "FORWARD", *rule):
                pass
        for family, table in PROXY_TABLES:
            self._succeeds("nft", "delete", "table", family, table)
        for bridge in self.bridges():
            self._succeeds("ip", "link", "delete", bridge)
        self._succeeds("ip", "route", "delete", layout.service_subnet, "dev", "lo")
        self._succeeds("ip", "address", "delete", f"{layout.address}/32", "dev", "lo")
        self._restore_sysctls()

    def bridges(self) -> list[str]:
        """The node bridges that exist."""
        return [node.bridge for node in self.layout.nodes if self._succeeds("ip", "link", "show", node.bridge)]

    def leftovers(self) -> list[str]:
        """What `down` should have removed and is there, in words."""
        layout = self.layout
        if layout.netns is not None:
            return [f"network namespace {layout.netns}"] if Path(f"/run/netns/{layout.netns}").exists() else []
        return self.leftovers_inside()

    def leftovers_inside(self) -> list[str]:
        """What `clear` should have removed and is there, in words."""
        layout = self.layout
        found = [f"bridge {name}" for name in self.bridges()]
        if layout.address in self._output("ip", "-4", "address", "show", "dev", "lo"):
            found.append(f"address {layout.address} on lo")
        tables = self._output("nft", "list", "tables")
        return found + [f"nft table {f} {t}" for f, t in PROXY_TABLES if f"table {f} {t}" in tables.splitlines()]

    def _set_sysctls(self) -> None:
        before = {}
        for name, value in SYSCTLS.items():
            path = f"/proc/sys/{name}"
            old = self._output("cat", path).strip()
            if old and old != value:
                before[name] = old
                self._run("sh", "-c", f"echo {value} > {path}")
        if not self._saved.exists():
            self._saved.write_text(json.dumps(before))

    def _restore_sysctls(self) -> None:
        with suppress(FileNotFoundError, ValueError):
            for name, value in json.loads(self._saved.read_text()).items():
                self._succeeds("sh", "-c", f"echo {int(value)} > /proc/sys/{name}")
        self._saved.unlink(missing_ok=True)

    def _forward_rules(self) -> list[list[str]]:
        tail = ["-m", "comment", "--comment", FORWARD_COMMENT, "-j", "ACCEPT"]
        return [[option, self.layout.pod_supernet, *tail] for option in ("-s", "-d")]

    def _allow_forwarding(self) -> None:
        """Docker sets the FORWARD policy to DROP, which would cut Pods off from each other."""
        if "-P FORWARD DROP" not in self._output("iptables", "-w", "-S", "FORWARD"):
            return
        for rule in self._forward_rules():
            self._run("iptables", "-w", "-I", "FORWARD", *rule)

    def _run(self, *command: str) -> None:
        self._host(*self._processes.in_network(command))

    def _host(self, *command: str) -> None:
        done = self._call(list(command))
        if done.returncode != 0:
            raise ClusterError(f"`{' '.join(command)}` failed: {done.stderr.strip()}")

    def _succeeds(self, *command: str) -> bool:
        return self._call(self._processes.in_network(command)).returncode == 0

    def _output(self, *command: str) -> str:
        return self._call(self._processes.in_network(command)).stdout

    def _call(self, command: list[str]) -> subprocess.CompletedProcess[str]:
        try:
            return subprocess.run(
                command, capture_output=True, text=True, env={"PATH": search_path()}, stdin=subprocess.DEVNULL
            )
        except FileNotFoundError as error:
            return subprocess.CompletedProcess(command, 127, "", str(error))
