"""Makes the source that a spec names."""

from dataclasses import dataclass, field
from pathlib import Path

from kvroll_operator.api.gate import Gate, GateSource
from kvroll_operator.cluster.client import Api
from kvroll_operator.cluster.objects import Owner
from kvroll_operator.cluster.paths import Paths
from kvroll_operator.gate.builtin import BuiltinSource
from kvroll_operator.gate.dataset import DatasetReader
from kvroll_operator.gate.finding import GateSourceError
from kvroll_operator.gate.http import HttpSource
from kvroll_operator.gate.job import JobSource
from kvroll_operator.gate.kept import KeptBaseline
from kvroll_operator.gate.prometheus import PrometheusSource
from kvroll_operator.gate.runner import Progress
from kvroll_operator.gate.source import Source, Subject
from kvroll_operator.gate.web import Web
from kvroll_operator.rollout.act.effects import StartGate


@dataclass
class SourceOpener:
    """Of one pool."""

    api: Api
    owner: Owner
    paths: Paths
    dataset_folder: Path
    web: Web = field(default_factory=Web)

    def __call__(self, effect: StartGate, gate: Gate, progress: Progress) -> Source:
        """The source of that run.

        Raises:
            GateSourceError: the spec lacks what its source needs.
        """
        if gate.source is GateSource.BUILTIN:
            reader = DatasetReader(self.api, self.paths, self.web, self.dataset_folder)
            return BuiltinSource(gate, effect, reader, KeptBaseline(self.api, self.owner, self.paths), progress)
        if effect.candidate is None:
            raise GateSourceError(f"source {gate.source} keeps no baseline")
        subject = Subject(
            self.owner.name, self.paths.namespace, effect.plan, effect.point, effect.baseline, effect.candidate
        )
        match gate.source:
            case GateSource.JOB:
                return JobSource(gate, subject, self.api, self.owner, self.paths)
            case GateSource.HTTP:
                return HttpSource(gate, subject, self.web)
            case GateSource.PROMETHEUS:
                return PrometheusSource(gate, subject, self.web)

    async def close(self) -> None:
        """Ends what the sources share."""
        await self.web.close()
