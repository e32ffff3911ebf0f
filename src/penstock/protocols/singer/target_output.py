"""Converts the stdout of a Singer target into answers: acks, counts, log lines.

Each line of stdout is one bare state value; blank lines and ``{}`` occur (reference §0.4). No line
is fatal. Neighbours: ``state_echoes`` decides which states a value acknowledges,
``protocols.stdio.write`` reads the blocks.
"""

import re
from collections.abc import Iterator

from penstock.codec.exact_json import exact
from penstock.codec.framing import LineFramer, Lines, Oversized
from penstock.model.events import Event, LogEvent, SkippedItems
from penstock.protocols.singer.state_echoes import SentStates
from penstock.protocols.stdio.json_lines import FAULTS
from penstock.protocols.stdio.unparsed import UnparsedOutput
from penstock.protocols.writing import END, GUESSED_ACK, Ack, Answer

MAX_STATE_BYTES = 64 << 20
_OUR_RECORD = b'{"type":"RECORD"'  # the beginning of a RECORD that ``outgoing`` wrote
_MESSAGE = re.compile(rb'\{\s*"type"\s*:\s*"([A-Za-z_]{1,64})"')


class TargetOutput:
    """Reads a target's output (``OutputReader`` of ``protocols.stdio.write``). ``marks`` None:
    echoes are ignored, and only a successful end acknowledges."""

    def __init__(self, marks: SentStates | None) -> None:
        self.beats = 0
        self.failed = False
        self._marks = marks
        self._framer = LineFramer(MAX_STATE_BYTES, role="destination")
        self._unparsed = UnparsedOutput()

    def take(self, block: bytes) -> Iterator[Answer]:
        for item in list(self._framer.feed(block)):
            yield from self._item(item)
        yield from self._counted()

    def finish(self) -> Iterator[Answer]:
        for item in list(self._framer.finish()):
            yield from self._item(item)
        yield from self._counted()

    def ended_well(self) -> Iterator[Answer]:
        if self._marks is None or self._marks.complete():
            yield Ack(END)

    def _item(self, item: Lines | Oversized) -> Iterator[Answer]:
        if isinstance(item, Oversized):
            self._unparsed.count("oversized_line")
            return
        records = 0
        for raw in bytes(item.data).split(b"\n"):
            if raw.startswith(_OUR_RECORD):
                records += 1
            elif raw.strip():
                yield from self._line(raw)
        if records:
            self._unparsed.count("echoed_message:RECORD", records)

    def _line(self, raw: bytes) -> Iterator[Answer]:
        message = _MESSAGE.match(raw)
        if message is not None:
            # Not a state: a program that copies its input to stdout has written nothing.
            self._unparsed.count(f"echoed_message:{message.group(1).decode()}")
            return
        try:
            value = exact(raw)
        except FAULTS:
            yield from _answers(self._unparsed.report("text_line", raw))
            return
        if self._marks is None:
            self._unparsed.count("state_unused")
            return
        guessed = self._marks.guessed
        acked = self._marks.echo(value)
        if acked is None:
            self._unparsed.count("state_unmatched")
            return
        if self._marks.guessed > guessed:
            yield SkippedItems(GUESSED_ACK)
        for seq in acked:
            self.beats += 1
            yield Ack(seq)

    def _counted(self) -> Iterator[Answer]:
        yield from _answers(self._unparsed.counted())


def _answers(events: Iterator[Event]) -> Iterator[Answer]:
    for event in events:
        if isinstance(event, SkippedItems | LogEvent):
            yield event
