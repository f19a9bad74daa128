"""Source Job: a Job of the user's measures; its exit code, or the figures in its termination message, are the answer."""

import asyncio
import hashlib
import json
from typing import Any

from kvroll_core.gate import GateVerdict
from kvroll_operator.api.gate import Gate
from kvroll_operator.api.names import LABEL
from kvroll_operator.cluster.client import Api, ApiError, Json
from kvroll_operator.cluster.objects import Owner
from kvroll_operator.cluster.paths import Paths
from kvroll_operator.gate.finding import Finding, GateSourceError
from kvroll_operator.gate.http import judge_answer
from kvroll_operator.gate.source import Subject, addresses

PAUSE_SECONDS = 5.0
LOOK_SECONDS = 2.0
MOST_FAILURES = 10
"""Looks at a running Job that may fail one after the other: an hour's work is not given up for a restart of the API server."""
KEPT_SECONDS = 3600
"""A Job that ended stays this long for its logs, unless its template says otherwise."""
_CODES = {0: GateVerdict.PASS, 1: GateVerdict.FAIL}


class JobSource:
    """One Job a measurement, named after what it measures: a restarted operator finds it again."""

    pause_seconds = PAUSE_SECONDS

    def __init__(self, gate: Gate, subject: Subject, api: Api, owner: Owner, paths: Paths) -> None:
        if gate.job is None:
            raise GateSourceError("expected spec.gate.job for source Job, found none")
        self._gate = gate
        self._template = gate.job.template
        self._subject = subject
        self._api, self._owner, self._paths = api, owner, paths
        self._attempt = 0
        self._running = ""

    async def measure(self) -> Finding:
        """Runs one Job to its end.

        Raises:
            GateSourceError: it could not be made, or ended without an exit code.
        """
        self._attempt += 1
        body = job(self._owner, self._gate, self._subject, self._attempt)
        name = body["metadata"]["name"]
        try:
            await self._create(name, body)
            self._running = name
            await self._until_over(name)
            pods = await self._api.list(self._paths.pods(), f"batch.kubernetes.io/job-name={name}")
        except ApiError as error:
            await self.close()
            raise GateSourceError(f"Job {name}: {error}") from error
        self._running = ""
        return self._judge(name, _ended(pods, _main_container(self._template)))

    async def close(self) -> None:
        """A Job that nobody waits for is suspended, which ends its Pods."""
        if self._running:
            name, self._running = self._running, ""
            try:
                await self._api.patch(self._paths.jobs(name), {"spec": {"suspend": True}})
            except ApiError:
                return  # its activeDeadlineSeconds ends it

    async def _create(self, name: str, body: Json) -> None:
        try:
            await self._api.create(self._paths.jobs(), body)
        except ApiError as error:
            if error.status != 409:
                raise
            found = await self._api.get(self._paths.jobs(name))
            if not any(o.get("uid") == self._owner.uid for o in found["metadata"].get("ownerReferences", [])):
                raise GateSourceError(f"Job {name} exists and is not this pool's: delete it") from error

    async def _until_over(self, name: str) -> None:
        failures = 0
        while True:
            try:
                status = (await self._api.get(self._paths.jobs(name))).get("status", {})
                failures = 0
            except ApiError:
                failures += 1
                if failures >= MOST_FAILURES:
                    raise
                status = {}
            if any(c["type"] in ("Complete", "Failed") and c["status"] == "True" for c in status.get("conditions", [])):
                return
            await asyncio.sleep(LOOK_SECONDS)

    def _judge(self, name: str, ended: Json | None) -> Finding:
        if ended is None:
            raise GateSourceError(f"Job {name} ended without an exit code: its Pod was evicted, late or never started")
        code, message = int(ended["exitCode"]), str(ended.get("message") or "").strip()
        evidence = {"job": name, "exitCode": code}
        if code not in _CODES:
            raise GateSourceError(f"Job {name}: exit code {code}: {message[-200:]}")
        if not self._gate.metrics:
            samples = _samples(message)
            if code == 0 and self._gate.min_samples is not None and samples < self._gate.min_samples:
                reason = f"Job {name}: expected at least {self._gate.min_samples} samples, found {samples}"
                return Finding(GateVerdict.INCONCLUSIVE, reason, samples, evidence)
            return Finding(_CODES[code], f"Job {name}: exit code {code}", samples, evidence)
        found = judge_answer(self._gate, _json(message), f"termination message of Job {name}")
        if code == 1 and found.verdict is not GateVerdict.FAIL:
            return Finding(GateVerdict.FAIL, f"Job {name}: exit code 1", found.samples, {**found.evidence, **evidence})
        return Finding(found.verdict, found.reason, found.samples, {**found.evidence, **evidence})


def job(owner: Owner, gate: Gate, subject: Subject, attempt: int) -> Json:
    """The Job of a measurement: the template, never retried by Kubernetes, with the subject in every container's environment."""
    spec: Json = json.loads(json.dumps(gate.job.template if gate.job else {}))
    spec["backoffLimit"] = 0
    spec.setdefault("activeDeadlineSeconds", gate.timeout_seconds)
    spec.setdefault("ttlSecondsAfterFinished", KEPT_SECONDS)
    pod = spec.setdefault("template", {}).setdefault("spec", {})
    pod["restartPolicy"] = "Never"
    env = environment(subject)
    for container in [*pod.get("initContainers", []), *pod.get("containers", [])]:
        container["env"] = [*container.get("env", []), *env]
    asked = (subject.rollout, subject.point, subject.candidate.instance_id, gate.hash, str(attempt))
    name = f"{owner.name}-gate-{hashlib.sha256(' '.join(asked).encode()).hexdigest()[:10]}"
    labels = {f"{LABEL}gate": subject.point, f"{LABEL}rollout": subject.rollout}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": owner.metadata(name, labels), "spec": spec}


def environment(subject: Subject) -> list[Json]:
    """What a Job is told; the baseline's variables are empty where no old worker is left."""
    env = {f"KVROLL_{word.upper()}": value for word, value in subject.words().items()}
    for role, probe in (("BASELINE", subject.baseline), ("CANDIDATE", subject.candidate)):
        found = addresses(probe) if probe else {}
        env |= {f"KVROLL_{role}_{kind.upper()}": found.get(kind, "") for kind in ("worker", "grpc", "http")}
    return [{"name": name, "value": value} for name, value in env.items()]


def _main_container(template: Json) -> str:
    containers: list[Json] = template.get("template", {}).get("spec", {}).get("containers", [])
    return str(containers[0].get("name", "")) if containers else ""


def _ended(pods: list[Json], container: str) -> Json | None:
    """How the first container of the Job's newest Pod ended."""
    for pod in sorted(pods, key=lambda p: str(p["metadata"].get("creationTimestamp", "")), reverse=True):
        for status in pod.get("status", {}).get("containerStatuses", []):
            ended: Json | None = status.get("state", {}).get("terminated")
            if status.get("name") == container and ended is not None:
                return ended
    return None


def _json(message: str) -> Any:
    try:
        return json.loads(message)
    except ValueError:
        return None


def _samples(message: str) -> int:
    found = _json(message)
    samples = found.get("samples", 0) if isinstance(found, dict) else 0
    return samples if isinstance(samples, int) and not isinstance(samples, bool) else 0
