"""Tries a new revision's Pod on the API server before a plan leads to it: typos, quota and Pod Security are known beforehand."""

from dataclasses import dataclass, field, replace

from kvroll_operator.cluster import pods
from kvroll_operator.cluster.client import Api, ApiError, ApiProblem
from kvroll_operator.cluster.objects import Owner
from kvroll_operator.cluster.paths import Paths
from kvroll_operator.cluster.refusals import refusal_of
from kvroll_operator.rollout.act.effects import CreatePod
from kvroll_operator.rollout.facts.desired import Desired, SpecProblem
from kvroll_operator.rollout.facts.observed import Refusal, Revision

AGAIN_SECONDS = 60.0
_WHAT = "a worker Pod (dry run)"


@dataclass
class TemplateTrial:
    """Remembers what it was told of the newest content, so that an idle pool asks nothing."""

    api: Api
    paths: Paths
    _content: str = ""
    _refused: Refusal | None = None
    _asked_at: float = field(default=float("-inf"))

    async def of(self, desired: Desired, owner: Owner, known: bool, now: float) -> tuple[Desired, Refusal | None]:
        """The spec, without its content if no Pod can be made of it; and a refusal that may pass, as of a quota.

        A content that is `known` was tried when its revision was made.

        Raises:
            ApiError: the API server is away.
        """
        if not desired.content or desired.deleting:
            return desired, None
        effect = CreatePod(Revision("", "dryrun", "", "", 0, desired.content), 0, 0, 0)
        try:
            body = pods.worker_pod(owner, effect)
        except pods.TemplateError as error:
            return _without_content(desired, str(error)), None
        if known:
            return desired, None
        if self._content != desired.content or (self._refused and now - self._asked_at > AGAIN_SECONDS):
            self._refused = await self._ask(body, desired.content)
            self._content, self._asked_at = desired.content, now
        if self._refused is not None and self._refused.reason == "Invalid":
            return _without_content(desired, self._refused.message), None
        return desired, self._refused

    async def _ask(self, body: pods.Json, content: str) -> Refusal | None:
        try:
            await self.api.create(self.paths.pods(), body, dry_run=True)
        except ApiError as error:
            if error.is_down:
                raise
            # A name that is taken, or a namespace that goes, says nothing of the Pod.
            is_told = error.problem in (ApiProblem.INVALID, ApiProblem.FORBIDDEN)
            return refusal_of(error, _WHAT, content) if is_told else None
        return None


def _without_content(desired: Desired, why: str) -> Desired:
    message = f"no worker Pod can be made of spec.template, engine and resources: {why}"[:2000]
    return replace(desired, content="", problem=SpecProblem("TemplateInvalid", message))
