"""The messages of a move between `kvroll.v1` and `move.messages`; an incoming Prepare is checked against its digest here."""

from dataclasses import replace

from kvroll.v1 import common_pb2 as pb
from kvroll.v1 import session_pb2 as spb
from kvroll_core.compat import Verdict
from kvroll_core.words import VerdictKind
from kvroll_worker.move.manifest import chunk_crc, chunks, root_digest
from kvroll_worker.move.messages import Offer, OfferAnswer, Peer, Prepare, PrepareAnswer
from kvroll_worker.port import TokenizerPort
from kvroll_worker.wire.codec import (
    KIND_FROM_WIRE,
    KIND_TO_WIRE,
    descriptor_from_wire,
    descriptor_to_wire,
    epoch_from_wire,
    epoch_to_wire,
    state_to_wire,
    verdict_to_wire,
)
from kvroll_worker.wire.intake import BadRequestError, state_of_replay


def peer_to_wire(peer: Peer) -> pb.WorkerRef:
    return pb.WorkerRef(worker_id=peer.worker_id, instance_id=peer.instance_id, address=peer.address)


def peer_from_wire(message: pb.WorkerRef) -> Peer:
    return Peer(message.worker_id, message.instance_id, message.address)


def offer_to_wire(offer: Offer, target_instance_id: str) -> spb.OfferRequest:
    return spb.OfferRequest(
        migration_id=offer.migration_id,
        target_instance_id=target_instance_id,
        source=peer_to_wire(offer.source),
        descriptor=descriptor_to_wire(offer.descriptor),
        state=state_to_wire(offer.state),
        epoch=epoch_to_wire(offer.epoch),
        allowed=[KIND_TO_WIRE[kind] for kind in sorted(offer.allowed)],
        kv_across_weights=offer.kv_across_weights,
        page_hashes=offer.page_hashes,
        first_page=offer.first_page,
    )


def offer_from_wire(message: spb.OfferRequest, tokenizer: TokenizerPort, model: str) -> Offer:
    """An offer whose session this model can go on with.

    Raises:
        BadRequestError: it never can.
        StateFormatError: another version wrote its state.
    """
    return Offer(
        migration_id=message.migration_id,
        source=peer_from_wire(message.source),
        descriptor=descriptor_from_wire(message.descriptor),
        state=state_of_replay(message.state, tokenizer, model),
        epoch=epoch_from_wire(message.epoch),
        allowed=frozenset(KIND_FROM_WIRE[kind] for kind in message.allowed if kind in KIND_FROM_WIRE),
        kv_across_weights=message.kv_across_weights,
        page_hashes=tuple(message.page_hashes),
        first_page=message.first_page,
    )


def offer_answer_to_wire(answer: OfferAnswer) -> spb.OfferResponse:
    return spb.OfferResponse(
        verdict=verdict_to_wire(answer.verdict),
        reservation_generation=answer.generation,
        lease_seconds=answer.lease_seconds,
        wire_kv_format=answer.wire_kv_form,
        have_pages=answer.have_pages,
    )


def offer_answer_from_wire(message: spb.OfferResponse) -> OfferAnswer:
    """A verdict of a kind that this version does not know is a refusal."""
    kind = KIND_FROM_WIRE.get(message.verdict.kind, VerdictKind.REFUSE)
    return OfferAnswer(
        Verdict(kind, tuple(message.verdict.reasons), message.verdict.guarantee),
        message.reservation_generation,
        message.lease_seconds,
        message.wire_kv_format,
        tuple(message.have_pages),
    )


def signed(prepare: Prepare) -> Prepare:
    """With the digest that its target will compute."""
    state = state_to_wire(prepare.state)
    return replace(prepare, digest=root_digest(state, prepare.page_hashes, prepare.num_kv_tokens, prepare.first_page))


def prepare_to_wire(prepare: Prepare) -> spb.PrepareRequest:
    return spb.PrepareRequest(
        migration_id=prepare.migration_id,
        reservation_generation=prepare.generation,
        state=state_to_wire(prepare.state),
        page_hashes=prepare.page_hashes,
        root_digest=prepare.digest,
        epoch=epoch_to_wire(prepare.epoch),
        num_kv_tokens=prepare.num_kv_tokens,
        first_page=prepare.first_page,
    )


def prepare_from_wire(message: spb.PrepareRequest, tokenizer: TokenizerPort, model: str) -> Prepare:
    """What a source froze, its digest computed again over what arrived.

    Raises:
        BadRequestError: it was damaged on the way, or this model can never go on with it.
        StateFormatError: another version wrote its state.
    """
    hashes = tuple(message.page_hashes)
    digest = root_digest(message.state, hashes, message.num_kv_tokens, message.first_page)
    if digest != message.root_digest:
        raise BadRequestError(
            "the root digest does not match the state and the page hashes: they were damaged on the way"
        )
    return Prepare(
        migration_id=message.migration_id,
        generation=message.reservation_generation,
        epoch=epoch_from_wire(message.epoch),
        state=state_of_replay(message.state, tokenizer, model),
        page_hashes=hashes,
        first_page=message.first_page,
        num_kv_tokens=message.num_kv_tokens,
        digest=digest,
    )


def prepare_answer_to_wire(answer: PrepareAnswer) -> spb.PrepareResponse:
    return spb.PrepareResponse(root_digest=answer.digest, bad_pages=answer.bad_pages)


def prepare_answer_from_wire(message: spb.PrepareResponse) -> PrepareAnswer:
    return PrepareAnswer(message.root_digest, tuple(message.bad_pages))


def page_to_wire(index: int, valid_tokens: int, content_hash: bytes, data: bytes) -> list[spb.Page]:
    """The parts of a page, each with its checksum; one message without data where `data` is empty: the page is only named."""
    parts = chunks(data)
    return [
        spb.Page(
            page_index=index,
            valid_tokens=valid_tokens,
            content_hash=content_hash,
            data=chunk,
            crc32c=chunk_crc(chunk),
            part=part,
            num_parts=len(parts),
        )
        for part, chunk in enumerate(parts or [b""])
    ]
