"""CEL rules of spec.gate."""

from kvroll_operator.api.rules import rule

BUILTIN_METRICS = ("top1Agreement", "klMean", "klP99", "pplRatio", "needleRecall", "taskScore")

_LISTED = ", ".join(f"'{name}'" for name in BUILTIN_METRICS)

UNIQUE_POINTS = rule("self.all(a, self.exists_one(b, a == b))", "gate.at must not name a point twice")
FIRST_POINT = rule(
    "self.exists(a, a == 'Canary' || a == 'EveryGroup')",
    "gate.at needs Canary or EveryGroup: Final alone would measure after every session has moved",
)
ONE_END = rule(
    "self.all(m, has(m.min) != has(m.max))",
    "each of gate.metrics needs either min or max: no quality threshold has a default",
)
SHARES = ("top1Agreement", "needleRecall", "taskScore")
_SHARE_NAMES = ", ".join(f"'{name}'" for name in SHARES)
_KNOWN_NAMES = ", ".join(f"'{name}'" for name in BUILTIN_METRICS)
SANE_BARS = rule(
    f"self.all(m, !(m.name in [{_KNOWN_NAMES}]) || ((!has(m.min) || m.min >= 0.0) && (!has(m.max) || m.max >= 0.0)"
    f" && (!(m.name in [{_SHARE_NAMES}]) || ((!has(m.min) || m.min <= 1.0) && (!has(m.max) || m.max <= 1.0)))))",
    "a bar of gate.metrics that no measurement can miss or hold: top1Agreement, needleRecall and taskScore are from 0 to 1, "
    "klMean, klP99 and pplRatio are not negative",
)
ONE_DATASET = rule("has(self.configMap) != has(self.uri)", "gate.dataset needs exactly one of configMap and uri")
DATASET_URI = rule(
    "self.startsWith('file:///') || self.startsWith('http://') || self.startsWith('https://')",
    "gate.dataset.uri must be http://, https:// or file:///<absolute path>",
)
HTTP_URL = rule("isURL(self) && url(self).getScheme() in ['http', 'https']", "must be an http:// or https:// address")
HEADER_NAME = rule("self.matches('^[A-Za-z0-9-]+$')", "a header's name is letters, digits and dashes")
HEADER_VALUE = rule("!self.matches('[\\\\r\\\\n]')", "a header's value is one line")

PARTS = (
    rule("(self.source == 'Job') == has(self.job)", "gate.job belongs to source Job, which needs it"),
    rule("(self.source == 'HTTP') == has(self.http)", "gate.http belongs to source HTTP, which needs it"),
    rule(
        "(self.source == 'Prometheus') == has(self.prometheus)",
        "gate.prometheus belongs to source Prometheus, which needs it",
    ),
    rule("!has(self.dataset) || self.source == 'Builtin'", "gate.dataset belongs to source Builtin"),
    rule(
        "self.source == 'Job' || (has(self.metrics) && size(self.metrics) > 0)",
        "gate.metrics needs a bar: no quality threshold has a default",
    ),
    rule(
        f"self.source != 'Builtin' || !has(self.metrics) || self.metrics.all(m, m.name in [{_LISTED}])",
        f"source Builtin measures {', '.join(BUILTIN_METRICS)}",
    ),
    rule(
        "!has(self.metrics) || self.metrics.all(m, has(m.query) == (self.source == 'Prometheus'))",
        "gate.metrics[].query belongs to source Prometheus, which needs it",
    ),
)
"""Rules of the whole gate."""
