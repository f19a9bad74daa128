"""What both ends of a move need of the worker instance that they run in."""

from collections.abc import Callable, Iterable
from typing import Protocol, TypeVar

from kvroll.v1 import common_pb2 as pb
from kvroll_core.compat import Descriptor
from kvroll_worker.move.peers import Peers
from kvroll_worker.move.source.attempt import SourceMove
from kvroll_worker.own.effects import Effect
from kvroll_worker.own.ledger import Ledger
from kvroll_worker.port import EnginePort
from kvroll_worker.request import EngineStats

T = TypeVar("T")


class EffectsPort(Protocol):
    """Carries out what the ledger asks for."""

    def run(self, effects: Iterable[Effect]) -> None: ...
    async def ended(self, move: SourceMove) -> None: ...


class HostPort(Protocol):
    """The worker instance that a move leaves from or comes to; `kvroll_worker.serve.instance.host.WorkerHost` fulfils it."""

    ref: pb.WorkerRef
    ledger: Ledger
    peers: Peers
    descriptor: Descriptor

    @property
    def stats(self) -> EngineStats: ...

    @property
    def effects(self) -> EffectsPort: ...

    def now(self) -> float: ...
    def step_seconds(self) -> float: ...
    def move_bytes_per_second(self) -> float: ...
    def prefill_tokens_per_second(self) -> float: ...
    async def call(self, act: Callable[[EnginePort], T]) -> T: ...
    def closed(self) -> str | None: ...
    def count_arrived(self, num_bytes: int, num_bad_pages: int) -> None: ...
