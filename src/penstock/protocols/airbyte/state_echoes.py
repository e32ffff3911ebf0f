"""Matches the states that a destination echoes with the sent states (L1).

An echo means that everything before its state is durable (specification, Destination, Output): it
acks its state and every earlier one of its scope, a stream's or the shared one. Many destinations
buffer, and echo only the newest state of what they have written, so that a missing earlier echo
means nothing. An echo is matched, in this order: by the ``id`` that Penstock put into the state; by
equal content (the state itself, without nulls and the fields next to it); else, unless ``strict``,
with the oldest pending state of its scope, where the echo certainly is a state, which the
destination has changed. Of several states of equal content the oldest is taken, since acking a
later one too early would lose rows, while acking too little only sends rows again; ``sourceStats``
in the echo distinguish them, and states with no rows between them count as one. After a successful
end the rest is acked where the last echo equals the last state sent. The destination's own counts
come before the ack. Not here: finding states in lines (``destination_output``).
"""

import hashlib
import threading
from collections import Counter, deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from itertools import islice
from typing import Any, cast

import msgspec

from penstock.model.catalog import StreamId
from penstock.model.events import Error, SkippedItems
from penstock.model.state import StateType
from penstock.protocols.writing import (
    GUESSED_ACK,
    NEWEST_ACK,
    Ack,
    Answer,
    DestinationCounts,
)

_SHARED = "*"
_REMEMBERED = 1000  # acked states of a scope, so that a late echo of one is recognised


@dataclass(slots=True)
class _Sent:
    seq: int
    digest: bytes
    rows: Mapping[StreamId, int]  # rows since the previous state in its scope, per stream

    @property
    def total(self) -> int:
        return sum(self.rows.values())


@dataclass(slots=True)
class _Scope:
    """Tracks the states of one scope. ``last_echo``: the content of the last echo without an id."""

    pending: deque[_Sent] = field(default_factory=deque[_Sent])
    acked: deque[bytes] = field(default_factory=lambda: deque[bytes](maxlen=_REMEMBERED))
    last: int = 0
    last_echo: bytes | None = None

    def ack(self, place: int) -> Ack:
        """Acks the pending state at an index, and those before it."""
        for _ in range(place + 1):
            sent = self.pending.popleft()
            self.acked.append(sent.digest)
            self.last = sent.seq
        return Ack(self.last)


class PendingStates:
    """Tracks the states of one write. ``names``: from target name to stream. The feeding thread
    calls ``sent``, the thread that reads stdout the rest. Memory: some hundred bytes for each
    pending state."""

    def __init__(self, names: Mapping[StreamId, StreamId], *, strict: bool) -> None:
        self._names, self._strict = names, strict
        self._lock = threading.Lock()
        self._scopes: dict[str, _Scope] = {}
        self._unknown_reported = False

    def sent(
        self, seq: int, scope: str, message: Mapping[str, Any], rows: Mapping[StreamId, int]
    ) -> None:
        """Adds a state. ``scope``: a ``StateScope.key``. ``rows``: rows sent since the previous
        state of its scope, per stream. Called before the message is written, so that its echo
        cannot come first."""
        with self._lock:
            entry = _Sent(seq, _digest(message), rows)
            self._scopes.setdefault(scope, _Scope()).pending.append(entry)

    def echoed(
        self, state: Mapping[str, Any], *, whole: bool, sure: bool = True
    ) -> Iterator[Answer]:
        """Answers an echo. ``whole``: it was a STATE message, else a bare state. ``sure`` False: it
        may not be a state at all; it counts as one only where an equal one was sent."""
        if not whole and self._strict:
            yield SkippedItems("bare_state")
            return
        with self._lock:
            scope = self._scopes.get(self._scope(state) or "") or _Scope()
            if not sure and not _was_sent(scope, _digest(state)):
                answers: list[Answer] = [SkippedItems("not_a_message")]
            else:
                answers = self._matched(scope, state, whole=whole)
        yield from answers

    def ended_well(self) -> Iterator[Answer]:
        """Answers exit code 0 after the whole input. Where the last echo of a scope equals the last
        state sent, it was the echo of that state, not of an earlier equal one."""
        with self._lock:
            for scope in self._scopes.values() if not self._strict else ():
                if scope.pending and scope.last_echo == scope.pending[-1].digest:
                    yield SkippedItems(NEWEST_ACK)
                    yield scope.ack(len(scope.pending) - 1)

    def _matched(self, scope: _Scope, state: Mapping[str, Any], *, whole: bool) -> list[Answer]:
        given, digest = _id(state.get("id")), _digest(state)
        if given is not None:
            scope.last_echo = None
            place = next((i for i, e in enumerate(scope.pending) if e.seq == given), None)
            late = given <= scope.last
        else:
            scope.last_echo = digest
            place = _alike(scope.pending, digest, _rows(state))
            late = place != 0 and digest in scope.acked
        if late:
            return [SkippedItems("repeated_state")]
        guessed = place is None or not whole
        if place is None:
            if given is not None or self._strict or not scope.pending:
                return self._unknown(state)
            place = 0
        fed: Counter[StreamId] = Counter()
        for sent in islice(scope.pending, place + 1):
            fed.update(sent.rows)
        answers: list[Answer] = [SkippedItems(GUESSED_ACK)] if guessed else []
        return [*answers, *_counts(state, fed), scope.ack(place)]

    def _unknown(self, state: Mapping[str, Any]) -> list[Answer]:
        """Reports an echo of a state that was not sent: the first as an error, the others as
        counts."""
        counted: list[Answer] = [SkippedItems("unknown_state")]
        if self._unknown_reported:
            return counted
        self._unknown_reported = True
        of = state.get("stream") or {}
        name = of.get("stream_descriptor") if isinstance(of, dict) else None
        label = f" of {msgspec.json.encode(name).decode()[:200]}" if name else ""
        unknown = Error(
            f"the destination gave back a state{label} that it was not sent, or not in this scope",
            "system_error",
            code="destination.state_unknown",
            hint="nothing is saved for it. Where the destination makes states of its own, set"
            " `acks: at_end`: its exit code 0 then counts",
        )
        return [*counted, unknown]

    def _scope(self, state: Mapping[str, Any]) -> str | None:
        """Returns the key of an echo's scope; None: no state of that stream was sent."""
        kind = state.get("type")
        stream = state.get("stream")
        if kind not in (StateType.global_, StateType.legacy) and isinstance(stream, dict):
            name = cast(dict[str, Any], stream).get("stream_descriptor")
            if not isinstance(name, dict):
                return None
            of = cast(dict[str, Any], name)
            spelled = StreamId(of.get("namespace"), str(of.get("name", "")))
            found = self._names.get(spelled)
            if found is None:
                found = self._names.get(StreamId.of(spelled.namespace, spelled.name))
            return None if found is None else found.key
        return _SHARED


def _was_sent(scope: _Scope, digest: bytes) -> bool:
    return digest in scope.acked or any(digest == e.digest for e in scope.pending)


def _alike(pending: deque[_Sent], digest: bytes, rows: int | None) -> int | None:
    """Returns the index of the oldest pending state with this content, preferring one with as many
    rows; then moves on to the last of the following states with equal content and no rows between
    them."""
    place: int | None = None
    for at, sent in enumerate(pending):
        if sent.digest == digest and (place is None or sent.total == rows):
            place = at
            if rows is None or sent.total == rows:
                break
    if place is None:
        return None
    for sent in islice(pending, place + 1, None):
        if sent.digest != digest or sent.total:
            break
        place += 1
    return place


def _rows(state: Mapping[str, Any]) -> int | None:
    stats = state.get("sourceStats")
    return _id(stats.get("recordCount")) if isinstance(stats, dict) else None


def _counts(state: Mapping[str, Any], fed: Mapping[StreamId, int]) -> Iterator[DestinationCounts]:
    """Yields the destination's own counts in an echo (protocol 0.18, AirbyteStateStats), if any."""
    given = state.get("destinationStats")
    stats = cast(dict[str, Any], given) if isinstance(given, dict) else {}
    written, rejected = _id(stats.get("recordCount")), _id(stats.get("rejectedRecordCount"))
    if written is not None or rejected is not None:
        yield DestinationCounts(dict(fed), written, max(rejected or 0, 0))


def _id(value: Any) -> int | None:
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal):
        return None
    return int(value) if value == int(value) else None


def _plain(value: Any) -> Any:
    """Returns the value without nulls, and with numbers in one form, for comparison."""
    if isinstance(value, dict):
        given = cast(dict[str, Any], value)
        return {k: _plain(v) for k, v in given.items() if v is not None}
    if isinstance(value, list):
        return [_plain(v) for v in cast(list[Any], value)]
    if isinstance(value, float):
        value = Decimal(repr(value))
    if isinstance(value, Decimal) and value.is_finite():
        return int(value) if value == value.to_integral_value() else str(value.normalize())
    return value


def _digest(state: Mapping[str, Any]) -> bytes:
    """Returns the digest of the source's content, without its envelope and added fields."""
    text = msgspec.json.encode(_content(state), order="sorted")
    return hashlib.blake2b(text, digest_size=16).digest()


def _content(state: Mapping[str, Any]) -> list[Any]:
    stream = state.get("stream")
    if isinstance(stream, dict):
        return ["stream", _plain(cast(dict[str, Any], stream).get("stream_state"))]
    shared = state.get("global") or state.get("global_")
    if not isinstance(shared, dict):
        return ["data", _plain(state.get("data"))]
    body = cast(dict[str, Any], shared)
    listed = body.get("stream_states")
    streams = [_entry(s) for s in cast(list[Any], listed)] if isinstance(listed, list) else []
    order = sorted(streams, key=lambda s: msgspec.json.encode(s, order="sorted"))
    return ["global", _plain(body.get("shared_state")), order]


def _entry(given: Any) -> list[Any]:
    """Returns the comparable form of a stream's entry in a GLOBAL state."""
    entry = cast(dict[str, Any], given) if isinstance(given, dict) else {"stream_state": given}
    of = entry.get("stream_descriptor")
    name = cast(dict[str, Any], of) if isinstance(of, dict) else {}
    return [
        name.get("namespace") or "",
        _plain(name.get("name")),
        _plain(entry.get("stream_state")),
    ]
