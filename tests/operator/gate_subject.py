"""What the tests of gate sources measure, and how."""

from kvroll_operator.api.gate import Gate
from kvroll_operator.cluster.objects import Owner
from kvroll_operator.cluster.paths import Paths
from kvroll_operator.gate.finding import Finding
from kvroll_operator.gate.opener import SourceOpener
from kvroll_operator.rollout.act.effects import GateProbe, StartGate

PATHS, OWNER = Paths("ns"), Owner("chat", "pool-uid", "ns")
OLD = GateProbe("chat-a-0-0-0", "a", "u1/1", "10.0.0.1:7070")
NEW = GateProbe("chat-b-0-0-0", "b", "u2/1", "10.0.0.2:7070")
EFFECT = StartGate("plan1", "Canary", "", OLD, NEW, False)


async def measure(opener: SourceOpener, gate: Gate) -> Finding:
    source = opener(EFFECT, gate, lambda _: None)
    try:
        return await source.measure()
    finally:
        await source.close()
