"""Sends a connector of either role one question (``describe``, ``describe-streams``), in its own
process.

Every wait is bounded (L11). The process is stopped once it has answered. Not here: rows
(``session``), what an answer means (``destination``, ``stream_specs``). Source: reference §1.4.
"""

import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Generic, TypeVar

from penstock.errors import DestinationError, PenstockError, Role, SourceError
from penstock.model.events import LogEvent, SkippedItems
from penstock.protocols.connection import EventSink
from penstock.protocols.syncmaven.host import Host
from penstock.protocols.syncmaven.messages import (
    HaltMessage,
    MalformedReply,
    Message,
    Reply,
    Spec,
    StreamSpecs,
    describe,
    describe_streams,
)
from penstock.protocols.syncmaven.reply_reader import ReplyReader
from penstock.runtimes.contract import ByteChannel, RunTimeouts

_STEP = 0.2  # seconds of one wait
_EXIT_SECONDS = 2.0  # between the end of stdout and the exit
_LAST_LINES = 3


E = TypeVar("E", bound=PenstockError)


@dataclass(frozen=True)
class ProbedRole(Generic[E]):
    """The role of the questioned connector: its noun in messages, its role, the class of its
    errors."""

    noun: str
    role: Role
    error: type[E]


DESTINATION = ProbedRole("destination", "destination", DestinationError)
ENRICHMENT = ProbedRole("enrichment", "transform", SourceError)

A = TypeVar("A", Spec, StreamSpecs)


def ask_spec(host: Host, timeouts: RunTimeouts, log: EventSink, party: ProbedRole[E]) -> Spec:
    """Returns the answer to ``describe``. Raises the party's error."""
    return _ask(host, describe(), "describe", Reply.spec, Spec, timeouts, log, party)


def ask_streams(
    host: Host, credentials: dict[str, object] | None, timeouts: RunTimeouts, log: EventSink
) -> StreamSpecs:
    """Returns the answer to ``describe-streams``; ``credentials`` None: without any. Raises
    ``DestinationError``."""
    line = describe_streams(credentials)
    reply = Reply.stream_spec
    return _ask(host, line, "describe-streams", reply, StreamSpecs, timeouts, log, DESTINATION)


def _ask(
    host: Host,
    line: bytes,
    question: str,
    reply: Reply,
    wanted: type[A],
    timeouts: RunTimeouts,
    log: EventSink,
    party: ProbedRole[E],
) -> A:
    bounds = [b for b in (timeouts.start, timeouts.total) if b is not None]
    bound = min(bounds)
    with host.question() as runtime, runtime.open((), timeouts, feed=True) as channel:
        until = time.monotonic() + bound
        _send(channel, line, until)
        for message in _heard(channel, until, log, party):
            if isinstance(message, wanted):
                return message
            if isinstance(message, HaltMessage):
                raise halted(message, question, party)
            if isinstance(message, MalformedReply) and message.reply == reply:
                raise party.error(
                    f"the {party.noun}'s answer to {question!r} cannot be read: {message.reason}",
                    code=f"{party.role}.invalid_answer",
                    hint="see its output in the log",
                )
        if time.monotonic() >= until:
            raise party.error(
                f"the {party.noun} did not answer {question!r} within {bound:g} s",
                code=f"{party.role}.timeout",
                hint="see its output in the log; if it is only slow to start, raise timeouts.start",
            )
        raise died(channel, f"before it answered {question!r}", party)


def _send(channel: ByteChannel, line: bytes, until: float) -> None:
    """Writes a line. A closed stdin is no error here: the output, which may have the reason, is
    read either way."""
    view = memoryview(line)
    with suppress(BrokenPipeError):
        while view and time.monotonic() < until:
            view = view[channel.write(view, _STEP) :]


def _heard(
    channel: ByteChannel, until: float, log: EventSink, party: ProbedRole[E]
) -> Iterator[Message | MalformedReply]:
    """Yields messages until the end of stdout, or until the time is up; the rest goes to
    ``log``."""
    reader = ReplyReader(party.role)
    ended = False
    while not ended and time.monotonic() < until:
        block = channel.read(min(_STEP, max(until - time.monotonic(), 0.0)))
        ended = block == b""
        items = reader.finish() if ended else reader.take(block or b"")
        for item in items:
            if isinstance(item, LogEvent | SkippedItems):
                log(item)
            elif isinstance(item, Message | MalformedReply):
                yield item


def halted(halt: HaltMessage, when: str, party: ProbedRole[E]) -> E:
    """Returns the error for a halt that can only be a refusal."""
    said = halt.message or "without a reason"
    return party.error(
        f"the {party.noun} halted at {when!r}: {said}",
        code=f"{party.role}.halted",
        hint="it refuses the connection or its configuration; its own message gives the reason",
        connector={"message": halt.message, "data": halt.data},
    )


def died(channel: ByteChannel, when: str, party: ProbedRole[E]) -> E:
    """Returns the error for a process that ended too early."""
    code = channel.wait(_EXIT_SECONDS)
    lines = [line for line in channel.stderr_tail().splitlines() if line.strip()]
    words = "\n".join(lines[-_LAST_LINES:])
    how = "closed its stdout" if code is None else f"exited with code {code}"
    if code is not None and code < 0:
        how = f"was killed by signal {-code}"
    said = f": {words}" if words else " and wrote nothing to stderr"
    return party.error(
        f"the {party.noun} {how} {when}{said}",
        code=f"{party.role}.exited",
        hint="see its last output in the log",
    )
