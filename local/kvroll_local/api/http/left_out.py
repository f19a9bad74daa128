"""What of the Kubernetes API is not served, and the words that say so."""

from kvroll_local.api.kinds.catalog import Catalog
from kvroll_local.api.objects.refused import Refused

_WHY = {
    "jobs": "a gate with source Job needs a cluster; use source Builtin, HTTP or Prometheus here",
    "cronjobs": "jobs need a cluster",
    "persistentvolumeclaims": "there are no volumes here; name a model by file://",
    "persistentvolumes": "there are no volumes here; name a model by file://",
    "secrets": "there are no mounted secrets here; processes get the environment of their Pod alone",
    "nodes": "there is one machine, this one",
    "customresourcedefinitions": "the CRDs are those that the server was started with",
    "deployments": "there are no controllers of Pods here besides kvroll's operator",
    "statefulsets": "there are no controllers of Pods here besides kvroll's operator",
    "daemonsets": "there are no controllers of Pods here besides kvroll's operator",
    "replicasets": "there are no controllers of Pods here besides kvroll's operator",
    "leases": "one process owns a state folder, so nothing is elected here",
    "horizontalpodautoscalers": "nothing measures Pods here; use kubectl scale",
    "networkpolicies": "everything is on loopback",
    "serviceaccounts": "who has the token may do everything",
    "selfsubjectaccessreviews": "who has the token may do everything",
}


def not_served(catalog: Catalog, group: str, version: str, plural: str) -> Refused:
    """404 as in Kubernetes, so that clients find the kind absent; the words say what would serve it."""
    name = f"{plural}.{group}" if group else plural
    why = _WHY.get(plural, "run kvroll on a Kubernetes cluster for that")
    served = ", ".join(sorted({kind.qualified for kind in catalog}))
    refusal = f"kvroll's embedded API server does not serve {name} ({version}): {why}. It serves {served}"
    what = f"the server could not find the requested resource: {refusal}"
    return Refused(404, "NotFound", what, {"kind": plural} | ({"group": group} if group else {}))
