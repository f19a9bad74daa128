"""The one place that picks an implementation of `Ops` by its word; nothing is imported before it is asked for."""

from importlib import import_module, util

from kvroll_kernels.errors import KernelsUnavailableError
from kvroll_kernels.ops import Ops

IMPLEMENTATIONS = ("native", "reference", "triton")


def load(name: str) -> Ops:
    """The implementation of that word: `native` (C++), `reference` (torch, slow, the oracle) or `triton`.

    Raises:
        KernelsUnavailableError: it is not built here, or not part of this version yet.
        ValueError: the word is unknown.
    """
    if name == "reference":
        if util.find_spec("torch") is None:
            raise KernelsUnavailableError(
                "kernels 'reference' need torch, which is not installed; install kvroll[reference]"
            )
        return _construct("kvroll_kernels.reference.ops", "ReferenceOps")
    if name == "native":
        if not native_is_built():
            raise KernelsUnavailableError(
                "kernels 'native' need the extension module kvroll_kernels._native, which is not installed here; "
                "build it with `make setup` (or `pip install -e .` in the checkout), or use 'reference'"
            )
        return _construct("kvroll_kernels.native.ops", "NativeOps")
    if name == "triton":
        raise KernelsUnavailableError("kernels 'triton' are not part of this version yet; use 'native' or 'reference'")
    raise ValueError(f"kernels {name!r} are unknown; use one of {', '.join(IMPLEMENTATIONS)}")


def native_is_built() -> bool:
    """Whether the extension module is installed (it is not imported)."""
    return util.find_spec("kvroll_kernels._native") is not None


def _construct(module: str, cls: str) -> Ops:
    ops: Ops = getattr(import_module(module), cls)()
    return ops
