"""A worker's report, as the facts that a price depends on. The operator gets it by gRPC, the command line as JSON."""

from dataclasses import fields

from kvroll.v1 import common_pb2, worker_pb2
from kvroll_core.budget import BudgetRequest, ModelShape
from kvroll_core.compat import Descriptor
from kvroll_core.precision.codec import read_described
from kvroll_core.price import SessionClass, WorkerFacts


def worker_facts(report: worker_pb2.GetReportResponse) -> WorkerFacts | None:
    """The facts; None of a worker that does not report its model's sizes."""
    if not report.HasField("model_size"):
        return None
    return WorkerFacts(
        descriptor=descriptor_of(report.descriptor),
        shape=_shape(report.model_size),
        asked=_asked(report),
        page_bytes=report.pages.page_bytes,
        pages_total=report.pages.total,
        pages_held=report.pages.total - report.pages.free,
        classes=tuple(_class(c) for c in report.lengths if c.sessions),
        step_seconds=report.rates.step_seconds,
        prefill_token_seconds=report.rates.prefill_token_seconds,
        prefill_context_tokens=report.rates.prefill_context_tokens,
        move_bytes_per_second=report.rates.move_bytes_per_second,
    )


def descriptor_of(found: common_pb2.Descriptor) -> Descriptor:
    """The descriptor of the wire, field by field."""
    return Descriptor(**{f.name: getattr(found, f.name) for f in fields(Descriptor)})


def _shape(size: worker_pb2.ModelSize) -> ModelShape:
    return ModelShape(
        layers=size.layers,
        hidden=size.hidden,
        heads=size.heads,
        kv_heads=size.kv_heads,
        head_dim=size.head_dim,
        intermediate=size.intermediate,
        vocab=size.vocab,
        tied_head=size.tied_head,
        max_positions=size.max_positions,
        windows=tuple(size.windows),
        sinks=size.sinks,
    )


def _asked(report: worker_pb2.GetReportResponse) -> BudgetRequest:
    memory = report.memory
    return BudgetRequest(
        read_described(report.descriptor),
        max_model_len=report.descriptor.max_model_len,
        max_sessions=report.max_sessions,
        max_batch_tokens=memory.max_batch_tokens,
        kv_memory_bytes=memory.kv_bytes or None,
        memory_limit_bytes=memory.limit_bytes or None,
        headroom_fraction=memory.headroom_fraction,
    )


def _class(found: worker_pb2.SessionClass) -> SessionClass:
    return SessionClass(
        sessions=found.sessions,
        tokens=found.tokens,
        max_remaining_tokens=found.max_remaining_tokens,
        pages=found.pages,
        reproducible=found.reproducible,
        moved=found.moved,
    )
