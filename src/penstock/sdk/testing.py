"""Acts as the host of a connector in tests, in this process or with a connector process.

::

    host = ScriptedHost(connector)  # or ScriptedHost([sys.executable, "crm.py"])
    outcome = host.sync([{"id": 1}], stream="contacts")
    assert outcome.result == {"received": 1, "skipped": 0, "success": 1, "failed": 0}

It sends every message that hosts send, in either of the protocol's two dialects, and waits at most
``timeout``. In this process a sync finds what an earlier one stored (``host.store``); another
process keeps nothing, unless ``environment`` names a host's store.
"""

import queue
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import IO, Any, Literal

import msgspec

from penstock.sdk.connector import Connector
from penstock.sdk.process import converse
from penstock.sdk.store import InMemoryKeyStore, SyncStore
from penstock.sdk.syncmaven import Message

Dialect = Literal["code", "page"]


@dataclass
class Outcome:
    """``result``: the counters; None: none arrived. ``halt``: its payload. ``replies``: every
    message, in order. ``exit_code``: of another process that ended by itself; ``stderr``: its last
    lines there."""

    replies: list[Message] = field(default_factory=list[Message])
    exit_code: int | None = None
    stderr: str = ""

    @property
    def result(self) -> Message | None:
        return next(iter(self.of("stream-result")), None)

    @property
    def halt(self) -> Message | None:
        return next(iter(self.of("halt")), None)

    @property
    def logs(self) -> list[tuple[str, str]]:
        return [(line["level"], line["message"]) for line in self.of("log")]

    def of(self, *kinds: str) -> list[Message]:
        """Returns the payloads of these types."""
        return [reply["payload"] for reply in self.replies if reply["type"] in kinds]


class ScriptedHost:
    """``connector``: an object, or a command. ``dialect``: ``code``, the real host's, or ``page``,
    the specification's: with its own names, and fields next to the type."""

    def __init__(
        self,
        connector: Connector | Sequence[str],
        *,
        dialect: Dialect = "code",
        environment: Mapping[str, str] | None = None,
        timeout: float = 30.0,
    ) -> None:
        self._connector, self._by_page = connector, dialect == "page"
        self._environment, self._timeout = dict(environment or {}), timeout
        self.store = InMemoryKeyStore()
        self.row_errors: dict[int, str] = {}

    def describe(self) -> Message:
        """Returns the payload of its ``spec``."""
        return self._only("spec", [{"type": "describe"}])

    def describe_streams(self, credentials: Mapping[str, Any] | None = None) -> Message:
        """Returns the payload of its ``stream-spec``."""
        given = {"success": True, "data": dict(credentials or {})}  # as the real host wraps them
        asked = self._message("describe-streams", credentials=given)
        return self._only("stream-spec", [asked])

    def sync(
        self,
        rows: Iterable[Any],
        *,
        stream: str | None = None,
        credentials: Mapping[str, Any] | None = None,
        options: Mapping[str, Any] | None = None,
        sync_id: str = "test",
        full_refresh: bool = False,
    ) -> Outcome:
        """Runs one sync of a stream; None: of the default one."""
        start = self._message(
            "start-stream",
            stream=stream or self.describe_streams(credentials)["defaultStream"],
            connectionCredentials=dict(credentials or {}),
            streamOptions=dict(options or {}),
            syncId=sync_id,
            fullRefresh=full_refresh,
        )
        sent = [self._message("row", row=row) for row in rows]
        end = {"type": "end-stream", "reason": "success"}
        return self.converse([start, *sent, end], until=("stream-result", "halt"))

    def enrich(
        self,
        rows: Iterable[Any],
        *,
        credentials: Mapping[str, Any] | None = None,
        options: Mapping[str, Any] | None = None,
        sync_id: str = "test",
    ) -> list[list[Any]]:
        """Returns for each row the rows it became; an empty list for one that could not be
        enriched, whose position and reason are in ``self.row_errors``. Raises ``AssertionError``
        where it halts."""
        start = self._message(
            "start-enrichment" if self._by_page else "enrichment-connect",
            credentials=dict(credentials or {}),
            options=dict(options or {}),
            syncId=sync_id,
        )
        asked = [self._message("enrichment-request", row=row) for row in rows]
        kind = "enrichment-reply" if self._by_page else "enrichment-response"
        outcome = self.converse([start, *asked], until=(kind, "halt"), count=len(asked))
        assert outcome.halt is None, f"the connector halted: {outcome.halt}"
        answers = outcome.of(kind)
        self.row_errors = {n: a["error"] for n, a in enumerate(answers) if "error" in a}
        found = [answer["row"] for answer in answers]
        assert len(found) == len(asked), f"{len(found)} answers to {len(asked)} requests"
        return [row if isinstance(row, list) else [row] for row in found]

    def converse(
        self, messages: Sequence[Message | bytes], *, until: Sequence[str] = (), count: int = 1
    ) -> Outcome:
        """Sends messages, or raw lines. A process is read until ``count`` replies of the types
        ``until``, or one halt, or its end."""
        lines = [m if isinstance(m, bytes) else msgspec.json.encode(m) + b"\n" for m in messages]
        if isinstance(self._connector, Connector):
            outcome = Outcome()

            def heard(message: Message) -> None:
                outcome.replies.append(msgspec.json.decode(msgspec.json.encode(message)))

            converse(self._connector, lines, heard, lambda id_: SyncStore(self.store, id_))
            return outcome
        return self._in_process(self._connector, lines, until, count)

    def _only(self, kind: str, messages: list[Message]) -> Message:
        outcome = self.converse(messages, until=(kind, "halt"))
        found = outcome.of(kind)
        assert found, f"no {kind} came: {outcome}"
        return found[0]

    def _message(self, kind: str, **fields: Any) -> Message:
        if self._by_page:
            return {"type": kind, "direction": "incoming", **fields}
        return {"type": kind, "payload": fields}

    def _in_process(
        self, command: Sequence[str], lines: list[bytes], until: Sequence[str], count: int
    ) -> Outcome:
        outcome, deadline = Outcome(), time.monotonic() + self._timeout
        with tempfile.TemporaryFile() as stderr:
            process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                env=self._environment,
            )
            heard: queue.Queue[bytes | None] = queue.Queue()
            talk = [
                threading.Thread(target=_write, args=(process, lines), daemon=True),
                threading.Thread(target=_read, args=(process, heard), daemon=True),
            ]
            for thread in talk:
                thread.start()
            try:
                while until and count > 0:
                    line = heard.get(timeout=max(0.01, deadline - time.monotonic()))
                    if line is None:
                        outcome.exit_code = process.wait(self._timeout)
                        break
                    outcome.replies.append(msgspec.json.decode(line))
                    kind = outcome.replies[-1]["type"]
                    count -= (kind in until) if kind != "halt" else count
            except queue.Empty:
                outcome.stderr = _tail(stderr)
                raise AssertionError(
                    f"nothing of {', '.join(until)} came within {self._timeout:g} s: {outcome}"
                ) from None
            finally:
                process.terminate()
                try:
                    process.wait(5)
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.wait()
                for thread in talk:
                    thread.join(5)
            outcome.stderr = _tail(stderr)
        return outcome


def _tail(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read()[-2000:].decode(errors="replace")


def _write(process: subprocess.Popen[bytes], lines: list[bytes]) -> None:
    assert process.stdin is not None
    try:
        for line in lines:
            process.stdin.write(line)
        process.stdin.flush()  # it stays open, like a host's
    except (BrokenPipeError, ValueError):
        return


def _read(process: subprocess.Popen[bytes], heard: "queue.Queue[bytes | None]") -> None:
    assert process.stdout is not None
    for line in process.stdout:
        heard.put(line)
    heard.put(None)
