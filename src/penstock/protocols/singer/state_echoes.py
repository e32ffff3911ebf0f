"""Decides which sent states a target's echo acknowledges (L1).

A target prints bare state values. Some print the last one they got, whole; others compose a value
from the bookmarks of the streams that they have flushed. An echo is compared with what was sent:

* From a Singer tap, the tap's own values (:class:`TapStates`). An echo acks the newest pending
value that it equals; where it equals none, the newest one whose bookmarks it all repeats. A value
that was sent several times with rows in between counts as the first of them, since the echo may be
that one's. Values that differ only in digits that a double does not hold are treated in the same
way, since many targets keep numbers as doubles (0.10000000000000000555 comes back as 0.1): they
count as equal, unless the echo has digits that no double has. The sent value is saved. An empty
value, which targets print without a state, acks nothing. (An echo of a merging target proves
nothing about a stream without a bookmark in the value; the tap reads such a stream again.)
* From another protocol, values that Penstock makes (:class:`NumberedStates`), with a growing number
for each stream; so a target that merges bookmarks acks each stream by itself.

At the end of the input, no echo could name rows without a later state, or a value that was sent
before. One more STATE is then sent: the last value with the property ``penstock_end``. Like any
echo of the last value, its echo acks that value. Rows that no state covers count as written only
where the target also read all of its input and exited with 0.

One lock guards the bookkeeping: the feeding thread adds states, the thread that reads stdout
matches echoes. Neighbours: ``outgoing`` sends, ``target_output`` reads.
"""

import threading
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Protocol, cast

from penstock.codec.exact_json import as_doubles, exact, exact_text, may_be_rounded
from penstock.model.catalog import StreamId
from penstock.protocols.writing import StateMark

CLOSING = "penstock_end"
_SHARED = "penstock"  # the bookmark of a shared state before any rows


class SentStates(Protocol):
    """Tracks the states that were sent to a target and are not acknowledged. Texts are JSON values
    of STATE messages. ``guessed``: how many echoes were taken for acks although no equal value was
    sent."""

    guessed: int

    def fed(self, stream: StreamId) -> None:
        """Notes that rows of this stream are about to be written."""
        ...

    def mark(self, mark: StateMark) -> str:
        """Adds a pending state. Returns the value to send for it."""
        ...

    def closing(self) -> str | None:
        """Returns the value to send at the end of the input; None: an echo of the last one is
        enough."""
        ...

    def echo(self, value: Any) -> list[int] | None:
        """Returns the numbers of the states that an echo acknowledges, without earlier ones that
        they imply; None where it repeats nothing that was sent. ``value``: of
        ``exact_json.exact``."""
        ...

    def complete(self) -> bool:
        """Returns whether the target has echoed a state that was sent after everything else."""
        ...


def marks_for(
    source_protocol: str, names: Callable[[StreamId], str], *, strict: bool = False
) -> SentStates:
    """Returns the tracker for states of a source of this protocol. ``names``: gives a stream's name
    in messages. ``strict``: only an equal value is an echo."""
    if source_protocol == "singer":
        return TapStates(strict=strict)
    return NumberedStates(names, strict=strict)


@dataclass(slots=True)
class _SentValue:
    seq: int
    value: Any
    rounded: Any  # the value with doubles in place of its numbers
    rows: bool  # rows were fed between the previous state and this one


class TapStates:
    """Sends the states of a Singer tap as they are, and matches echoes by value."""

    def __init__(self, *, strict: bool) -> None:
        self.guessed = 0
        self._strict = strict
        self._lock = threading.Lock()
        self._sent: list[_SentValue] = []  # the last acked one, if any, and those after it
        self._acked = 0  # how many of those are acked: 0 or 1
        self._rows = False  # rows were fed since the last state
        self._token = ""
        self._closed = False

    def fed(self, stream: StreamId) -> None:
        with self._lock:
            self._rows = True

    def mark(self, mark: StateMark) -> str:
        value = exact(mark.state.blob)
        with self._lock:
            self._sent.append(_SentValue(mark.seq, value, as_doubles(value), self._rows))
            self._rows = False
        return one_line(mark.state.blob)

    def closing(self) -> str | None:
        with self._lock:
            if not self._rows and (not self._sent or self._is_unmistakable()):
                return None
            self._token = uuid.uuid4().hex
            last = self._sent[-1].value if self._sent else None
            base = cast(dict[str, Any], last) if isinstance(last, dict) else {}
            return exact_text({**base, CLOSING: self._token}).decode()

    def echo(self, value: Any) -> list[int] | None:
        with self._lock:
            if _closes(value, self._token):
                self._closed = True
                pending = len(self._sent) > self._acked
                return self._ack(len(self._sent) - 1) if pending else []
            index = self._find(value)
            if index is None:
                return None
            if index < self._acked:
                return []
            self.guessed += self._sent[index].value != value
            return self._ack(index)

    def complete(self) -> bool:
        with self._lock:
            if self._token:
                return self._closed
            return not self._rows and len(self._sent) == self._acked

    def _is_unmistakable(self) -> bool:
        last, end = self._sent[-1], len(self._sent) - 1
        echoes = (last.value, last.value if self._strict else last.rounded)
        return bool(last.value) and all(self._find(echo) == end for echo in echoes)

    def _find(self, value: Any) -> int | None:
        """Returns the index of the sent state that an echo acknowledges; None: there is none."""
        if _is_empty(value):
            return None
        found: int | None = None
        if self._strict or not may_be_rounded(value):
            found = self._equal(value, lambda s: s.value)
        if found is None and not self._strict:
            found = self._equal(as_doubles(value), lambda s: s.rounded)
        return found

    def _equal(self, value: Any, of: Callable[[_SentValue], Any]) -> int | None:
        """Returns the index of the sent state that equals a value, or whose bookmarks it repeats.
        ``of``: returns a state in the value's form."""
        equal = next((i for i, s in enumerate(self._sent) if of(s) == value), None)
        if equal is not None:
            return self._last_alike(equal, of)
        given = _bookmarks(value)
        if self._strict or not given:
            return None
        sent = [_bookmarks(of(s)) for s in self._sent]
        repeated = [bookmarks for bookmarks in sent if bookmarks and _repeats(given, bookmarks)]
        if not repeated:
            return None
        first = sent.index(repeated[-1])
        return self._last_alike(first, lambda s: _bookmarks(of(s)))

    def _last_alike(self, place: int, what: Callable[[_SentValue], Any]) -> int:
        """Returns the last of the equal marks from ``place`` on, with no rows in between. ``what``:
        the form in which they are compared."""
        while place + 1 < len(self._sent):
            after = self._sent[place + 1]
            if after.rows or what(after) != what(self._sent[place]):
                break
            place += 1
        return place

    def _ack(self, place: int) -> list[int]:
        self._sent = self._sent[place:]
        self._acked = 1
        return [self._sent[0].seq]


class NumberedStates:
    """Sends values that Penstock makes: ``{"bookmarks": {stream: {"seq": n, "run": id}}}`` covers
    everything of that stream before the state number ``n``. ``run``: distinguishes echoes of this
    write from those of an earlier one."""

    def __init__(self, names: Callable[[StreamId], str], *, strict: bool) -> None:
        self.guessed = 0  # always: every value has a number
        self._names, self._strict = names, strict
        self._lock = threading.Lock()
        self._run = uuid.uuid4().hex[:12]
        self._seqs: dict[str, int] = {}
        self._dirty: set[str] = set()  # names with rows that no state covers
        self._pending: list[tuple[int, str, dict[str, int], dict[str, int]]] = []
        self._token = ""
        self._closed = False

    def fed(self, stream: StreamId) -> None:
        with self._lock:
            self._dirty.add(self._names(stream))

    def mark(self, mark: StateMark) -> str:
        stream = mark.state.scope.stream
        with self._lock:
            if stream is None:
                covered = self._dirty or ({_SHARED} if not self._seqs else set[str]())
                self._seqs.update(dict.fromkeys(covered, mark.seq))
                self._dirty = set()
                needs = dict(self._seqs)
            else:
                name = self._names(stream)
                self._seqs[name] = mark.seq
                self._dirty.discard(name)
                needs = {name: mark.seq}
            self._pending.append((mark.seq, mark.state.scope.key, needs, dict(self._seqs)))
            return self._value().decode()

    def closing(self) -> str | None:
        with self._lock:
            if not self._dirty:
                return None
            self._token = uuid.uuid4().hex
            return self._value(self._token).decode()

    def echo(self, value: Any) -> list[int] | None:
        with self._lock:
            closes = _closes(value, self._token)
            self._closed |= closes
            given = {k: v for k, v in _bookmarks(value).items() if self._is_ours(v)}
            if not given and not closes:
                return None
            seqs = {name: _number(bookmark["seq"]) or 0 for name, bookmark in given.items()}
            acked: dict[str, int] = {}
            left: list[tuple[int, str, dict[str, int], dict[str, int]]] = []
            for entry in self._pending:
                seq, scope, needs, whole = entry
                wanted = whole if self._strict else needs
                if all(seqs.get(n, 0) >= s for n, s in wanted.items()):
                    acked[scope] = seq
                else:
                    left.append(entry)
            self._pending = left
            return sorted(acked.values())

    def complete(self) -> bool:
        with self._lock:
            return not self._pending and (self._closed if self._token else not self._dirty)

    def _value(self, token: str = "") -> bytes:
        bookmarks = {n: {"seq": s, "run": self._run} for n, s in self._seqs.items()}
        return exact_text({"bookmarks": bookmarks} | ({CLOSING: token} if token else {}))

    def _is_ours(self, bookmark: Any) -> bool:
        if not isinstance(bookmark, dict):
            return False
        given = cast(dict[str, Any], bookmark)
        return given.get("run") == self._run and _number(given.get("seq")) is not None


def one_line(text: str) -> str:
    """Puts a JSON text on one line: a line break in it can only be white space."""
    return text.replace("\n", " ").replace("\r", " ")


def _bookmarks(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        return {}
    found = cast(dict[str, Any], value).get("bookmarks")
    return cast(dict[str, Any], found) if isinstance(found, dict) else {}


def _number(value: Any) -> int | None:
    """Returns a whole number that came back, maybe as a double (``7.0``); None for anything
    else."""
    if isinstance(value, bool) or not isinstance(value, int | Decimal):
        return None
    return int(value) if value == int(value) else None


def _closes(value: Any, token: str) -> bool:
    if not token or not isinstance(value, dict):
        return False
    return cast(dict[str, Any], value).get(CLOSING) == token


def _repeats(given: dict[str, Any], wanted: dict[str, Any]) -> bool:
    return all(name in given and given[name] == value for name, value in wanted.items())


def _is_empty(value: Any) -> bool:
    return not value or value == {"bookmarks": {}}
