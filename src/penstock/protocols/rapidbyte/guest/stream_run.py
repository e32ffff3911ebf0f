"""Runs one stream of a component: frames in, events out, in order.

``read`` (source), ``write`` (destination) and ``apply`` (transform) yield ``events``; the last one
is ``RunEnded``, also after a failure. Closing the generator early ends the component: its next emit
is refused, and the events yielded so far stand. Frames reach the guest through an inbox that
another thread fills (the caller's, or one started here), so that a slow guest slows its feed down.
A feed that raises reaches the guest as an error of ``next-batch``, so that it rolls back; only a
feed that ends normally ends its stream. Neighbours: ``guest_thread`` (the guest's own thread),
``probe`` (check and discover). Source: the protocol, sections 3 and 7.
"""

import threading
from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager

from penstock.byte_queue import ByteQueue, QueueAbandoned, QueueEnd
from penstock.model.catalog import StreamId
from penstock.protocols.rapidbyte.guest.events import RunEnded, StageEvent
from penstock.protocols.rapidbyte.guest.guest_thread import GuestRun, Inbox, Outbox
from penstock.protocols.rapidbyte.guest.stage import Stage
from penstock.protocols.rapidbyte.wire.arrow_ipc import split_frames
from penstock.protocols.rapidbyte.wire.compression import Bytes, CompressedFrame
from penstock.protocols.rapidbyte.wire.messages import RunRequest, StreamContext, StreamLimits


def read(
    stage: Stage,
    context: StreamContext,
    tick: float | None = None,
    *,
    dry_run: bool = False,
    max_records: int | None = None,
) -> Iterator[StageEvent]:
    """Runs a source. ``tick``: seconds without an event before ``Quiet`` is yielded.
    ``max_records``: the row cap."""
    request = RunRequest(phase="read", context=context, dry_run=dry_run, max_records=max_records)
    return _run_stream(stage, request, tick=tick)


def write(
    stage: Stage, context: StreamContext, feed: Iterable[Bytes] | Inbox
) -> Iterator[StageEvent]:
    """Runs a destination. ``feed``: complete Arrow IPC streams. An inbox is filled by the caller's
    own thread, with frames of at most ``max_batch_bytes``. An iterable is drawn on a thread started
    here, at the component's pace, and larger frames, which it would refuse, are split."""
    return _run_stream(stage, RunRequest(phase="write", context=context), feed)


def apply(
    stage: Stage, context: StreamContext, feed: Iterable[Bytes], *, dry_run: bool = False
) -> Iterator[StageEvent]:
    """Runs a transform, fed as in :func:`write`. The frames that it emits are among the events;
    their number need not be that of the frames fed."""
    return _run_stream(stage, RunRequest(phase="transform", context=context, dry_run=dry_run), feed)


def _run_stream(
    stage: Stage,
    request: RunRequest,
    feed: Iterable[Bytes] | Inbox | None = None,
    tick: float | None = None,
) -> Iterator[StageEvent]:
    out = Outbox(stage.pressure)
    inbox = feed if feed is None or isinstance(feed, Inbox) else Inbox(stage.pressure)
    frames = None if inbox is None else inbox.pipe
    owner = stage.owner or StreamId.of(None, request.context.stream_name).key
    run = GuestRun(stage, request, stage.host(owner, frames, out), out)
    with run, _feeding(feed, inbox, stage, request, run):
        try:
            while not isinstance(event := run.next(tick), QueueEnd):
                if isinstance(event, RunEnded):
                    run.join()
                    yield _timed(event, frames, out)
                    return
                yield event
        finally:
            # The reader has left, or has everything: no thread may wait on these queues now.
            out.pipe.abandon()
            if frames is not None:
                frames.abandon()


def _timed(
    ended: RunEnded, frames: ByteQueue[Bytes | CompressedFrame] | None, out: Outbox
) -> RunEnded:
    ended.waited = out.pipe.put_waited + (frames.get_waited if frames is not None else 0.0)
    return ended


@contextmanager
def _feeding(
    feed: Iterable[Bytes] | Inbox | None,
    inbox: Inbox | None,
    stage: Stage,
    request: RunRequest,
    run: GuestRun,
) -> Generator[None]:
    """Fills the inbox from an iterable feed, on a separate thread, while the block runs."""
    if inbox is None or feed is None or isinstance(feed, Inbox):
        yield
        return
    fits = split_frames(feed, (request.context.limits or StreamLimits()).max_batch_bytes)

    def draw() -> None:
        try:
            for frame in fits:
                try:
                    inbox.put(frame, stage.bounds.timeout)
                except QueueAbandoned:
                    return  # the connector takes no more
        except BaseException as e:
            inbox.pipe.fail(e)
        else:
            inbox.pipe.end()

    thread = threading.Thread(target=draw, name="penstock-feed", daemon=True)
    thread.start()
    try:
        yield
    finally:
        inbox.pipe.abandon()
        thread.join(run.closing)
