"""One call: which resource it names, how its answer is wanted, what its body says."""

import json
import re
from dataclasses import dataclass, field
from typing import Any

import yaml
from starlette.requests import Request as HttpRequest

from kvroll_local.api.kinds.kind import Kind
from kvroll_local.api.objects.change import How, Request, Unknown
from kvroll_local.api.objects.refused import Json, Refused
from kvroll_local.api.objects.selectors import Selector, field_selector, label_selector
from kvroll_local.api.views import events

MAX_BODY_BYTES = 3 * 1024 * 1024
_YAML = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_TRUE = ("1", "true")
_ACCEPTED = ", ".join(how.value for how in How if "/" in how.value)
PATH = re.compile(
    r"/(?:api/(?P<core>v1)|apis/(?P<group>[^/]+)/(?P<version>[^/]+))"
    r"(?:/namespaces/(?P<namespace>[^/]+)(?=/(?!status$|finalize$)))?/(?P<plural>[^/]+)(?:/(?P<name>[^/]+)(?:/(?P<sub>[^/]+)(?:/(?P<rest>.*))?)?)?"
)


@dataclass(frozen=True)
class Call:
    """A request to one kind. `name` is empty for collections, `sub` for the object itself; `rest` follows a proxy."""

    http: HttpRequest
    kind: Kind
    namespace: str
    name: str
    sub: str
    rest: str
    warnings: list[str] = field(default_factory=list)

    @property
    def method(self) -> str:
        return self.http.method

    def query(self, name: str, default: str = "") -> str:
        return str(self.http.query_params.get(name, default))

    def flag(self, name: str) -> bool:
        return self.query(name) in _TRUE

    @property
    def wants_table(self) -> bool:
        return "as=Table" in self.http.headers.get("accept", "")

    def selector(self) -> Selector:
        """Whether an object, as this group shows it, is asked for."""
        labelled, fielded = (
            label_selector(self.query("labelSelector")),
            field_selector(self.query("fieldSelector"), ("metadata.name", "metadata.namespace", *self.kind.fields)),
        )

        def selects(o: Json) -> bool:
            return labelled(o) and fielded(events.shown(self.kind, o))

        return selects

    async def body(self) -> Any:
        """The body, JSON or YAML; None where there is none."""
        raw = await self.http.body()
        if len(raw) > MAX_BODY_BYTES:
            raise Refused(413, "RequestEntityTooLarge", f"expected at most {MAX_BODY_BYTES} bytes, found {len(raw)}")
        if not raw.strip():
            return None
        content = self.http.headers.get("content-type", "application/json").split(";")[0].strip()
        if content == "application/vnd.kubernetes.protobuf":
            raise Refused(
                415,
                "UnsupportedMediaType",
                "protobuf bodies are not read here; send JSON: kubectl apply -f and kubectl create -f do",
            )
        try:
            return yaml.load(raw, _YAML) if "yaml" in content else json.loads(raw)
        except (ValueError, yaml.YAMLError) as error:
            raise Refused(
                400, "BadRequest", f"the body of the request is not what {content} promises: {error}"
            ) from error

    async def object(self) -> Json:
        """The body, which must be an object, in the words in which it is stored."""
        body = await self.body()
        if not isinstance(body, dict):
            raise Refused(400, "BadRequest", f"expected an object as body, found {type(body).__name__}")
        return events.taken(self.kind, body)

    def request(self, how: How = How.UPDATE) -> Request:
        """How the body is meant."""
        try:
            unknown = Unknown(self.query("fieldValidation") or "Warn")
        except ValueError:
            raise Refused(
                400,
                "BadRequest",
                f"fieldValidation: expected Strict, Warn or Ignore, found {self.query('fieldValidation')!r}",
            ) from None
        return Request(
            how,
            subresource=self.sub if self.sub == "status" else "",
            manager=self.query("fieldManager"),
            force=self.flag("force"),
            dry_run=self.dry_run(),
            unknown=unknown,
            warnings=self.warnings,
        )

    def number(self, name: str) -> int | None:
        """A number of the query. Raises Refused where it is none."""
        text = self.query(name)
        if not text:
            return None
        if not text.isdecimal():
            raise Refused(400, "BadRequest", f"{name}: expected a number, found {text!r}")
        return int(text)

    def dry_run(self) -> bool:
        asked = self.query("dryRun")
        if asked not in ("", "All"):
            raise Refused(400, "BadRequest", f"dryRun: expected All, found {asked!r}")
        return asked == "All"

    def how(self) -> How:
        """The way of change that the method and the content type name."""
        if self.method == "PUT":
            return How.UPDATE
        content = self.http.headers.get("content-type", "").split(";")[0].strip()
        try:
            how = How(content)
        except ValueError:
            raise Refused(
                415,
                "UnsupportedMediaType",
                f"the body of the request was in an unknown format - accepted media types include: {_ACCEPTED}",
            ) from None
        if how is How.APPLY and not self.query("fieldManager"):
            raise Refused(
                422,
                "Invalid",
                'PatchOptions.meta.k8s.io "" is invalid: fieldManager: Required value: is required for apply patch',
            )
        return how
