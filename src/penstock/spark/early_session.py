"""Opens a run's session in a thread, while the run is still being prepared.

The session is taken once, or given up: then what was started for it ends at once, and a JVM that an
earlier run left is returned. Not here: how a session is opened (``session``), when one is wanted
early (``engine.run``)."""

import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from penstock.errors import Cancelled
from penstock.spark.session import discard_session, let_be_active

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

GIVE_UP_SECONDS = 10.0


class EarlySession:
    """One start of Spark. ``open_session``: opens the session; calls its argument while it waits,
    and ends what it started if that raises. ``check``: called then too; it may raise. ``for_``:
    what the session is for, which the taker compares. ``began``, ``ended``: readings of
    ``time.monotonic``."""

    def __init__(
        self,
        open_session: Callable[[Callable[[], None]], "SparkSession"],
        check: Callable[[], None],
        for_: object,
    ) -> None:
        self.for_ = for_
        self._open, self._check = open_session, check
        self._unwanted = threading.Event()
        self._session: SparkSession | None = None
        self._failure: BaseException | None = None
        self._over = False
        self.began = self.ended = time.monotonic()
        self._thread = threading.Thread(target=self._run, name="spark-early", daemon=True)
        self._thread.start()

    def take(self) -> "SparkSession":
        """Waits until the session is open, and returns it; the caller must close it. Raises the
        error of opening it."""
        self._thread.join()  # whose waits are bounded
        self._over = True
        if self._session is None:
            assert self._failure is not None
            raise self._failure
        try:
            let_be_active(self._session)
        except Exception:  # its Java died meanwhile
            discard_session(self._session)
            raise
        return self._session

    def give_up(self) -> bool:
        """Ends what was started, unless the session was taken. Returns whether it did."""
        if self._over:
            return False
        self._over = True
        self._unwanted.set()
        self._thread.join(GIVE_UP_SECONDS)
        if self._session is not None:
            discard_session(self._session)
        return True

    def _run(self) -> None:
        try:
            self._session = self._open(self._still_wanted)
        except BaseException as failure:
            self._failure = failure
        self.ended = time.monotonic()

    def _still_wanted(self) -> None:
        self._check()
        if self._unwanted.is_set():
            raise Cancelled("Spark is not needed any more")
