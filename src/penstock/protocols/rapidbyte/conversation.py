"""One run of a connector between a feed and a listener: frames in, and what it tells, in order.

The parts that the three roles share. Frames reach the guest through an inbox that another thread
fills, bounded in bytes, so that a slow guest holds its feed back. Neighbours: ``source``,
``destination``, ``transform``; ``running`` (the guest's own thread); ``told`` (what is yielded).
"""

import threading
from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager

from penstock.model.catalog import StreamId
from penstock.protocols.rapidbyte.messages import RunRequest
from penstock.protocols.rapidbyte.pipe import Abandoned, End, Pipe
from penstock.protocols.rapidbyte.running import Outbox, Run
from penstock.protocols.rapidbyte.squeeze import Bytes, Squeezed, squeeze
from penstock.protocols.rapidbyte.stage import Stage
from penstock.protocols.rapidbyte.told import Ended, Told


def converse(
    stage: Stage,
    request: RunRequest,
    feed: Iterable[Bytes] | None = None,
    tick: float | None = None,
) -> Iterator[Told]:
    """Run one stream. The last item is ``Ended``, unless the generator is closed early, which ends
    the connector. ``tick``: ``Quiet`` comes after so many seconds without anything else. ``feed``:
    the frames it is given, drawn from a thread of its own; where drawing raises, the connector gets
    an error from ``next-batch``, never an end of stream."""
    out = Outbox(stage.pressure)
    inbox: Pipe[Bytes | Squeezed] | None = None
    if feed is not None:
        inbox = Pipe(stage.pressure.inbox_bytes)
    owner = stage.owner or StreamId.of(None, request.context.stream_name).key
    run = Run(stage, request, stage.host(owner, inbox, out), out)
    with run, _feeding(feed, inbox, stage, run):
        try:
            while not isinstance(told := run.next(tick), End):
                if isinstance(told, Ended):
                    run.join()
                    yield _timed(told, inbox, out)
                    return
                yield told
        finally:
            # Whoever listens is gone, or all was told: nothing may wait for us any more.
            out.pipe.abandon()
            if inbox is not None:
                inbox.abandon()


def _timed(ended: Ended, inbox: Pipe[Bytes | Squeezed] | None, out: Outbox) -> Ended:
    ended.waited = out.pipe.put_waited + (inbox.get_waited if inbox is not None else 0.0)
    return ended


@contextmanager
def _feeding(
    feed: Iterable[Bytes] | None, inbox: Pipe[Bytes | Squeezed] | None, stage: Stage, run: Run
) -> Generator[None]:
    if feed is None or inbox is None:
        yield
        return

    def draw() -> None:
        try:
            for data in feed:
                waits = squeeze(data, stage.pressure.codec)
                inbox.put(waits, len(waits), stage.bounds.patience)
        except Abandoned:
            return  # the connector wants no more
        except BaseException as e:
            inbox.fail(e)
        else:
            inbox.end()

    thread = threading.Thread(target=draw, name="penstock-feed", daemon=True)
    thread.start()
    try:
        yield
    finally:
        inbox.abandon()
        thread.join(run.closing)
