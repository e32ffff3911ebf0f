"""Writes many streams in parallel to a destination that writes one stream a run.

Input: the engine's feed of rows and states. Output: answers. One thread draws the feed and gives
each stream's frames to its run. A run begins with the first rows of its stream. It ends when the
stream is complete, when rows have another schema, or when ``run_pool`` ends it; its end commits, so
a stream may be written in many runs. A stream that replaces rows is written in one run for each
generation. Not here: the events of a run (``answers``), the role (``rapidbyte.destination``).
Source: the protocol, sections 3.2, 6 and 7.
"""

import threading
import time
from collections.abc import Generator, Iterator

from penstock.byte_queue import QueueAbandoned, TooLong
from penstock.errors import DestinationError
from penstock.model.catalog import StreamId
from penstock.model.events import ConnectorExited, Error, Tick
from penstock.protocols.rapidbyte.guest import errors
from penstock.protocols.rapidbyte.wire.compression import Bytes
from penstock.protocols.rapidbyte.wire.messages import Refusal
from penstock.protocols.rapidbyte.write.answers import Answers
from penstock.protocols.rapidbyte.write.frame_encoder import FrameEncoder
from penstock.protocols.rapidbyte.write.run_pool import (
    CLOSING_SECONDS,
    LiveRuns,
    StreamRun,
    WriteStopped,
)
from penstock.protocols.rapidbyte.write.write_context import WriteSettings, replaces
from penstock.protocols.writing import (
    Answer,
    Feed,
    Rows,
    StateMark,
    StreamDone,
    WriteRequest,
    WriteStream,
)

_LOOK = 1.0


class Writer:
    """One write, of all streams of a request."""

    def __init__(self, terms: WriteSettings, request: WriteRequest) -> None:
        self._terms, self._request = terms, request
        self._streams = {s.id: s for s in request.streams}
        self._answers = Answers(terms, request)
        self._live = LiveRuns(terms, self._answers.on_event, self._answers.on_over)
        self._encoders: dict[tuple[StreamId, int], FrameEncoder] = {}
        self._filled: set[StreamId] = set()  # has rows of an unfinished generation
        self._replaced: set[StreamId] = set()  # has a finished generation
        self._retryable: dict[StreamId | None, bool] = {}  # of the streams that have failed
        self._failure: BaseException | None = None
        self._looked_at = time.monotonic()

    def answers(self, feed: Iterator[Feed]) -> Generator[Answer]:
        """Feeds the runs and yields their answers, as ``DestinationConversation.write``
        requires."""
        began = ticked = time.monotonic()
        total, tick = self._request.timeouts.total, self._request.tick
        feeding = threading.Thread(target=self._draw, args=(feed,), name="feeder", daemon=True)
        feeding.start()
        try:
            while (answer := self._answers.next(tick)) is not None:
                yield answer
                if self._may_begin_anew(answer):
                    yield ConnectorExited(1)
                    return
                now = time.monotonic()
                if total is not None and now - began > total:
                    yield errors.timed_out(total)
                    yield ConnectorExited(None)
                    return
                if now - ticked >= tick:
                    ticked = now
                    yield Tick()
            if self._failure is not None:
                raise self._failure
            yield ConnectorExited(1 if self._answers.failed else 0)
        finally:
            self._give_up(feeding)

    def _may_begin_anew(self, answer: Answer) -> bool:
        """Returns whether every stream has failed and may be retried, so that the write need not
        continue to the end of its feed, which may be hours away."""
        if isinstance(answer, Error):
            self._retryable[answer.stream] = answer.retry is not None
        failed = self._retryable
        return bool(failed) and all(failed.values()) and failed.keys() >= set(self._streams)

    def _give_up(self, feeding: threading.Thread) -> None:
        """Stops all threads, within ``CLOSING_SECONDS``. After a complete write there are none."""
        runs = self._live.stop()
        self._answers.abandon()
        until = time.monotonic() + CLOSING_SECONDS
        feeding.join(max(0.0, until - time.monotonic()))
        for run in runs:
            run.join(max(0.0, until - time.monotonic()))

    # -- the thread that feeds

    def _draw(self, feed: Iterator[Feed]) -> None:
        try:
            for item in feed:
                self._live.check()
                self._take(item)
            self._end()
        except (WriteStopped, QueueAbandoned):
            self._live.stop()  # answers are no longer taken
        except BaseException as e:  # the guests must roll back, not see an end of input
            self._failure = e
            self._live.fail_all(e)
        finally:
            self._answers.close()

    def _take(self, item: Feed) -> None:
        match item:
            case Rows():
                self._rows(item)
            case StateMark():
                self._state(item)
            case StreamDone():
                self._done(item.stream)
            case WriteStream():
                self._streams[item.id] = item
            case Tick():
                pass
        now = time.monotonic()
        if now - self._looked_at >= _LOOK:
            self._looked_at = now
            self._live.end_stale(self._request.timeouts.heartbeat)

    def _rows(self, rows: Rows) -> None:
        stream = self._streams.get(rows.stream)
        if stream is None:
            raise errors.unannounced_stream(rows.stream)
        if not rows.batch.num_rows:
            return
        if not stream.schemas[rows.version].fields:
            self._fail(stream.id, errors.without_columns(stream.id))
        try:
            if not self._given(stream, rows):
                self._answers.acks.fed(stream.id)  # dropped rows: fed, and never covered
        except Refusal as e:
            self._answers.acks.fed(stream.id)
            self._fail(stream.id, errors.rows_too_large(stream.id, e))

    def _given(self, stream: WriteStream, rows: Rows) -> bool:
        """Gives rows to the run of their stream. Returns False where the stream has failed."""
        run = self._run_of(stream, rows.version)
        if run is None:
            return False
        encoder = self._encoder_of(stream, rows.version)
        return all(self._give(run, frame, count) for frame, count in encoder.of(rows.batch))

    def _state(self, mark: StateMark) -> None:
        """Adds a state to the tracker. Where a stream that replaces has no rows yet, its state also
        waits for the frame of the empty generation, which comes when the stream is done."""
        scope = mark.state.scope.stream
        stream = None if scope is None else self._streams.get(scope)
        waits = stream is not None and replaces(stream)
        ahead = waits and scope not in self._filled | self._replaced
        self._answers.ack(self._answers.acks.add(mark.seq, scope, ahead=ahead))

    def _done(self, done: StreamId) -> None:
        stream = self._streams.get(done)
        if stream is None or self._answers.has_failed(done):
            return
        if replaces(stream):
            if done not in self._filled:
                run = self._run_of(stream, stream.latest)
                if run is not None:
                    self._give(run, self._encoder_of(stream, stream.latest).empty(), 0)
            self._filled.discard(done)
            self._replaced.add(done)
        run = self._live.get(done)
        if run is not None:
            run.end()

    def _end(self) -> None:
        for run in self._live.all():
            stream = run.stream
            if replaces(stream) and not run.ended and stream.id in self._filled:
                self._fail(stream.id, errors.incomplete(stream.id))
            else:
                run.end()
        self._live.await_all()

    def _run_of(self, stream: WriteStream, version: int) -> StreamRun | None:
        """Returns the run of a stream, and starts it if necessary; None: the stream has failed."""
        run, waited = self._live.get(stream.id), self._live.waited
        if run is not None and run.version != version and not replaces(stream):
            run.end()
        if run is not None and run.ended:
            self._live.await_end(run)
            run = None
        if run is None and not self._answers.has_failed(stream.id):
            if stream.id in self._filled:
                self._fail(stream.id, errors.split(stream.id))
            else:
                position = self._answers.acks.position(stream.id)
                run = self._live.begin(stream, version, position)
        self._terms.runtime.stats.write_seconds += self._live.waited - waited
        if run is None or self._answers.has_failed(stream.id):
            return None
        self._live.used(run)
        if replaces(stream):
            self._filled.add(stream.id)
        return run

    def _give(self, run: StreamRun, frame: Bytes, rows: int) -> bool:
        """Puts a frame of ``rows`` rows into a run. Returns False where its stream has failed."""
        stats, heartbeat = self._terms.runtime.stats, self._request.timeouts.heartbeat
        waited = run.put_waited
        self._answers.acks.fed(run.stream.id)
        try:
            run.put(frame, rows, heartbeat)
        except QueueAbandoned:
            self._live.check()
            return False  # its Ended event has the error
        except TooLong:
            self._fail(run.stream.id, errors.stalled(run.stream.id, heartbeat))
            return False
        finally:
            stats.write_seconds += run.put_waited - waited
        stats.written += len(frame)
        return True

    def _encoder_of(self, stream: WriteStream, version: int) -> FrameEncoder:
        key = (stream.id, version)
        if key not in self._encoders:
            self._encoders[key] = self._terms.encoder(stream, version)
        return self._encoders[key]

    def _fail(self, stream: StreamId, error: DestinationError) -> None:
        self._answers.fail(stream, error)
        run = self._live.get(stream)
        if run is not None:
            run.fail(error)
