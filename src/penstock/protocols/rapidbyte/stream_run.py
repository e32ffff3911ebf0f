"""One run of a destination: the frames of one stream, from its ``open`` to its ``close``.

It hears on a thread of its own and takes frames through a bounded queue. Not here: which streams
are written when (``writer``), what its words mean (``writer``, ``acks``). Neighbour:
``destination`` converses.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any, cast

from penstock.errors import PenstockError
from penstock.protocols.contract import WriteStream
from penstock.protocols.rapidbyte import destination
from penstock.protocols.rapidbyte.messages import StreamContext
from penstock.protocols.rapidbyte.pipe import Abandoned, End, Pipe
from penstock.protocols.rapidbyte.squeeze import Bytes
from penstock.protocols.rapidbyte.stage import Stage
from penstock.protocols.rapidbyte.told import Ended, Told


class StreamRun:
    """``version``: of the schema of its frames. ``base``: frames of the stream that were fed before
    its first. ``ended``: its input has ended, all ``given`` frames were put; ``broken``: it was
    told that its feed failed, so that its end proves nothing. ``fed_at``: when it was fed last."""

    def __init__(
        self, stream: WriteStream, version: int, *, base: int, held: int, now: float
    ) -> None:
        self.stream, self.version, self.base = stream, version, base
        self.given = 0
        self.began = self.fed_at = now
        self.ended = self.broken = self.over = False
        self._pipe: Pipe[Bytes] = Pipe(held)
        self._thread: threading.Thread | None = None

    def start(
        self,
        stage: Stage,
        context: StreamContext,
        hear: Callable[["StreamRun", Told], None],
        over: Callable[["StreamRun", PenstockError | None], None],
    ) -> None:
        """``stage``: with a port to its keys of its own, which is closed behind it. ``hear`` gets
        all it tells, ``Ended`` among it; ``over`` comes last of all, with what kept it from telling
        its end. Both are called from its thread."""

        def work() -> None:
            failure: PenstockError | None = None
            frames = self._frames(stage.bounds.patience)
            try:
                told = cast(Any, destination.write(stage, context, frames))
                with closing(stage.keys), closing(told):
                    for item in told:
                        if isinstance(item, Ended):
                            self._pipe.abandon()
                        hear(self, item)
            except Abandoned:
                pass  # nobody listens any more
            except PenstockError as e:
                failure = e
            finally:
                self._pipe.abandon()
                over(self, failure)

        self._thread = threading.Thread(target=work, name="penstock-run", daemon=True)
        self._thread.start()

    def put(self, frame: Bytes, patience: float) -> None:
        """Raises ``Abandoned`` where it takes no more, ``TooLong``."""
        self._pipe.put(frame, len(frame), patience)

    @property
    def put_waited(self) -> float:
        return self._pipe.put_waited

    def end(self) -> None:
        """Nothing follows: it commits."""
        self.ended = True
        self._pipe.end()

    def fail(self, cause: BaseException) -> None:
        """Its next frame is an error, behind those that it was given: it rolls back. Not where its
        input has ended already."""
        if not self.ended:
            self.broken = True
            self._pipe.fail(cause)

    def give_up(self) -> None:
        """The same at once."""
        self.broken = True
        self._pipe.abandon()

    def join(self, seconds: float) -> None:
        if self._thread is not None:
            self._thread.join(seconds)

    def _frames(self, patience: float) -> Iterator[Bytes]:
        while not isinstance(frame := self._pipe.get(patience), End):
            yield frame
