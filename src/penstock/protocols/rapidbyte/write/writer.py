"""Many streams written at once by a destination that writes one stream a run.

One thread draws the feed and gives each stream's frames to its run. A run begins with the first
rows of its stream and ends when the stream is complete, when rows have another schema, and as
``run_pool`` says: its end is a commit, so that a stream of many runs loses nothing. A stream that
replaces what is there is one run, begun anew only for its next generation. Not here: what a run
tells (``answers``), what the engine asks of the role (``rapidbyte.destination``). Source: the
protocol, sections 3.2, 6 and 7.
"""

import threading
import time
from collections.abc import Generator, Iterator

from penstock.byte_queue import Abandoned, TooLong
from penstock.errors import DestinationError
from penstock.model.catalog import StreamId
from penstock.model.events import Error, Exited, Tick
from penstock.protocols.contract import (
    Answer,
    Feed,
    Rows,
    StateMark,
    StreamDone,
    WriteRequest,
    WriteStream,
)
from penstock.protocols.rapidbyte.guest import errors
from penstock.protocols.rapidbyte.wire.compression import Bytes
from penstock.protocols.rapidbyte.wire.messages import Refusal
from penstock.protocols.rapidbyte.write.answers import Hearing
from penstock.protocols.rapidbyte.write.frame_encoder import Frames
from penstock.protocols.rapidbyte.write.run_pool import (
    CLOSING_SECONDS,
    LiveRuns,
    Stopped,
    StreamRun,
)
from penstock.protocols.rapidbyte.write.write_context import Terms, replaces

_LOOK = 1.0


class Writer:
    """One write. ``terms``: what holds for all of its runs."""

    def __init__(self, terms: Terms, request: WriteRequest) -> None:
        self._terms, self._request = terms, request
        self._streams = {s.id: s for s in request.streams}
        self._hearing = Hearing(terms, request)
        self._live = LiveRuns(terms, self._hearing.hear, self._hearing.over)
        self._frames: dict[tuple[StreamId, int], Frames] = {}
        self._filled: set[StreamId] = set()  # has rows of a generation that is not done
        self._replaced: set[StreamId] = set()  # has a generation that is done
        self._told_failed: dict[StreamId | None, bool] = {}  # may it be tried again?
        self._failure: BaseException | None = None
        self._looked_at = time.monotonic()

    def answers(self, feed: Iterator[Feed]) -> Generator[Answer]:
        """As ``DestinationConversation.write``."""
        began = ticked = time.monotonic()
        total, tick = self._request.timeouts.total, self._request.tick
        feeding = threading.Thread(target=self._draw, args=(feed,), name="feeder", daemon=True)
        feeding.start()
        try:
            while (answer := self._hearing.next(tick)) is not None:
                yield answer
                if self._may_begin_anew(answer):
                    yield Exited(1)
                    return
                now = time.monotonic()
                if total is not None and now - began > total:
                    yield errors.timed_out(total)
                    yield Exited(None)
                    return
                if now - ticked >= tick:
                    ticked = now
                    yield Tick()
            if self._failure is not None:
                raise self._failure
            yield Exited(1 if self._hearing.failed else 0)
        finally:
            self._give_up(feeding)

    def _may_begin_anew(self, answer: Answer) -> bool:
        """Every stream has failed, and each may be tried again: the end of the input, which may be
        hours away, brings nothing."""
        if isinstance(answer, Error):
            self._told_failed[answer.stream] = answer.retry is not None
        failed = self._told_failed
        return bool(failed) and all(failed.values()) and failed.keys() >= set(self._streams)

    def _give_up(self, feeding: threading.Thread) -> None:
        """Nothing to do after a whole write."""
        runs = self._live.stop()
        self._hearing.deafen()
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
        except (Stopped, Abandoned):
            self._live.stop()  # nobody listens any more
        except BaseException as e:  # whatever it is: the guests must not take it for the end
            self._failure = e
            self._live.fail_all(e)
        finally:
            self._hearing.close()

    def _take(self, item: Feed) -> None:
        match item:
            case Rows():
                self._rows(item)
            case StateMark():
                self._mark(item)
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
            raise errors.unknown(rows.stream)
        if not rows.batch.num_rows:
            return
        if not stream.schemas[rows.version].fields:
            self._fail(stream.id, errors.without_columns(stream.id))
        try:
            if not self._given(stream, rows):
                self._hearing.marks.fed(stream.id)  # and never covered
        except Refusal as e:
            self._hearing.marks.fed(stream.id)
            self._fail(stream.id, errors.refused(stream.id, e))

    def _given(self, stream: WriteStream, rows: Rows) -> bool:
        """False: the stream has failed."""
        run = self._run_of(stream, rows.version)
        if run is None:
            return False
        frames = self._frames_of(stream, rows.version)
        return all(self._give(run, frame) for frame in frames.of(rows.batch))

    def _mark(self, mark: StateMark) -> None:
        """A generation without rows is there once its stream is done, and not before."""
        stream = mark.state.scope.stream
        known = None if stream is None else self._streams.get(stream)
        waits = known is not None and replaces(known)
        ahead = waits and stream not in self._filled | self._replaced
        self._hearing.acked(self._hearing.marks.add(mark.seq, stream, ahead=ahead))

    def _done(self, stream: StreamId) -> None:
        known = self._streams.get(stream)
        if known is None or self._hearing.has_failed(stream):
            return
        if replaces(known):
            if stream not in self._filled:
                run = self._run_of(known, known.latest)
                if run is not None:
                    self._give(run, self._frames_of(known, known.latest).empty())
            self._filled.discard(stream)
            self._replaced.add(stream)
        run = self._live.get(stream)
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
        """The stream's run, begun if need be; None: the stream has failed."""
        run, waited = self._live.get(stream.id), self._live.waited
        if run is not None and run.version != version and not replaces(stream):
            run.end()
        if run is not None and run.ended:
            self._live.await_end(run)
            run = None
        if run is None and not self._hearing.has_failed(stream.id):
            if stream.id in self._filled:
                self._fail(stream.id, errors.split(stream.id))
            else:
                position = self._hearing.marks.position(stream.id)
                run = self._live.begin(stream, version, position)
        self._terms.runtime.stats.write_seconds += self._live.waited - waited
        if run is None or self._hearing.has_failed(stream.id):
            return None
        self._live.used(run)
        if replaces(stream):
            self._filled.add(stream.id)
        return run

    def _give(self, run: StreamRun, frame: Bytes) -> bool:
        """False: its stream has failed."""
        stats, heartbeat = self._terms.runtime.stats, self._request.timeouts.heartbeat
        waited = run.put_waited
        run.given += 1
        self._hearing.marks.fed(run.stream.id)
        try:
            run.put(frame, heartbeat)
        except Abandoned:
            self._live.check()
            return False  # its own end says why
        except TooLong:
            self._fail(run.stream.id, errors.stalled(run.stream.id, heartbeat))
            return False
        finally:
            stats.write_seconds += run.put_waited - waited
        stats.written += len(frame)
        return True

    def _frames_of(self, stream: WriteStream, version: int) -> Frames:
        key = (stream.id, version)
        if key not in self._frames:
            self._frames[key] = self._terms.frames(stream.schemas[version])
        return self._frames[key]

    def _fail(self, stream: StreamId, error: DestinationError) -> None:
        self._hearing.fail(stream, error)
        run = self._live.get(stream)
        if run is not None:
            run.fail(error)
