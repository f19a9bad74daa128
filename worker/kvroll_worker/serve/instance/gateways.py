"""The gateways that are attached, and what is said to them."""

from kvroll.v1 import inference_pb2 as ipb
from kvroll_worker.own.held import Held
from kvroll_worker.own.ledger import Ledger
from kvroll_worker.serve.instance.streams import GatewayStream
from kvroll_worker.serve.metrics import Metrics
from kvroll_worker.wire.codec import epoch_to_wire


class Gateways:
    """One stream a gateway; the ledger hears who is there, for the sessions of an absent gateway are orphans."""

    def __init__(self, ledger: Ledger, metrics: Metrics) -> None:
        self._ledger = ledger
        self._metrics = metrics
        self._streams: dict[str, GatewayStream] = {}

    def attach(self, stream: GatewayStream) -> None:
        """A gateway's stream is up; an older one of the same gateway ends."""
        older = self._streams.get(stream.gateway_id)
        if older is not None:
            older.close()
        self._streams[stream.gateway_id] = stream
        self._ledger.attached(stream.gateway_id)

    def detach(self, stream: GatewayStream, now: float) -> None:
        """The stream ended; does nothing if a newer one took its place."""
        stream.closed = True
        if self._streams.get(stream.gateway_id) is stream:
            del self._streams[stream.gateway_id]
            self._metrics.gateway_streams_ended.inc()
            self._ledger.detached(stream.gateway_id, now)

    def send(self, gateway_id: str, message: ipb.AttachResponse) -> None:
        """Sends if the gateway's stream is up; what matters is sent again after it comes back."""
        stream = self._streams.get(gateway_id)
        if stream is not None:
            stream.send(message)

    def send_all(self, message: ipb.AttachResponse) -> None:
        """Sends to every gateway that is attached."""
        for stream in self._streams.values():
            stream.send(message)

    def beat(self, heartbeat: ipb.Heartbeat) -> None:
        """Sends a heartbeat wherever nothing waits."""
        beat = ipb.AttachResponse(heartbeat=heartbeat)
        for stream in self._streams.values():
            stream.beat(beat)

    def tell_failed(self, held: Held, code: str, message: str) -> None:
        """Tells the session's gateway that it ended by an error."""
        failed = ipb.SessionFailed(
            session_id=held.session_id, epoch=epoch_to_wire(held.epoch), code=code, message=message
        )
        self.send(held.gateway_id, ipb.AttachResponse(session_failed=failed))

    def close(self) -> None:
        """Ends every stream after what is queued on it."""
        for stream in self._streams.values():
            stream.close()
