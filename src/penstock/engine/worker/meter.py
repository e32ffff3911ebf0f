"""A runtime that measures: how long its reader and its writer waited, and for how many bytes.

Neighbours: ``engine.worker.lane`` and ``engine.worker.feeder`` wrap any runtime in it; the report's
``source_wait`` and ``destination_wait`` come from here.
"""

import time
from collections.abc import Sequence
from types import TracebackType
from typing import Self

from penstock.runtimes.contract import Argument, ByteChannel, Runtime, Timeouts
from penstock.runtimes.wasm.component import ComponentRuntime


def metered(runtime: Runtime) -> "MeteredRuntime | ComponentRuntime":
    """The same, measured. A component is measured by whoever calls it."""
    return runtime if isinstance(runtime, ComponentRuntime) else MeteredRuntime(runtime)


class MeteredRuntime:
    def __init__(self, inner: Runtime) -> None:
        self._inner = inner
        self.wait_seconds = 0.0
        self.first_byte_seconds = 0.0
        self.bytes = 0
        self.write_seconds = 0.0
        self.written = 0

    @property
    def spoke(self) -> bool:
        """It gave anything at all."""
        return self.bytes > 0

    def open(
        self, arguments: Sequence[Argument], timeouts: Timeouts, *, feed: bool = False
    ) -> ByteChannel:
        return _MeteredChannel(self._inner.open(arguments, timeouts, feed=feed), self)


class _MeteredChannel:
    def __init__(self, inner: ByteChannel, meter: MeteredRuntime) -> None:
        self._inner, self._meter = inner, meter

    def __enter__(self) -> Self:
        self._inner.__enter__()
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        self._inner.__exit__(exc_type, exc, tb)

    def read(self, timeout: float) -> bytes | None:
        began = time.monotonic()
        block = self._inner.read(timeout)
        self._meter.wait_seconds += time.monotonic() - began
        if block:
            if not self._meter.bytes:
                self._meter.first_byte_seconds = self._meter.wait_seconds
            self._meter.bytes += len(block)
        return block

    def write(self, data: bytes | memoryview, timeout: float) -> int:
        began = time.monotonic()
        taken = self._inner.write(data, timeout)
        self._meter.write_seconds += time.monotonic() - began
        self._meter.written += taken
        return taken

    def drained(self, timeout: float) -> bool:
        return self._inner.drained(timeout)

    def end_input(self) -> None:
        self._inner.end_input()

    def private(self, name: str) -> bytes | None:
        return self._inner.private(name)

    def wait(self, timeout: float) -> int | None:
        return self._inner.wait(timeout)

    def stop(self) -> None:
        self._inner.stop()

    def stderr_tail(self) -> str:
        return self._inner.stderr_tail()
