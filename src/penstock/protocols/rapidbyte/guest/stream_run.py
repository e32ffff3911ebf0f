"""Runs one stream of a component between a feed and a listener: frames in, events out, in order.

``read`` (source), ``write`` (destination) and ``apply`` (transform) yield ``events``; the last one
is ``Ended``, also after a failure. Closing the generator early ends the component: its next emit
is refused, and what was yielded stands. Frames reach the guest through an inbox that another thread
fills, the caller's or one that draws, so that a slow guest holds its feed back. A feed that fails
reaches it as an error of ``next-batch``, so that it rolls back; only a feed that ended well ends
its stream. Neighbours: ``guest_thread`` (the guest's own thread), ``probe`` (what is asked when no
stream runs). Source: the protocol, sections 3 and 7.
"""

import threading
from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager

from penstock.byte_queue import Abandoned, ByteQueue, End
from penstock.model.catalog import StreamId
from penstock.protocols.rapidbyte.guest.events import Ended, Told
from penstock.protocols.rapidbyte.guest.guest_thread import Inbox, Outbox, Run
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
) -> Iterator[Told]:
    """``tick``: ``Quiet`` comes after so many seconds without anything else."""
    request = RunRequest(phase="read", context=context, dry_run=dry_run, max_records=max_records)
    return _converse(stage, request, tick=tick)


def write(stage: Stage, context: StreamContext, feed: Iterable[Bytes] | Inbox) -> Iterator[Told]:
    """``feed``: complete Arrow IPC streams. An inbox is filled by the caller's own thread, with
    frames of ``max_batch_bytes`` at most. Else they are drawn from a thread of its own as the
    component asks; a larger one, which it would refuse, is cut before."""
    return _converse(stage, RunRequest(phase="write", context=context), feed)


def apply(
    stage: Stage, context: StreamContext, feed: Iterable[Bytes], *, dry_run: bool = False
) -> Iterator[Told]:
    """As :func:`write`, with the frames that it emits among what is yielded: how many come out for
    one that goes in is the component's business."""
    return _converse(stage, RunRequest(phase="transform", context=context, dry_run=dry_run), feed)


def _converse(
    stage: Stage,
    request: RunRequest,
    feed: Iterable[Bytes] | Inbox | None = None,
    tick: float | None = None,
) -> Iterator[Told]:
    out = Outbox(stage.pressure)
    inbox = feed if feed is None or isinstance(feed, Inbox) else Inbox(stage.pressure)
    frames = None if inbox is None else inbox.pipe
    owner = stage.owner or StreamId.of(None, request.context.stream_name).key
    run = Run(stage, request, stage.host(owner, frames, out), out)
    with run, _drawing(feed, inbox, stage, request, run):
        try:
            while not isinstance(told := run.next(tick), End):
                if isinstance(told, Ended):
                    run.join()
                    yield _timed(told, frames, out)
                    return
                yield told
        finally:
            # Whoever listens is gone, or all was told: nothing may wait for us any more.
            out.pipe.abandon()
            if frames is not None:
                frames.abandon()


def _timed(ended: Ended, frames: ByteQueue[Bytes | CompressedFrame] | None, out: Outbox) -> Ended:
    ended.waited = out.pipe.put_waited + (frames.get_waited if frames is not None else 0.0)
    return ended


@contextmanager
def _drawing(
    feed: Iterable[Bytes] | Inbox | None,
    inbox: Inbox | None,
    stage: Stage,
    request: RunRequest,
    run: Run,
) -> Generator[None]:
    """Fills the inbox from a feed that is none itself, on a thread of its own."""
    if inbox is None or feed is None or isinstance(feed, Inbox):
        yield
        return
    fits = split_frames(feed, (request.context.limits or StreamLimits()).max_batch_bytes)

    def draw() -> None:
        try:
            for frame in fits:
                try:
                    inbox.put(frame, stage.bounds.patience)
                except Abandoned:
                    return  # the connector wants no more
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
