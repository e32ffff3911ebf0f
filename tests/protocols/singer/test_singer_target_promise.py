"""L1 under every order of rows, states and flushes, against models of the two kinds of targets."""

from collections import Counter
from copy import deepcopy
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.codec.exact_json import exact
from penstock.model.catalog import StreamId
from penstock.model.state import StateScope, StateType, StoredState
from penstock.protocols.singer.state_echoes import SentStates, marks_for
from penstock.protocols.writing import StateMark

NAMES = ("a", "b")
SHARED = StateScope(StateType.legacy)


class Target:
    """``merges``: prints, when it flushes one stream, its bookmark of the last state among
    those it printed before; else it flushes everything and prints the last state whole. It is
    behind: ``input`` waits to be read."""

    def __init__(self, *, merges: bool) -> None:
        self.merges = merges
        self.input: list[Any] = []  # a stream's name for a row, else a state
        self.state: Any = None
        self.held: Counter[str] = Counter()
        self.durable: Counter[str] = Counter()
        self.flushed: dict[str, Any] = {}

    def take(self, messages: int) -> None:
        for message in self.input[:messages]:
            if isinstance(message, str):
                self.held[message] += 1
            else:
                self.state = message
        del self.input[:messages]

    def flush(self, name: str | None) -> Any:
        for one in [name] if name and self.merges else NAMES:
            self.durable[one] += self.held.pop(one, 0)
        if name is None or not self.merges:
            if self.state is not None:
                self.flushed = deepcopy(self.state)
            return self.state
        marks = (self.state or {}).get("bookmarks", {})
        if name in marks:
            self.flushed.setdefault("bookmarks", {})[name] = deepcopy(marks[name])
        return deepcopy(self.flushed)


class Sync:
    """Feeds a target and holds every ack against what it has written down."""

    def __init__(self, source: str, *, merges: bool, step: int, shared: bool) -> None:
        self.marks: SentStates = marks_for(source, lambda s: s.name)
        self.target = Target(merges=merges)
        self.own, self.step, self.shared = source == "singer", step, shared
        self.fed: Counter[str] = Counter()
        self.covered: dict[int, dict[str, int]] = {}  # by mark: rows that must be durable

    def rows(self, name: str) -> None:
        self.marks.fed(StreamId(None, name))
        self.fed[name] += 1
        self.target.input.append(name)

    def state(self, name: str) -> None:
        seq = len(self.covered) + 1
        whole = self.shared or self.own
        scope = SHARED if whole else StateScope(StateType.stream, StreamId(None, name))
        value = {
            "bookmarks": {n: {"at": c // self.step} for n, c in self.fed.items()},
            "currently_syncing": name,
        }
        names = self.fed if whole else [name]
        self.covered[seq] = {n: self.fed[n] for n in names}
        blob = msgspec.json.encode(value).decode()
        sent = self.marks.mark(StateMark(seq, StoredState(scope, blob)))
        self.target.input.append(exact(sent))

    def flush(self, name: str | None) -> None:
        for seq in self.marks.echo(self.target.flush(name)) or []:
            for stream, rows in self.covered[seq].items():
                # A bookmark that stands still says that the tap reads the rows after it again.
                known = rows - rows % self.step if self.own and self.target.merges else rows
                assert self.target.durable[stream] >= known, (seq, stream)

    def end(self) -> None:
        closing = self.marks.closing()
        if closing is not None:
            self.target.input.append(exact(closing))
        self.target.take(len(self.target.input))
        self.flush(None)
        assert self.marks.complete()
        assert self.target.durable == self.fed


_number = st.integers(0, 5)
_steps = st.lists(
    st.tuples(
        st.sampled_from(["rows", "state", "read and flush"]), st.sampled_from(NAMES), _number
    ),
    min_size=5,
    max_size=30,
)


@pytest.mark.parametrize("merges", [False, True])
@pytest.mark.parametrize(
    ("source", "step", "shared"),
    [
        ("singer", 1, True),
        ("singer", 3, True),
        ("singer", 1000, True),
        ("airbyte", 1, True),
        ("airbyte", 1, False),
    ],
)
@settings(max_examples=150, deadline=None)
@given(steps=_steps)
def test_an_ack_never_covers_rows_that_are_not_durable(
    source: str, step: int, shared: bool, merges: bool, steps: list[tuple[str, str, int]]
) -> None:
    """L1. ``step``: rows that the tap reads before its bookmark moves."""
    sync = Sync(source, merges=merges, step=step, shared=shared)
    for what, name, number in steps:
        match what:
            case "rows":
                sync.rows(name)
            case "state":
                sync.state(name)
            case _:
                sync.target.take(number)
                sync.flush(name)
    sync.end()
