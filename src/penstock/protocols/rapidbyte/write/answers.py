"""What the runs of a destination tell, as answers: acks, lines, rejects, metrics, failures.

Called from the runs' threads; one queue holds the answers until they are taken. A checkpoint acks
what its run took before it, a good end all that its run was given. A run that replaces acks by its
good end only: until then its rows are nowhere to be seen. Neighbours: ``ack_tracker`` counts,
``writer`` runs. Source: the protocol, sections 4.2, 5 and 7.
"""

import threading
from collections.abc import Iterable
from contextlib import suppress

from penstock.byte_queue import Abandoned, ByteQueue, End, TooLong
from penstock.errors import PenstockError
from penstock.model.catalog import StreamId
from penstock.model.events import Counted, Error, Tick
from penstock.protocols.contract import Ack, Acks, Answer, WriteRequest, failure
from penstock.protocols.rapidbyte.guest.engine_events import faults, line, measured, rejected
from penstock.protocols.rapidbyte.guest.errors import ended_early, error_of, put_aside
from penstock.protocols.rapidbyte.guest.events import (
    Checkpoint,
    Ended,
    Frame,
    Logged,
    PutAside,
    Quiet,
    Told,
)
from penstock.protocols.rapidbyte.write.ack_tracker import Marks
from penstock.protocols.rapidbyte.write.run_pool import StreamRun
from penstock.protocols.rapidbyte.write.write_context import Terms, replaces, table_name

_WAITING = 16 << 20  # bytes of answers that nobody has taken
_SMALL = 256


class Hearing:
    """``failed``: a stream has."""

    def __init__(self, terms: Terms, request: WriteRequest) -> None:
        self._terms, self._request = terms, request
        self._answers: ByteQueue[Answer] = ByteQueue(_WAITING)
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
        self._fail(failure(error, stream, "destination"))

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
        stream, acks = run.stream, self._request.acks
        name, strict = table_name(stream.target), acks is Acks.strict
        wrong = faults(told, "destination", name, str(stream.target), strict=strict)
        for event in wrong:
            self._tell(event)
        if not wrong and acks is not Acks.at_end and not replaces(stream):
            self._cover(stream.id, told.keys, run.base + told.frames)

    def _put_aside(self, stream: StreamId, told: PutAside) -> None:
        reject = rejected(told, stream)
        if self._terms.settings.on_data_error == "skip":
            self._tell(Counted(f"skipped:{told.letter.error_category}", stream=stream))
        elif self._terms.settings.on_data_error == "fail":
            self.fail(stream, put_aside(stream, reject.reason))
        else:
            self._tell(reject, len(reject.raw))

    def _ended(self, run: StreamRun, told: Ended) -> None:
        stream = run.stream.id
        for event in measured(told, stream, self._terms.runtime.stats):
            self._tell(event)
        if run.broken:
            return  # its feed had failed first
        if told.error is not None:
            allowed = self._terms.settings.resources.max_retries
            attempt = self._request.attempt
            self._fail(error_of(told, stream, "destination", attempt, allowed))
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
