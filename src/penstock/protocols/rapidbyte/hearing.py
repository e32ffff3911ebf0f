"""What the runs of a destination tell, as answers: acks, lines, rejects, metrics, failures.

Called from the runs' threads; one queue holds the answers until they are taken. A checkpoint acks
what its run took before it, a good end all that its run was given. A run that replaces acks by its
good end only: until then its rows are nowhere to be seen. Neighbours: ``acks`` counts, ``writer``
runs. Source: the protocol, sections 4.2, 5 and 7.
"""

import threading
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

import msgspec

from penstock.errors import PenstockError
from penstock.model.catalog import StreamId
from penstock.model.events import Counted, Error, Log, Measured, Reject, Tick
from penstock.protocols.contract import Ack, Acks, Answer, WriteRequest
from penstock.protocols.rapidbyte.acks import Marks
from penstock.protocols.rapidbyte.answers import line
from penstock.protocols.rapidbyte.pipe import Abandoned, End, Pipe, TooLong
from penstock.protocols.rapidbyte.run_errors import error_of, retry_after
from penstock.protocols.rapidbyte.stream_run import StreamRun
from penstock.protocols.rapidbyte.terms import Terms, replaces, table_name
from penstock.protocols.rapidbyte.told import (
    Checkpoint,
    Ended,
    Frame,
    Logged,
    PutAside,
    Quiet,
    Told,
)
from penstock.protocols.rapidbyte.write_errors import ended_early, put_aside

_KIND = 1
_WAITING = 16 << 20  # bytes of answers that nobody has taken
_SMALL = 256


class Hearing:
    """``failed``: a stream has."""

    def __init__(self, terms: Terms, request: WriteRequest) -> None:
        self._terms, self._request = terms, request
        self._answers: Pipe[Answer] = Pipe(_WAITING)
        self._lock = threading.Lock()
        self._failed: set[StreamId] = set()
        self._keys: dict[str, int] = {}  # scope -> its last checkpoint that stands for rows
        self.marks = Marks()

    @property
    def failed(self) -> bool:
        return bool(self._failed)

    def has_failed(self, stream: StreamId) -> bool:
        return stream in self._failed

    def next(self, seconds: float) -> Answer | None:
        """``Tick`` where none came; None: there will be none."""
        try:
            answer = self._answers.get(seconds)
        except TooLong:
            return Tick()
        return None if isinstance(answer, End) else answer

    def close(self) -> None:
        """All was told."""
        self._answers.end()

    def deafen(self) -> None:
        """Nobody takes an answer any more; whoever tells something hears so."""
        self._answers.abandon()

    def acked(self, seqs: Iterable[int]) -> None:
        for seq in seqs:
            self._tell(Ack(seq, tuple(self._keys.items())))

    def fail(self, stream: StreamId, error: PenstockError) -> None:
        """A failure that we found. The first one of a stream counts."""
        code = f"destination.{error.code.removeprefix('connector.').removeprefix('destination.')}"
        raw = {**(error.connector or {}), "code": code, "hint": error.hint}
        self._fail(Error(error.message, "system_error", stream, raw))

    # -- from a run's thread

    def hear(self, run: StreamRun, told: Told) -> None:
        stream = run.stream.id
        match told:
            case Checkpoint():
                self._checkpoint(run, told)
            case Logged():
                self._tell(line(told), len(told.message))
            case PutAside():
                self._put_aside(stream, told)
            case Ended():
                self._ended(run, told)
            case Frame() | Quiet():
                pass  # a destination has no stage after it: its host refused

    def over(self, run: StreamRun, failure: PenstockError | None) -> None:
        """It has ended; ``failure``: what kept it from telling how."""
        if failure is not None and not run.broken:
            with suppress(Abandoned):
                self.fail(run.stream.id, failure)

    def _checkpoint(self, run: StreamRun, told: Checkpoint) -> None:
        """As in v4 the call's kind and the payload's stream decide; ``strict``: its own kind
        too."""
        payload = told.payload
        if payload is None:
            self._tell(Log("WARN", f"a checkpoint that is none: {told.problem}"))
            self._tell(Counted("malformed:checkpoint"))
            return
        strict = self._request.acks is Acks.strict
        ours = told.kind == _KIND and payload.stream == table_name(run.stream.target)
        if not ours or (strict and payload.kind != "dest"):
            said = f"kind {told.kind} ({payload.kind}) of stream {payload.stream!r}"
            text = f"a checkpoint that is not this destination's of {run.stream.target}: {said}"
            self._tell(Log("WARN", text))
            self._tell(Counted("foreign:checkpoint"))
        elif self._request.acks is not Acks.at_end and not replaces(run.stream):
            self._cover(run.stream.id, told.keys, run.base + told.frames)

    def _put_aside(self, stream: StreamId, told: PutAside) -> None:
        letter = told.letter
        if self._terms.settings.on_data_error == "skip":
            self._tell(Counted(f"skipped:{letter.error_category}", stream=stream))
            return
        raw = letter.record_json.encode()
        reason = f"{letter.error_category}: {letter.error_message}"
        if self._terms.settings.on_data_error == "fail":
            self.fail(stream, put_aside(stream, reason))
            return
        self._tell(Reject(stream, reason, raw), len(raw))

    def _ended(self, run: StreamRun, told: Ended) -> None:
        stream = run.stream.id
        if told.metrics:
            series: list[dict[str, Any]] = msgspec.to_builtins(told.metrics)
            self._tell(Measured(stream, series))
        self._terms.runtime.spoke |= told.summary is not None
        if run.broken:
            return  # its feed had failed first
        if told.error is not None:
            allowed = self._terms.settings.resources.max_retries
            retry = retry_after(told, self._request.attempt, allowed)
            self._fail(error_of(told, stream, retry, "destination"))
        elif not run.ended or told.frames_in < run.given:
            self.fail(stream, ended_early(stream))
        else:
            self._cover(stream, told.keys, run.base + run.given)

    def _cover(self, stream: StreamId, keys: int, frames: int) -> None:
        """Its first ``frames`` frames are written for good."""
        if stream in self._failed:
            return
        if keys:
            self._keys[stream.key] = max(keys, self._keys.get(stream.key, 0))
        self.acked(self.marks.covered(stream, frames))

    def _fail(self, error: Error) -> None:
        with self._lock:
            if error.stream is None or error.stream in self._failed:
                return
            self._failed.add(error.stream)
        self._tell(error)

    def _tell(self, answer: Answer, size: int = 0) -> None:
        """Raises ``Abandoned``: nobody listens."""
        patience = self._request.timeouts.heartbeat
        self._answers.put(answer, size + _SMALL, patience)
