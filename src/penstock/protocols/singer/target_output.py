"""What a Singer target prints on stdout: bare states.

Each line of stdout is one state value, not wrapped; blank lines and ``{}`` occur (reference §0.4).
Nothing here is fatal. Neighbours: ``state_echoes`` says what a value stands for,
``protocols.stdio.write`` brings the blocks.
"""

import re
from collections.abc import Iterator

from penstock.codec.exact_json import exact
from penstock.codec.framing import LineFramer, Lines, Oversized
from penstock.model.events import Counted, Event, Log
from penstock.protocols.contract import END, GUESSED_ACK, Ack, Answer
from penstock.protocols.singer.state_echoes import Marks
from penstock.protocols.stdio.json_lines import FAULTS
from penstock.protocols.stdio.unparsed import Noise

MAX_STATE_BYTES = 64 << 20
_OUR_RECORD = b'{"type":"RECORD"'  # as ``outgoing`` writes it
_MESSAGE = re.compile(rb'\{\s*"type"\s*:\s*"([A-Za-z_]{1,64})"')


class Replies:
    """``Hearing`` of ``protocols.stdio.write``. ``marks`` None: echoes are no acks, a good end
    is."""

    def __init__(self, marks: Marks | None) -> None:
        self.beats = 0
        self.failed = False
        self._marks = marks
        self._framer = LineFramer(MAX_STATE_BYTES, role="destination")
        self._noise = Noise()

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
            self._noise.count("oversized_line")
            return
        records = 0
        for raw in bytes(item.data).split(b"\n"):
            if raw.startswith(_OUR_RECORD):
                records += 1
            elif raw.strip():
                yield from self._line(raw)
        if records:
            self._noise.count("echoed_message:RECORD", records)

    def _line(self, raw: bytes) -> Iterator[Answer]:
        message = _MESSAGE.match(raw)
        if message is not None:
            # A message is no state: a program that passes its input on wrote nothing down.
            self._noise.count(f"echoed_message:{message.group(1).decode()}")
            return
        try:
            value = exact(raw)
        except FAULTS:
            yield from _answers(self._noise.noise("text_line", raw))
            return
        if self._marks is None:
            self._noise.count("state_unused")
            return
        guessed = self._marks.guessed
        acked = self._marks.echo(value)
        if acked is None:
            self._noise.count("state_unmatched")
            return
        if self._marks.guessed > guessed:
            yield Counted(GUESSED_ACK)
        for seq in acked:
            self.beats += 1
            yield Ack(seq)

    def _counted(self) -> Iterator[Answer]:
        yield from _answers(self._noise.counted())


def _answers(events: Iterator[Event]) -> Iterator[Answer]:
    for event in events:
        if isinstance(event, Counted | Log):
            yield event
