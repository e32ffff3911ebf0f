"""States that a destination was sent, matched with those it gives back.

An echo says that everything before its state is durable (specification, Destination, Output), and
every state comes back in the order it was sent, per stream or for all (protocol, State principles:
out of order or skipped is an error). So nothing is acked before everything before it in its scope
was echoed: a destination that skips a state may have lost what the state covered, and being wrong
here costs rows, while holding back costs only that rows are sent again. Destinations that give back
only their newest state are served by ``Acks.at_end``.

What matches, in this order: our ``id`` in the state; the same content but for nulls, counts and
``global`` called ``global_``; else, unless ``strict``, the oldest state of that scope that was not
echoed yet, where what came is surely a state. Not here: how lines become states (``replies``).
"""

import hashlib
import threading
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, cast

import msgspec

from penstock.model.catalog import StreamId
from penstock.model.events import Counted, Error, Log
from penstock.model.state import StateType
from penstock.protocols.contract import Ack, Answer

_SHARED = "*"
_OURS = ("id", "sourceStats", "destinationStats", "state_type")


@dataclass(slots=True)
class _Sent:
    seq: int
    digest: bytes
    echoed: bool = False


class Marks:
    """``names``: target name to stream. ``sent`` belongs to the thread that feeds, ``echoed`` to
    the one that hears. Memory: some hundred bytes for each state that is not acked."""

    def __init__(self, names: Mapping[StreamId, StreamId], *, strict: bool) -> None:
        self._names, self._strict = names, strict
        self._lock = threading.Lock()
        self._waiting: dict[str, deque[_Sent]] = {}
        self._last: dict[str, _Sent] = {}
        self._told: set[str] = set()

    def sent(self, seq: int, scope: str, message: Mapping[str, Any]) -> None:
        """``scope``: a ``StateScope.key``. Before the message is written, or its echo could be
        first."""
        with self._lock:
            entry = _Sent(seq, _digest(message))
            self._waiting.setdefault(scope, deque()).append(entry)

    def echoed(
        self, state: Mapping[str, Any], *, whole: bool, sure: bool = True
    ) -> Iterator[Answer]:
        """``whole``: it came as a STATE message; else it was a bare state. Not ``sure``: it may be
        no state at all, and is one only where one was sent that equals it."""
        state = _plain(state)
        scope = self._scope(state)
        if not whole and self._strict:
            yield Counted("bare_state")
            return
        with self._lock:
            if not sure and not self._sent_so(scope, state):
                answers: list[Answer] = [Counted("not_a_message")]
            else:
                answers = self._matched(scope, state, whole=whole)
        yield from answers

    def _sent_so(self, scope: str | None, state: Mapping[str, Any]) -> bool:
        digest, last = _digest(state), self._last.get(scope or "")
        known = [*self._waiting.get(scope or "", ()), *([last] if last is not None else [])]
        return any(digest == entry.digest for entry in known)

    def _matched(self, scope: str | None, state: Mapping[str, Any], *, whole: bool) -> list[Answer]:
        waiting = self._waiting.get(scope or "", deque())
        digest = _digest(state)
        given = _id(state.get("id"))
        open_ones = [e for e in waiting if not e.echoed]
        found = _exact(open_ones, given, digest)
        exact = found is not None
        if found is None:
            last = self._last.get(scope or "")
            if last is not None and (digest == last.digest or (given or last.seq + 1) <= last.seq):
                return [Counted("repeated_state")]
            if given is not None or self._strict or not open_ones:
                return self._wrong("unknown", state, "that it was not sent, or not in this scope")
            found = open_ones[0]
        answers: list[Answer] = []
        if found is not open_ones[0]:
            answers += self._wrong("skipped", state, "before an earlier one of the same scope")
        found.echoed = True
        if not (exact and whole):
            answers += self._warned()
        newest: _Sent | None = None
        while waiting and waiting[0].echoed:
            newest = waiting.popleft()
        if newest is not None:
            self._last[scope or ""] = newest
            answers.append(Ack(newest.seq))
        return answers

    def _wrong(self, kind: str, state: Mapping[str, Any], what: str) -> list[Answer]:
        """The first of its kind is an error, the others are counted."""
        counted: list[Answer] = [Counted(f"{kind}_state")]
        if kind in self._told:
            return counted
        self._told.add(kind)
        of = state.get("stream") or {}
        name = of.get("stream_descriptor") if isinstance(of, dict) else None
        label = f" of {msgspec.json.encode(name).decode()[:200]}" if name else ""
        raw = {
            "code": f"destination.state_{kind}",
            "hint": "nothing is saved for it. Where the destination gives back only its newest"
            " states, set `acks: at_end`: its exit code 0 then counts",
        }
        return [
            *counted,
            Error(f"the destination gave back a state{label} {what}", "system_error", raw=raw),
        ]

    def _warned(self) -> list[Answer]:
        if "changed" in self._told:
            return []
        self._told.add("changed")
        return [
            Log(
                "WARN",
                "the destination gives states back changed, or without their envelope: they count"
                " in the order they come (`acks: strict` turns that off)",
            )
        ]

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


def _exact(entries: list[_Sent], given: int | None, digest: bytes) -> _Sent | None:
    if given is not None:
        return next((e for e in entries if e.seq == given), None)
    return next((e for e in entries if e.digest == digest), None)


def _id(value: Any) -> int | None:
    if isinstance(value, bool) or not isinstance(value, int | Decimal):
        return None
    return int(value) if value == int(value) else None


def _plain(value: Any) -> Any:
    """Without nulls, with numbers in one form, and with ``global`` under its own name."""
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
    plain = {k: v for k, v in _plain(dict(state)).items() if k not in _OURS}
    if plain.get("type") == StateType.legacy:
        del plain["type"]  # what no type means
    if "global_" in plain and "global" not in plain:
        plain["global"] = plain.pop("global_")
    if "stream" in plain or "global" in plain:
        plain.pop("type", None)  # told by the body
        plain.pop("data", None)
    text = msgspec.json.encode(plain, order="sorted")
    return hashlib.blake2b(text, digest_size=16).digest()
