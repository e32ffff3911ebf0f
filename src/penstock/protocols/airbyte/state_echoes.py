"""States that a destination was sent, matched with those it gives back.

An echo says that everything before its state is durable (specification, Destination, Output): it
acks its state and every one sent before it in its scope, a stream's or all. Many destinations
buffer, and give back only the newest state of what they have written; one that is missing before it
means nothing then.

What matches, in this order: our ``id`` in the state; the same content (the state itself, without
nulls and whatever stands beside it); else, unless ``strict``, the oldest state of that scope that
is not acked, where what came is surely a state: it was changed on the way. Of several states of the
same content the oldest is meant, for acking a later one too early costs rows, while holding back
costs only that rows are sent again; ``sourceStats`` that came back tell them apart, and states with
no rows in between are one. What is left of them at a good end is acked where the last one that was
given back equals the last one sent. Not here: how lines become states (``destination_output``).
"""

import hashlib
import threading
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from itertools import islice
from typing import Any, cast

import msgspec

from penstock.model.catalog import StreamId
from penstock.model.events import Counted, Error
from penstock.model.state import StateType
from penstock.protocols.contract import GUESSED_ACK, NEWEST_ACK, Ack, Answer

_SHARED = "*"
_REMEMBERED = 1000  # states of a scope that are acked: an echo of one of them is a late one


@dataclass(slots=True)
class _Sent:
    seq: int
    digest: bytes
    rows: int | None  # since the one before it in its scope


@dataclass(slots=True)
class _Scope:
    """``heard``: content of the last echo that had no id of ours."""

    pending: deque[_Sent] = field(default_factory=deque[_Sent])
    acked: deque[bytes] = field(default_factory=lambda: deque[bytes](maxlen=_REMEMBERED))
    last: int = 0
    heard: bytes | None = None

    def ack(self, place: int) -> Ack:
        """Of the pending state at ``place``, and those before it."""
        for _ in range(place + 1):
            sent = self.pending.popleft()
            self.acked.append(sent.digest)
            self.last = sent.seq
        return Ack(self.last)


class Marks:
    """``names``: target name to stream. ``sent`` belongs to the thread that feeds, the rest to
    the one that hears. Memory: some hundred bytes for each state that is not acked."""

    def __init__(self, names: Mapping[StreamId, StreamId], *, strict: bool) -> None:
        self._names, self._strict = names, strict
        self._lock = threading.Lock()
        self._scopes: dict[str, _Scope] = {}
        self._told = False

    def sent(self, seq: int, scope: str, message: Mapping[str, Any]) -> None:
        """``scope``: a ``StateScope.key``. Before the message is written, or its echo could be
        first."""
        with self._lock:
            entry = _Sent(seq, _digest(message), _rows(message))
            self._scopes.setdefault(scope, _Scope()).pending.append(entry)

    def echoed(
        self, state: Mapping[str, Any], *, whole: bool, sure: bool = True
    ) -> Iterator[Answer]:
        """``whole``: it came as a STATE message; else it was a bare state. Not ``sure``: it may be
        no state at all, and is one only where one was sent that equals it."""
        if not whole and self._strict:
            yield Counted("bare_state")
            return
        with self._lock:
            scope = self._scopes.get(self._scope(state) or "") or _Scope()
            if not sure and not _was_sent(scope, _digest(state)):
                answers: list[Answer] = [Counted("not_a_message")]
            else:
                answers = self._matched(scope, state, whole=whole)
        yield from answers

    def ended_well(self) -> Iterator[Answer]:
        """Exit code 0 after all of its input: where the last state that was given back of a scope
        equals the last one sent, it is that one, and not an earlier one of the same content."""
        with self._lock:
            for scope in self._scopes.values() if not self._strict else ():
                if scope.pending and scope.heard == scope.pending[-1].digest:
                    yield Counted(NEWEST_ACK)
                    yield scope.ack(len(scope.pending) - 1)

    def _matched(self, scope: _Scope, state: Mapping[str, Any], *, whole: bool) -> list[Answer]:
        given, digest = _id(state.get("id")), _digest(state)
        if given is not None:
            scope.heard = None
            place = next((i for i, e in enumerate(scope.pending) if e.seq == given), None)
            late = given <= scope.last
        else:
            scope.heard = digest
            place = _alike(scope.pending, digest, _rows(state))
            late = place != 0 and digest in scope.acked
        if late:
            return [Counted("repeated_state")]
        guessed = place is None or not whole
        if place is None:
            if given is not None or self._strict or not scope.pending:
                return self._unknown(state)
            place = 0
        return [*([Counted(GUESSED_ACK)] if guessed else []), scope.ack(place)]

    def _unknown(self, state: Mapping[str, Any]) -> list[Answer]:
        """The first one is an error, the others are counted."""
        counted: list[Answer] = [Counted("unknown_state")]
        if self._told:
            return counted
        self._told = True
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
        """None: a stream that nobody sent a state of."""
        kind = state.get("type")
        stream = state.get("stream")
        if kind not in (StateType.global_, StateType.legacy) and isinstance(stream, dict):
            name = cast(dict[str, Any], stream).get("stream_descriptor")
            if not isinstance(name, dict):
                return None
            of = cast(dict[str, Any], name)
            target = StreamId.of(of.get("namespace"), str(of.get("name", "")))
            found = self._names.get(target)
            return None if found is None else found.key
        return _SHARED


def _was_sent(scope: _Scope, digest: bytes) -> bool:
    return digest in scope.acked or any(digest == e.digest for e in scope.pending)


def _alike(pending: deque[_Sent], digest: bytes, rows: int | None) -> int | None:
    """The place of the oldest state of this content, of those that cover so many rows where there
    is one; or of the last in a row with it that no rows came before."""
    place: int | None = None
    for at, sent in enumerate(pending):
        if sent.digest == digest and (place is None or sent.rows == rows):
            place = at
            if rows is None or sent.rows == rows:
                break
    if place is None:
        return None
    for sent in islice(pending, place + 1, None):
        if sent.digest != digest or sent.rows != 0:
            break
        place += 1
    return place


def _rows(state: Mapping[str, Any]) -> int | None:
    stats = state.get("sourceStats")
    return _id(stats.get("recordCount")) if isinstance(stats, dict) else None


def _id(value: Any) -> int | None:
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal):
        return None
    return int(value) if value == int(value) else None


def _plain(value: Any) -> Any:
    """Without nulls, and with numbers in one form."""
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
    """Of what the source wrote: not of its envelope, nor of what others added beside it."""
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
    """A stream's entry in a GLOBAL state."""
    entry = cast(dict[str, Any], given) if isinstance(given, dict) else {"stream_state": given}
    of = entry.get("stream_descriptor")
    name = cast(dict[str, Any], of) if isinstance(of, dict) else {}
    return [
        name.get("namespace") or "",
        _plain(name.get("name")),
        _plain(entry.get("stream_state")),
    ]
