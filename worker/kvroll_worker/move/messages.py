"""What the two ends of a move say to each other, as plain values; `move.codec` has their form on the wire."""

from dataclasses import dataclass

from kvroll_core.compat import Descriptor, Verdict
from kvroll_core.epoch import Epoch
from kvroll_core.words import VerdictKind
from kvroll_worker.request import SessionState


@dataclass(frozen=True)
class Peer:
    """Another worker, as TransferOwnership and calls between workers name it; a restart is another instance."""

    worker_id: str
    instance_id: str
    address: str


@dataclass(frozen=True)
class Offer:
    """What a source would send. `page_hashes` are of pages that will not change, in the target's format, from `first_page` on."""

    migration_id: str
    source: Peer
    descriptor: Descriptor
    state: SessionState
    epoch: Epoch
    allowed: frozenset[VerdictKind]
    kv_across_weights: bool
    page_hashes: tuple[bytes, ...]
    first_page: int


@dataclass(frozen=True)
class OfferAnswer:
    """The target's verdict; unless it is Refuse, the reservation's generation, which every later message names."""

    verdict: Verdict
    generation: int = 0
    lease_seconds: float = 0.0
    wire_kv_form: str = ""
    have_pages: tuple[int, ...] = ()

    @classmethod
    def refused(cls, reason: str) -> "OfferAnswer":
        """No, for a reason that is no difference of descriptors."""
        return cls(Verdict(VerdictKind.REFUSE, (reason,), "none"))


@dataclass(frozen=True)
class Prepare:
    """The session as it was frozen; `digest` is over the state and the hashes of all its pages (`move.manifest`)."""

    migration_id: str
    generation: int
    epoch: Epoch
    state: SessionState
    page_hashes: tuple[bytes, ...]
    first_page: int
    num_kv_tokens: int
    digest: bytes = b""


@dataclass(frozen=True)
class PrepareAnswer:
    """The digest of what is complete and verified at the target, or the pages that are not there."""

    digest: bytes = b""
    bad_pages: tuple[int, ...] = ()
