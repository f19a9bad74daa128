"""The agent's pure decisions: addresses, places, restarts, adoption, probes."""

from itertools import islice

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvroll_local.node.addresses import FIRST_POD, LAST_POD, allocate, server_address, subnets
from kvroll_local.node.backoff import FIRST_SECONDS, MAX_SECONDS, STABLE_SECONDS, RestartBackoff, restarts
from kvroll_local.node.identity import Identity, is_same
from kvroll_local.node.probe import Findings, PodProbe, ProbeError, parse
from kvroll_local.node.schedule import (
    DEVICE,
    Grant,
    NodeRoom,
    RoomRequest,
    expected_workers,
    place,
    request,
    threads_each,
)

# --- addresses -----------------------------------------------------------------------------------------------------------

SUBNET = "127.20.30"


@given(st.integers(0, 250), st.data())
def test_an_address_is_free_and_inside_the_subnet(num_taken: int, data: st.DataObject) -> None:
    hosts = [f"{SUBNET}.{host}" for host in range(FIRST_POD, LAST_POD + 1)]
    taken = set(data.draw(st.permutations(hosts))[:num_taken])
    last = data.draw(st.sampled_from(["", "127.9.9.77", *hosts]))
    found = allocate(SUBNET, taken, last)
    if len(taken) == len(hosts):
        assert found is None
    else:
        assert found in set(hosts) - taken
        assert found != server_address(SUBNET)


def test_an_address_that_was_just_given_back_comes_last() -> None:
    first = allocate(SUBNET, ())
    assert first is not None
    seen = []
    for _ in range(LAST_POD - FIRST_POD + 1):
        first = allocate(SUBNET, (), first)
        assert first is not None
        seen.append(first)
    assert len(set(seen)) == len(seen)


@given(st.text(max_size=40))
def test_subnets_are_loopback_and_the_same_for_the_same_folder(seed: str) -> None:
    found = list(islice(subnets(seed), 300))
    assert found == list(islice(subnets(seed), 300))
    assert len(set(found)) == 300
    assert all(16 <= int(s.split(".")[1]) < 240 and s.startswith("127.") for s in found)


# --- places --------------------------------------------------------------------------------------------------------------

requests = st.builds(RoomRequest, st.integers(0, 4000), st.integers(0, 64), st.integers(0, 3))
machines = st.builds(
    NodeRoom, st.integers(0, 8000), st.integers(0, 128), st.integers(0, 4).map(lambda n: tuple("0123"[:n]))
)


@given(machines, st.lists(requests, max_size=12), st.lists(st.integers(0, 11), max_size=12))
def test_no_order_of_placing_and_leaving_hands_out_more_than_there_is(
    machine: NodeRoom, asked: list[RoomRequest], leaving: list[int]
) -> None:
    held: list[Grant] = []
    for index, one in enumerate(asked):
        found = place(one, machine, held)
        fits = (
            sum(g.request.cpu_millis for g in held) + one.cpu_millis <= machine.cpu_millis
            and sum(g.request.memory_bytes for g in held) + one.memory_bytes <= machine.memory_bytes
            and sum(g.request.num_devices for g in held) + one.num_devices <= len(machine.devices)
        )
        assert isinstance(found, Grant) == fits
        if isinstance(found, Grant):
            held.append(found)
            assert len(found.devices) == one.num_devices
        given_out = [device for grant in held for device in grant.devices]
        assert len(given_out) == len(set(given_out))
        assert set(given_out) <= set(machine.devices)
        if index < len(leaving) and leaving[index] < len(held):
            held.pop(leaving[index])


def test_a_shortage_names_every_resource_and_the_figures() -> None:
    found = place(RoomRequest(3000, 5 << 30, 2, ("example.com/fpga",)), NodeRoom(2000, 4 << 30, ("0",)), [])
    assert found == (
        f"0/1 nodes are available: 1 Insufficient cpu, Insufficient memory, Insufficient {DEVICE}, Insufficient example.com/fpga. "
        "Asked: cpu 3000m, memory 5120Mi, devices 2; free here: cpu 2000m, memory 4096Mi, devices 1."
    )


def test_a_limit_without_a_request_is_the_request() -> None:
    spec = {
        "containers": [
            {"resources": {"limits": {"cpu": "2", "memory": "1Gi", DEVICE: 1}, "requests": {"cpu": "500m"}}},
            {"resources": {"limits": {"memory": "1Gi", "ephemeral-storage": "1Gi", "example.com/none": "0"}}},
            {},
        ]
    }
    assert request(spec) == RoomRequest(500, 2 << 30, 1, ())


@given(st.integers(1, 128), st.integers(0, 64))
def test_threads_of_all_workers_never_exceed_the_machine_unless_each_has_one(cpus: int, workers: int) -> None:
    each = threads_each(cpus * 1000, workers)
    assert each >= 1
    assert each == 1 or each * max(1, workers) <= cpus


def test_a_surge_counts_among_the_workers_that_will_run() -> None:
    plain, sized = (
        {"spec": {"replicas": 2}},
        {"spec": {"replicas": 4, "groups": {"size": 2}, "rollout": {"maxSurge": 0}}},
    )
    assert expected_workers([plain]) == 3
    assert expected_workers([plain, sized, {"spec": {}}]) == 3 + 4 + 2


# --- restarts ------------------------------------------------------------------------------------------------------------


@given(st.lists(st.floats(0, STABLE_SECONDS - 1), min_size=1, max_size=20))
def test_waits_double_up_to_the_bound_and_the_first_restart_does_not_wait(runs: list[float]) -> None:
    backoff, waits = RestartBackoff(), []
    for ran in runs:
        wait, backoff = backoff.ended(ran)
        waits.append(wait)
    expected = [0.0] + [min(FIRST_SECONDS * 2**n, MAX_SECONDS) for n in range(len(runs) - 1)]
    assert waits == expected


def test_a_long_run_earns_a_fresh_start() -> None:
    _, backoff = RestartBackoff(MAX_SECONDS).ended(STABLE_SECONDS)
    assert backoff.ended(1.0)[0] == FIRST_SECONDS


@pytest.mark.parametrize(
    ("policy", "code", "expected"),
    [("Always", 0, True), ("Always", 1, True), ("OnFailure", 0, False), ("OnFailure", 1, True), ("Never", 1, False)],
)
def test_the_restart_policy_decides(policy: str, code: int, expected: bool) -> None:
    assert restarts(policy, code) is expected


def test_an_unknown_restart_policy_is_refused() -> None:
    with pytest.raises(ValueError, match="Always, OnFailure or Never"):
        restarts("Sometimes", 1)


# --- adoption ------------------------------------------------------------------------------------------------------------


@given(st.integers(0, 3), st.integers(0, 3), st.sampled_from("RSDZXT"), st.booleans())
def test_only_the_very_process_is_adopted(kept_start: int, found_start: int, state: str, same_boot: bool) -> None:
    kept = Identity(42, kept_start, "boot-a")
    found = is_same(kept, "boot-a" if same_boot else "boot-b", (found_start, state))
    assert found == (same_boot and kept_start == found_start and state not in "ZX")


def test_a_pid_that_nobody_has_is_not_adopted() -> None:
    assert not is_same(Identity(42, 7, "boot"), "boot", None)


# --- probes --------------------------------------------------------------------------------------------------------------


def probe(**changes: int) -> PodProbe:
    spec = {"httpGet": {"path": "/x", "port": 1}, **changes}
    found = parse("readinessProbe", {"name": "c", "readinessProbe": spec}, "127.1.1.1")
    assert found is not None
    return found


@given(st.lists(st.booleans(), max_size=40), st.integers(1, 4), st.integers(1, 4), st.booleans())
def test_findings_turn_after_enough_answers_in_a_row_and_never_before(
    answers: list[bool], up: int, down: int, healthy: bool
) -> None:
    thresholds = probe(successThreshold=up, failureThreshold=down)
    findings = Findings(healthy)
    for index, answer in enumerate(answers):
        before, findings = findings, findings.after(answer, thresholds)
        needed = up if answer else down
        row = answers[max(0, index + 1 - needed) : index + 1]
        turned = len(row) == needed and set(row) == {answer}
        assert findings.healthy == (answer if turned else before.healthy)


def test_a_probe_has_a_kubelets_defaults_and_finds_ports_by_name() -> None:
    container = {
        "name": "engine",
        "ports": [{"name": "http", "containerPort": 7071}],
        "readinessProbe": {"httpGet": {"path": "readyz", "port": "http"}},
        "livenessProbe": {"tcpSocket": {"port": 9, "host": "127.0.0.1"}},
    }
    found = parse("readinessProbe", container, "127.1.1.1")
    assert found == PodProbe("127.1.1.1", 7071, "http://127.1.1.1:7071/readyz", (), 0.0, 10.0, 1.0, 1, 3)
    tcp = parse("livenessProbe", container, "127.1.1.1")
    assert tcp is not None
    assert (tcp.host, tcp.port, tcp.url) == ("127.0.0.1", 9, "")
    assert parse("startupProbe", container, "127.1.1.1") is None


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ({"exec": {"command": ["true"]}}, "expected httpGet or tcpSocket, found exec"),
        ({"grpc": {"port": 1}}, "found grpc"),
        ({"periodSeconds": 3}, "found none"),
        ({"httpGet": {"port": "nope"}}, "expected a port's number or name, found 'nope'"),
    ],
)
def test_a_probe_that_cannot_be_done_is_refused_by_name(spec: dict[str, object], said: str) -> None:
    with pytest.raises(ProbeError, match=said):
        parse("livenessProbe", {"name": "c", "livenessProbe": spec}, "127.1.1.1")
