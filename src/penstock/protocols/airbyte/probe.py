"""Runs a command of an Airbyte connector that answers once (spec, check, discover), and finds the
answer in its output.

Not here: timeouts and the exit (``protocols.stdio.probe``), other messages (``side_messages``), the
commands (``questions``, ``source``).
"""

import time
from collections.abc import Callable, Iterator, Sequence

import msgspec

from penstock.codec.framing import LineFramer
from penstock.errors import Role
from penstock.model.events import Error, Event
from penstock.protocols.airbyte.enums import MESSAGE_TYPES
from penstock.protocols.airbyte.messages import ABSENT, LineOther
from penstock.protocols.airbyte.side_messages import SideMessages
from penstock.protocols.stdio import probe
from penstock.protocols.stdio.json_lines import FAULTS, is_json, too_deep
from penstock.protocols.stdio.read import ANSWER_BYTES, Watch, blocks, raw_lines
from penstock.protocols.stdio.spread_messages import SpreadMessage
from penstock.runtimes.contract import Argument, Runtime, RunTimeouts


class Answer(probe.CommandAnswer):
    """The answer of a command. ``body``: its JSON; None: there was none. ``error``: the last TRACE
    ERROR."""

    body: bytes | None = None
    error: Error | None = None
    too_deep: bool = False  # an object was nested too deeply to be read


class _AnswerLine(LineOther, gc=False):
    spec: msgspec.Raw = ABSENT
    connection_status: msgspec.Raw = msgspec.field(default=ABSENT, name="connectionStatus")
    catalog: msgspec.Raw = ABSENT


_ANSWER = msgspec.json.Decoder(_AnswerLine)


def ask(
    runtime: Runtime,
    arguments: Sequence[Argument],
    timeouts: RunTimeouts,
    expected: str,
    log: Callable[[Event], None],
    role: Role,
) -> Answer:
    """Runs a command and takes its first message of type ``expected``; its other messages go to
    ``log``. After the answer the connector has ``RunTimeouts.stop`` seconds to end."""
    answer = Answer()
    side_messages, spread = SideMessages(), SpreadMessage()
    framer = LineFramer(ANSWER_BYTES, role=role)
    with runtime.open(arguments, timeouts) as channel:

        def listen(watch: Watch) -> bool:
            answered = float("inf")
            for items in blocks(channel, framer, watch, timeouts.stop):
                for raw in raw_lines(items):
                    for whole in _messages(raw, spread):
                        for event in _answer_events(whole, expected, answer, side_messages):
                            log(event)
                if answer.body is not None:
                    answered = min(answered, time.monotonic())
                    if items is None or time.monotonic() - answered > timeouts.stop:
                        break
            return True

        probe.ask(channel, timeouts, listen, answer, role)
    for event in side_messages.counted():
        log(event)
    return answer


def _messages(raw: bytes, spread: SpreadMessage) -> Iterator[bytes]:
    """Yields a line, or the whole text of an object spread over lines, once it has ended. The lines
    of an object that does not end are yielded one by one, before the line that does not belong to
    it."""
    decoded = _decoded(raw)
    if spread.lines:
        if (decoded is None or decoded.type not in MESSAGE_TYPES) and spread.goes_on(raw):
            if spread.ended():
                yield b"\n".join(spread.release())
            return
        yield from spread.release()
    if decoded is not None or not spread.begins(raw):
        yield raw


def _decoded(raw: bytes) -> "_AnswerLine | None":
    try:
        return _ANSWER.decode(raw)
    except FAULTS:
        return None


def _answer_events(
    raw: bytes, expected: str, answer: Answer, side_messages: SideMessages
) -> Iterator[Event]:
    """Takes a message into ``answer``, or yields the events of any other message."""
    if not raw.strip():
        return
    line = _decoded(raw)
    if line is None:
        answer.too_deep |= too_deep(raw)
        yield from side_messages.report("not_a_message" if is_json(raw) else "text_line", raw)
        return
    if line.type.upper() == expected and answer.body is None:
        body = {"SPEC": line.spec, "CATALOG": line.catalog}.get(expected, line.connection_status)
        if body is not ABSENT:
            answer.body = bytes(body)
            return
    for event in side_messages.other(line, raw):
        if isinstance(event, Error):
            answer.error = event
        yield event
