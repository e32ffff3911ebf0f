"""Writes the parts of a lane, at once or in a thread while the next rows are decoded.

Parquet and zstd take a fifth of a lane's time and do not need Python meanwhile. The seal requests a
part's result (size, checksum) or its error. Not here: when parts are cut and sealed
(``engine.worker.sealer``), where they lie (``engine.log.log``).
"""

import threading
from collections.abc import Callable
from typing import Any, Protocol

from penstock.engine.log.log import Log
from penstock.model.segments import PartLayout, PartRef

BESIDE_BYTES = 1 << 20
"""Bytes of records; a smaller part is written faster than a thread starts."""

Part = Callable[[], PartRef]
"""Waits for the part and returns it. Raises the error of the write (``LogError``)."""


class WritePart(Protocol):
    """Takes the arguments of ``Log.write_part``."""

    def __call__(
        self, epoch: int, name: str, rows: Any, raw_bytes: int, layout: PartLayout | None
    ) -> Part: ...


class ImmediatePartWriter:
    """Has written the part when it returns."""

    def __init__(self, log: Log) -> None:
        self._log = log

    def __call__(
        self, epoch: int, name: str, rows: Any, raw_bytes: int, layout: PartLayout | None
    ) -> Part:
        part = self._log.write_part(epoch, name, rows, raw_bytes, layout)
        return lambda: part


class ThreadedPartWriter:
    """Writes one part at a time, so that at most one more table is in memory. A failed part also
    fails the next one, or the seal that names it. Always call :meth:`close`."""

    def __init__(self, log: Log) -> None:
        self._at_once = ImmediatePartWriter(log)
        self._last: _Writing | None = None

    def __call__(
        self, epoch: int, name: str, rows: Any, raw_bytes: int, layout: PartLayout | None
    ) -> Part:
        if self._last is not None:
            self._last.part()
            self._last = None
        if raw_bytes < BESIDE_BYTES:
            return self._at_once(epoch, name, rows, raw_bytes, layout)
        self._last = _Writing(lambda: self._at_once(epoch, name, rows, raw_bytes, layout))
        return self._last.part

    def close(self) -> None:
        """Waits for the part that is being written. Ignores its failure, which its seal would
        report."""
        if self._last is not None:
            self._last.wait()


class _Writing:
    def __init__(self, write: Callable[[], Part]) -> None:
        self._write: Callable[[], Part] | None = write
        self._done: Part | None = None
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="part", daemon=True)
        self._thread.start()

    def wait(self) -> None:
        self._thread.join()

    def part(self) -> PartRef:
        self.wait()
        if self._done is None:
            assert self._failure is not None
            raise self._failure
        return self._done()

    def _run(self) -> None:
        assert self._write is not None
        try:
            self._done = self._write()
        except BaseException as e:  # raised again in the lane's thread
            self._failure = e
        self._write = None  # the rows with it
