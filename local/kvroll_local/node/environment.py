"""The environment of a container's process: a short list and the Pod's own variables, not whatever this shell happens to hold."""

from collections.abc import Mapping

LISTEN_HOST, THREADS = "KVROLL_LISTEN_HOST", "KVROLL_THREADS"
STATE_MARK, CONTAINER_MARK = "KVROLL_LOCAL_STATE", "KVROLL_LOCAL_CONTAINER"
"""Every process carries them: what was started here is found again even where nothing else was written down."""

_PASSED = (
    "PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "TZ", "TMPDIR", "XDG_CACHE_HOME", "KVROLL_CACHE", "LD_LIBRARY_PATH", "CUDA_HOME",
    "CUDA_PATH", "NUMBA_CACHE_DIR", "TRITON_CACHE_DIR", "SSL_CERT_FILE",
)  # fmt: skip
_PASSED_PREFIXES = ("LC_",)


def passed_on(environ: Mapping[str, str]) -> dict[str, str]:
    """The part of our own environment that a Pod gets."""
    return {name: text for name, text in environ.items() if name in _PASSED or name.startswith(_PASSED_PREFIXES)}


def of_process(
    environ: Mapping[str, str],
    own: Mapping[str, str],
    *,
    ip: str,
    threads: int,
    devices: tuple[str, ...],
    marks: Mapping[str, str],
) -> dict[str, str]:
    """All of it. A Pod that was given no device sees none; its own variables win over ours, the marks over all."""
    ours = {LISTEN_HOST: ip, THREADS: str(threads), "CUDA_VISIBLE_DEVICES": ",".join(devices)}
    return {**passed_on(environ), **ours, **own, **marks}
