"""Runs a connector as a process: lines on stdin and stdout, logs as messages, a clean end. The
arguments show the host's protocol: an Airbyte command, or none for Syncmaven.

Stdout belongs to the protocol. What the connector prints, or writes to stderr by Python, becomes
log messages, since a host that never reads stderr would block the connector.
"""

import io
import logging
import os
import signal
import sys
import time
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from typing import Any, BinaryIO, NoReturn

import msgspec

from penstock.sdk import airbyte
from penstock.sdk.connector import Connector
from penstock.sdk.store import InMemoryKeyStore, KeyValueStore, RpcStore, SyncStore
from penstock.sdk.syncmaven import Message, Speaker

_BUFFER = 64 * 1024
_FLUSH_SECONDS = 1.0
_LEVELS = ((logging.ERROR, "error"), (logging.WARNING, "warn"), (logging.INFO, "info"))


def run(connector: Connector) -> NoReturn:
    """Serves the host and exits: an Airbyte host by its command, or a Syncmaven host until its
    input ends. SIGTERM ends both."""
    words = sys.argv[1:]
    asked = words[:1] in [[command] for command in airbyte.COMMANDS]
    as_source = bool(connector.sources) and (asked or not _takes_rows(connector))
    for each in (signal.SIGTERM, signal.SIGINT):  # how a host ends a connector
        signal.signal(each, _quit_source if as_source else _quit)
    out = os.fdopen(os.dup(1), "wb", buffering=_BUFFER if as_source else 0)
    os.dup2(2, 1)  # a child's output must not reach the host
    try:
        if as_source:
            code = _serve_airbyte(connector, words, out)
            out.close()
            sys.exit(code)

        def send(message: Message) -> None:
            out.write(msgspec.json.encode(message) + b"\n")

        finished = converse(connector, sys.stdin.buffer, send, host_store(os.environ))
        sys.exit(0 if finished else 1)
    except BrokenPipeError:
        os._exit(1)  # the host is gone


def _takes_rows(connector: Connector) -> bool:
    return bool(connector.streams) or connector.enrichment is not None


def _serve_airbyte(connector: Connector, words: list[str], out: BinaryIO) -> int:
    """Batches rows, for at most about a second; sends everything else at once."""
    flushed = time.monotonic()

    def send(message: Message) -> None:
        nonlocal flushed
        out.write(msgspec.json.encode(message) + b"\n")
        if message["type"] != "RECORD" or time.monotonic() - flushed > _FLUSH_SECONDS:
            out.flush()
            flushed = time.monotonic()

    with logging_to(lambda level, text: send(airbyte.log_message(level, text))):
        return airbyte.serve(connector, words, send)


def _quit(number: int, frame: Any) -> NoReturn:
    os._exit(0)


def _quit_source(number: int, frame: Any) -> NoReturn:
    os._exit(128 + number)  # not all rows were sent


def converse(
    connector: Connector,
    lines: Iterable[bytes],
    send: Callable[[Message], None],
    store_of: Callable[[str], KeyValueStore],
) -> bool:
    """Handles lines to their end; returns False if they ended inside a stream."""
    speaker = Speaker(connector, send, store_of)

    def say(level: str, text: str) -> None:
        send({"type": "log", "payload": {"level": level, "message": text}})

    with logging_to(say):
        for line in lines:
            speaker.take(line)
        if speaker.in_stream:
            logging.getLogger("penstock.sdk").error("the host's input ended before end-stream")
    return not speaker.in_stream


def host_store(environment: Any) -> Callable[[str], KeyValueStore]:
    if environment.get("RPC_URL"):
        return lambda sync_id: RpcStore(environment, sync_id)
    memory = InMemoryKeyStore()
    return lambda sync_id: SyncStore(memory, sync_id)


@contextmanager
def logging_to(say: Callable[[str, str], None]) -> Generator[None]:
    """Passes everything logged and printed inside to ``say``: its level (``error``, ``warn``,
    ``info``, ``debug``) and text."""
    handler = _Handler(say)
    root = logging.getLogger()
    before, level = root.handlers[:], root.level
    root.handlers[:] = [handler]
    root.setLevel(min(level, logging.INFO) or logging.INFO)
    try:
        with redirect_stdout(_Lines(say, "info")), redirect_stderr(_Lines(say, "warn")):
            yield
    finally:
        root.handlers[:] = before
        root.setLevel(level)


class _Handler(logging.Handler):
    def __init__(self, say: Callable[[str, str], None]) -> None:
        super().__init__()
        self._say = say

    def emit(self, record: logging.LogRecord) -> None:
        named = next((name for level, name in _LEVELS if record.levelno >= level), "debug")
        self._say(named, self.format(record))


class _Lines(io.TextIOBase):
    """A text file that logs its lines."""

    def __init__(self, say: Callable[[str, str], None], level: str) -> None:
        super().__init__()
        self._say, self._level, self._rest = say, level, ""

    def write(self, text: str, /) -> int:
        *lines, self._rest = (self._rest + text).split("\n")
        for line in lines:
            if line.strip():
                self._say(self._level, line)
        return len(text)

    def writable(self) -> bool:
        return True
