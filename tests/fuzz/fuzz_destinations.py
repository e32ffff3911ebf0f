"""An Airbyte destination for the planner fuzz, which gives states back in its own way.

Real: ``PushDelivery``, what an ack covers, the states as they are sent and the matching of what
comes back. Twins: the task that feeds it and its process. It keeps what it was sent in memory until
it gives a state back, as buffering destinations do, and loses that when it dies. Neighbour:
``fuzz_world``.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from penstock.config.pipeline import Destination as Section
from penstock.engine.plan.destination_endpoint import DestinationEndpoint
from penstock.engine.specs.feeder import AckedSegments, FeedOrder, PushEnd, PushResult
from penstock.engine.worker.ack_tracker import FedSegments
from penstock.errors import DestinationError, PenstockError
from penstock.model.catalog import DestinationSyncMode, StreamId
from penstock.model.segments import Segment
from penstock.model.state import StoredState
from penstock.protocols import load as load_protocol
from penstock.protocols.airbyte import outgoing
from penstock.protocols.airbyte.destination_output import DestinationOutput
from penstock.protocols.airbyte.state_echoes import PendingStates
from penstock.protocols.writing import Ack, WriteStream
from penstock.runtimes.contract import RunTimeouts
from penstock.tables.contract import SessionNeeds

ECHOES = ("each", "newest", "every_third")
FORMS = ("whole", "bare", "reordered", "no_id", "no_stats")


@dataclass
class Manner:
    """``echo``: every state at once, the newest of each scope at the end, or the newest of each
    scope after every third state. ``dies``: after so many rows."""

    echo: str = "each"
    form: str = "whole"
    dies: int | None = None


@dataclass
class Target:
    """What the destination holds durably, and how it behaves now."""

    manner: Manner = field(default_factory=Manner)
    rows: dict[str, list[tuple[int, int]]] = field(default_factory=dict[str, list[tuple[int, int]]])


class FuzzDestination(DestinationEndpoint):
    """``engine.plan.destination_endpoint.DestinationEndpoint`` whose connector is played."""

    def __init__(self) -> None:
        role = SimpleNamespace(described_once=True)
        self.connector = SimpleNamespace(  # type: ignore[assignment]
            protocol=load_protocol("airbyte"),
            package=None,
            mending=lambda words: None,
            role=role,
            launch=lambda: SimpleNamespace(component=None, protocol="airbyte"),
            secrets=lambda config: [],
            effective_limits=lambda config: ([], []),
            built=list,
            problems=lambda described, config, timeouts: [],
            fidelity=lambda protocol, described, options, config, timeouts: [],
            validate=lambda config: [],
            own_stream=lambda stream: None,
        )
        self.name, self.role_name = "airbyte:./destination", "destination"
        self.config: dict[str, Any] = {}
        self.timeouts = RunTimeouts()
        self.user_config: dict[str, Any] = {}
        self.model_target = None
        self.changed_before, self.install_seconds = False, 0.0
        self._namespace, self._prefix = "source", ""
        section = Section(use=self.name)
        self._pipeline = SimpleNamespace(destination=section)  # type: ignore[assignment]

    def needs(self) -> SessionNeeds:
        return SessionNeeds()

    def single_load_reason(self, mode: DestinationSyncMode) -> str | None:
        del mode
        return None


class FuzzFeeder:
    """``engine.deliver.connector_delivery.Feeder``. ``parts``: the log's, by path. ``told``: what a
    conversation begins with."""

    def __init__(self, target: Target, parts: Mapping[str, Any], source: str, told: Any) -> None:
        self._target, self._parts, self._source, self._told = target, parts, source, told

    def keys_task(self) -> str | None:
        return None

    def start(self, streams: Any, attempt: int) -> "_Conversation":
        del attempt
        return _Conversation(self._target, self._parts, self._source, self._told(streams))

    def cancelled(self) -> bool:
        return False


class _Conversation:
    """``engine.deliver.connector_delivery.Conversation``: an order is carried out when it is looked
    at."""

    def __init__(
        self,
        target: Target,
        parts: Mapping[str, Any],
        source: str,
        told: Mapping[StreamId, WriteStream],
    ) -> None:
        self._target, self._parts, self._source = target, parts, source
        self._told = dict(told)
        self._marks = PendingStates({s.target: s.id for s in told.values()}, strict=False)
        self._replies = DestinationOutput(self._marks)
        self._cover = FedSegments()
        self._orders: list[FeedOrder] = []
        self._acked: list[AckedSegments] = []
        self._held: list[tuple[str, int, int]] = []
        self._newest: dict[str, dict[str, Any]] = {}
        self._states = 0
        self._fed: dict[StreamId, int] = {}
        self._since: dict[StreamId, int] = {}
        self._errors: list[dict[str, Any]] = []
        self._result: PushResult | None = None

    # -- the driver's side

    def takes(self, loads: Sequence[Any]) -> bool:
        return all(self._knows(load) for load in loads)

    def changes(self, loads: Sequence[Any]) -> FeedOrder:
        del loads
        return FeedOrder()

    def _knows(self, load: Any) -> bool:
        known = self._told.get(load.stream)
        return known is not None and load.schema_version in known.schemas

    def order(self, order: FeedOrder) -> None:
        self._orders.append(order)

    def acks(self) -> list[AckedSegments]:
        found, self._acked = self._acked, []
        return found

    def cancel(self) -> None:
        self._result = self._result or self._ended(PushEnd.cancelled)

    def poll(self) -> PushResult | None:
        while self._orders and self._result is None:
            order = self._orders.pop(0)
            for segment in order.segments:
                if not self._feed(segment):
                    error = DestinationError("the destination died", code="destination.exited")
                    self._result = self._ended(PushEnd.failed, [error])
                    return self._result
            if order.end:
                self._give_back()
                self._flush()
                self._heard(self._replies.ended_well())
                if left := self._cover.ended_well():
                    self._acked.append(AckedSegments(segments=tuple(left)))
                end = PushEnd.failed if self._errors else PushEnd.finished
                self._result = self._ended(end)
        return self._result

    # -- the destination's

    def _feed(self, segment: Segment) -> bool:
        """False: it died."""
        self._cover.begin(segment.id)
        for one in segment.slices:
            for part in one.parts:
                for row in self._parts[part.path]:
                    dies = self._target.manner.dies
                    if dies is not None and sum(self._fed.values()) >= dies:
                        return False
                    self._fed[one.stream] = self._fed.get(one.stream, 0) + 1
                    self._since[one.stream] = self._since.get(one.stream, 0) + 1
                    self._held.append((one.stream.name, row["id"], row["place"]))
        number = self._cover.fed(segment)
        if number is not None and segment.scope is not None and segment.state is not None:
            self._state(number, StoredState(segment.scope, segment.state))
        return True

    def _state(self, number: int, saved: StoredState) -> None:
        stream = saved.scope.stream
        covered = list(self._since) if stream is None else [stream]
        rows = {s: self._since.pop(s) for s in covered if s in self._since}
        known = None if stream is None else self._told.get(stream)
        target = stream if known is None else known.target
        message = outgoing.state(saved, self._source, target, number, sum(rows.values()))
        self._marks.sent(number, saved.scope.key, message, rows)
        self._newest[saved.scope.key] = message
        self._states += 1
        echo = self._target.manner.echo
        if echo == "each" or (echo == "every_third" and self._states % 3 == 0):
            self._give_back()

    def _give_back(self) -> None:
        """The newest state of each scope; what came before it is durable then."""
        newest, self._newest = self._newest, {}
        if newest:
            self._flush()
        for message in newest.values():
            self._heard(self._replies.take(self._line(json.loads(json.dumps(message)))))

    def _heard(self, answers: Iterable[Any]) -> None:
        for answer in answers:
            if isinstance(answer, Ack):
                covered = self._cover.acked(answer.seq)
                if covered:
                    self._acked.append(AckedSegments(segments=tuple(covered)))
            elif hasattr(answer, "failure_type"):
                error = DestinationError(answer.message, code=answer.code)
                self._errors.append(error.as_dict())

    def _line(self, state: dict[str, Any]) -> bytes:
        match self._target.manner.form:
            case "bare":
                return json.dumps(state).encode() + b"\n"
            case "reordered":
                state = {
                    "destinationStats": {"recordCount": 1.0},
                    **dict(sorted(state.items(), reverse=True)),
                }
            case "no_id":
                state.pop("id", None)
            case "no_stats":
                state.pop("sourceStats", None)
            case _:
                pass
        return json.dumps({"type": "STATE", "state": state}).encode() + b"\n"

    def _flush(self) -> None:
        for stream, row, place in self._held:
            self._target.rows.setdefault(stream, []).append((row, place))
        self._held = []

    def _ended(self, end: PushEnd, errors: Iterable[PenstockError] = ()) -> PushResult:
        return PushResult(
            end=end,
            fed=sorted(self._fed.items()),
            unacked=self._cover.left(),
            errors=[*self._errors, *(e.as_dict() for e in errors)],
        )
