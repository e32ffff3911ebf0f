"""Reads a connector's stdout: lines in, messages out, however loosely they are written.

As in the real host, text before the first ``{`` of a line is dropped, JSON5 is read, and any other
line is a log line. The page does not require a message to be one line, and prints one over several:
an object whose first line begins with ``{`` may continue. Nothing here is fatal: a message of a
known type that lacks a part is logged as an error, counted, and returned as a
:class:`MalformedReply`. Not here: what a message means (``probe``, ``session``). Source: the
protocol page; reference §1.1.
"""

from collections.abc import Iterator
from contextlib import suppress
from typing import Any, cast

import msgspec

from penstock.codec.exact_json import floats
from penstock.codec.framing import LineFramer, Lines, Oversized
from penstock.errors import Role
from penstock.model.events import Event, LogEvent, SkippedItems
from penstock.protocols.stdio.json_lines import FAULTS, utf8_escapes
from penstock.protocols.stdio.spread_messages import SpreadMessage
from penstock.protocols.stdio.unparsed import UnparsedOutput
from penstock.protocols.syncmaven.messages import (
    Invalid,
    LogMessage,
    MalformedReply,
    Message,
    Reply,
    parse,
    reply_type,
)

MAX_LINE_BYTES = 64 << 20
_MAX_JSON5_BYTES = 256 << 10  # the reader of JSON5 is slow
Heard = Message | MalformedReply | Event
_SHOWN = 1000  # characters of a message
_TYPES = frozenset(Reply)


class ReplyReader:
    """Converts blocks of one process's stdout into messages and events. A log message becomes a
    ``LogEvent``."""

    def __init__(self, role: Role = "destination") -> None:
        self._framer = LineFramer(MAX_LINE_BYTES, role=role)
        self._unparsed = UnparsedOutput()
        self._spread = SpreadMessage(json5=True)

    def take(self, block: bytes) -> "Iterator[Heard]":
        for item in list(self._framer.feed(block)):
            yield from self._item(item)
        yield from self._unparsed.counted()

    def finish(self) -> "Iterator[Heard]":
        for item in list(self._framer.finish()):
            yield from self._item(item)
        yield from self._given_up()
        yield from self._unparsed.counted()

    def _item(self, item: Lines | Oversized) -> "Iterator[Heard]":
        if isinstance(item, Oversized):
            yield from self._given_up()
            self._unparsed.count("oversized_line")
            return
        for raw in bytes(item.data).split(b"\n"):
            if raw.strip():
                yield from self._line(raw)

    def _line(self, raw: bytes) -> "Iterator[Heard]":
        """Converts a line, or takes it into an object that is spread over lines."""
        message = _decoded(raw)
        if self._spread.lines:
            if not _is_reply(message) and self._spread.goes_on(raw):
                if self._spread.ended():
                    yield from self._whole(self._spread.release())
                return
            yield from self._given_up()
        if message is not None or not self._spread.begins(raw):
            yield from self._message(message, raw)

    def _whole(self, lines: list[bytes]) -> "Iterator[Heard]":
        raw = b"\n".join(lines)
        message = _decoded(raw)
        if message is not None:
            yield from self._message(message, raw)
            return
        for line in lines:
            yield from self._unparsed.report("text_line", line)

    def _given_up(self) -> "Iterator[Heard]":
        """Converts the lines of an object that did not end, each on its own."""
        for line in self._spread.release():
            yield from self._message(_decoded(line), line)

    def _message(self, message: dict[str, Any] | None, raw: bytes) -> "Iterator[Heard]":
        if message is None:
            yield from self._unparsed.report("text_line", raw)
            return
        type_ = reply_type(message)
        if type_ is None or type_ not in _TYPES or message.get("direction") == "incoming":
            yield from self._unparsed.report(f"unknown_type:{str(type_)[:64]}", raw)
            return
        try:
            found = parse(type_, message)
        except Invalid as e:
            self._unparsed.count(f"invalid_message:{type_}")
            text = raw[: _SHOWN * 4].decode(errors="replace")[:_SHOWN]
            yield LogEvent("ERROR", f"its {type_} message is dropped, as {e}: {text}")
            yield MalformedReply(type_, str(e))
            return
        if isinstance(found, LogMessage):
            yield LogEvent(found.level, found.text)
        else:
            yield found


def logged(event: "Message | Event") -> LogEvent | SkippedItems | None:
    """Returns what belongs in the log, as an event; None: it is a message."""
    return event if isinstance(event, LogEvent | SkippedItems) else None


def _is_reply(message: dict[str, Any] | None) -> bool:
    return message is not None and reply_type(message) in _TYPES


def _decoded(raw: bytes) -> dict[str, Any] | None:
    """Returns the object of a line, from its first ``{``; None: there is none."""
    start = raw.find(b"{")
    if start < 0:
        return None
    body = raw[start:]
    try:
        found = msgspec.json.decode(body)
    except FAULTS:
        found = _loosely(utf8_escapes(body))
    return cast(dict[str, Any], found) if isinstance(found, dict) else None


def _loosely(body: bytes) -> Any:
    with suppress(*FAULTS):
        return floats(body)
    if len(body) > _MAX_JSON5_BYTES:
        return None
    import json5  # 30 ms to import, and hardly ever needed

    try:
        return json5.loads(body.decode())
    except (ValueError, RecursionError):
        return None
