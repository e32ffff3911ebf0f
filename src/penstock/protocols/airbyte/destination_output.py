"""Converts the stdout of a destination into answers: echoes of states into acks, and side messages.

LOG, TRACE and CONTROL are converted as for a source (``side_messages``). Not here: which states an
echo acknowledges (``state_echoes``), the end of a write (``protocols.stdio.write``). Source:
specification, Destination.
"""

from collections.abc import Iterator
from typing import Any, cast

import msgspec

from penstock.codec.exact_json import exact
from penstock.codec.framing import LineFramer, Lines, Oversized
from penstock.model.events import Control, Error, LogEvent, SkippedItems
from penstock.protocols.airbyte.enums import MessageType, WireStateType
from penstock.protocols.airbyte.messages import LineOther
from penstock.protocols.airbyte.side_messages import SideMessages
from penstock.protocols.airbyte.state_echoes import PendingStates
from penstock.protocols.writing import END, Ack, Answer, DestinationCounts

_LINE_BYTES = 256 * 1024 * 1024
_OTHER = msgspec.json.Decoder(LineOther)
_FAULTS = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
_BODIES = ("stream", "global", "global_", "data")
_TYPES = frozenset(t.value for t in WireStateType)


class DestinationOutput:
    """Reads a destination's output (``OutputReader`` of ``protocols.stdio.write``). ``at_end``:
    echoes acknowledge nothing, and a successful end acknowledges everything."""

    def __init__(self, marks: PendingStates, *, at_end: bool = False) -> None:
        self._marks, self._at_end = marks, at_end
        self._framer = LineFramer(_LINE_BYTES, role="destination")
        self._side_messages = SideMessages()
        self.beats = 0
        self.failed = False

    def take(self, block: bytes) -> Iterator[Answer]:
        for item in list(self._framer.feed(block)):
            yield from self._item(item)
        yield from self._counted()

    def finish(self) -> Iterator[Answer]:
        for item in list(self._framer.finish()):
            yield from self._item(item)
        yield from self._counted()

    def ended_well(self) -> Iterator[Answer]:
        if self._at_end:
            yield Ack(END)
        else:
            yield from self._marks.ended_well()

    def _counted(self) -> Iterator[Answer]:
        for event in self._side_messages.counted():
            if isinstance(event, SkippedItems):
                yield event

    def _item(self, item: Lines | Oversized) -> Iterator[Answer]:
        if isinstance(item, Oversized):
            self._side_messages.count("oversized_line")
            return
        for line in bytes(item.data).split(b"\n"):
            if line.strip():
                yield from self._line(line)

    def _line(self, raw: bytes) -> Iterator[Answer]:
        try:
            line = _OTHER.decode(raw)
        except _FAULTS:
            state = _bare(raw)
            if state is not None:
                yield from self._state(state, whole=False)
            else:
                yield from self._side_events(self._side_messages.report(_kind(raw), raw))
            return
        if line.type == MessageType.state:
            try:
                state = exact(line.state)
            except _FAULTS:
                state = None
            if isinstance(state, dict):
                yield from self._state(cast(dict[str, Any], state), whole=True)
                return
            yield from self._side_events(self._side_messages.report("malformed:STATE", raw))
        elif line.type in _TYPES and (state := _bare(raw)) is not None:
            yield from self._state(state, whole=False)
        else:
            yield from self._side_events(self._side_messages.other(line, raw))

    def _state(self, state: dict[str, Any], *, whole: bool) -> Iterator[Answer]:
        try:
            # An object with ``data`` alone need not be a state.
            present = [w for w in ("type", *_BODIES) if state.get(w) is not None]
            sure = whole or present != ["data"]
            answers = list(self._marks.echoed(state, whole=whole, sure=sure))
        except RecursionError:  # nested more deeply than any sent state
            self._side_messages.count("malformed:STATE")
            return
        if self._at_end:
            self._side_messages.count("state_given_back")
            answers = [a for a in answers if isinstance(a, DestinationCounts)]
        for answer in answers:
            if isinstance(answer, Ack):
                self.beats += 1
            elif isinstance(answer, Error):
                self.failed = True
            yield answer

    def _side_events(self, events: Iterator[Any]) -> Iterator[Answer]:
        for event in events:
            if isinstance(event, Error):
                self.failed = True
            if isinstance(event, LogEvent | Error | Control | SkippedItems):
                yield event
            else:
                self._side_messages.count(f"unexpected:{type(event).__name__}")


def _bare(raw: bytes) -> dict[str, Any] | None:
    """Returns a state without its envelope: an object with a state's type, or with only the fields
    of a state (as real destinations send); None: anything else. No type means LEGACY."""
    try:
        data = exact(raw)
    except _FAULTS:
        return None
    if not isinstance(data, dict):
        return None
    state = cast(dict[str, Any], data)
    bodies = [b for b in _BODIES if isinstance(state.get(b), dict)]
    if state.get("type") in _TYPES and bodies:
        return state
    of_stream = isinstance(state.get("stream"), dict) and "stream_descriptor" in state["stream"]
    shared = any(isinstance(state.get(g), dict) for g in ("global", "global_"))
    legacy = bodies == ["data"]
    return state if state.get("type") is None and (of_stream or shared or legacy) else None


def _kind(raw: bytes) -> str:
    try:
        msgspec.json.decode(raw)
    except _FAULTS:
        return "text_line"
    return "not_a_message"
