"""The table: requests that kvroll, kopf and kubectl make, and what a Kubernetes API server answers.

Every scenario runs against the embedded server always, and against a real one where a cluster is up: an expectation that only one of them
meets fails. What is different on purpose is in `docs/local.md` and in `test_left_out.py`.
"""

from tests.local.conformance.patching import PATCHING
from tests.local.conformance.reading import READING
from tests.local.conformance.scenario import Step
from tests.local.conformance.writing import WRITING

SCENARIOS: dict[str, list[Step]] = {**WRITING, **PATCHING, **READING}
