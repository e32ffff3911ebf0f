"""A runtime that measures: how long its reader waited, and for how many bytes.

Neighbours: ``engine.child`` wraps any runtime in it; the report's ``source_wait`` comes from here.
"""

import time
from collections.abc import Sequence
from types import TracebackType
from typing import Self

from penstock.runtimes.contract import Argument, ByteChannel, Runtime, Timeouts


class MeteredRuntime:
    def __init__(self, inner: Runtime) -> None:
        self._inner = inner
        self.wait_seconds = 0.0
        self.first_byte_seconds = 0.0
        self.bytes = 0

    def open(self, arguments: Sequence[Argument], timeouts: Timeouts) -> ByteChannel:
        return _MeteredChannel(self._inner.open(arguments, timeouts), self)


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

    def wait(self, timeout: float) -> int | None:
        return self._inner.wait(timeout)

    def stop(self) -> None:
        self._inner.stop()

    def stderr_tail(self) -> str:
        return self._inner.stderr_tail()
