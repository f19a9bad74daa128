"""The custom resources of group kvroll.dev as pydantic models, and the CRDs generated from them.

No I/O but writing the generated files. The operator and the CLI may import it.
"""

GROUP = "kvroll.dev"
VERSION = "v1alpha1"
API_VERSION = f"{GROUP}/{VERSION}"
POOLS = "kvpools"
DRAINS = "kvdrains"
