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
from penstock.protocols.airbyte.messages import ABSENT, LineOther
from penstock.protocols.airbyte.side_messages import SideMessages
from penstock.protocols.stdio import probe
from penstock.protocols.stdio.read import ANSWER_BYTES, Watch, blocks, raw_lines
from penstock.runtimes.contract import Argument, Runtime, RunTimeouts


class Answer(probe.CommandAnswer):
    """The answer of a command. ``body``: its JSON; None: there was none. ``error``: the last TRACE
    ERROR."""

    body: bytes | None = None
    error: Error | None = None


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
    """Runs a command and takes its first message of the type ``expected``; its other messages go to
    ``log``. After the answer the connector has ``RunTimeouts.stop`` seconds to end."""
    answer = Answer()
    side_messages = SideMessages()
    framer = LineFramer(ANSWER_BYTES, role=role)
    with runtime.open(arguments, timeouts) as channel:

        def listen(watch: Watch) -> bool:
            answered = float("inf")
            for items in blocks(channel, framer, watch, timeouts.stop):
                for raw in raw_lines(items):
                    for event in _heard(raw, expected, answer, side_messages):
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


def _heard(
    raw: bytes, expected: str, answer: Answer, side_messages: SideMessages
) -> Iterator[Event]:
    """Takes a line into ``answer``, or yields the events of any other line."""
    if not raw.strip():
        return
    try:
        line = _ANSWER.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        yield from side_messages.report("text_line", raw)
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
