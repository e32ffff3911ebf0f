"""Measures the seconds waited for a connector's stdout and stdin, and the bytes either way.

``protocols.stdio.connect`` wraps any runtime in it; the report's ``source_wait`` and
``destination_wait`` are computed from it. Not here: components, which their protocol measures.
"""

import time
from collections.abc import Sequence
from types import TracebackType
from typing import Self

from penstock.runtimes.contract import (
    Argument,
    ByteChannel,
    ConnectionStats,
    Runtime,
    RunTimeouts,
    SharedFolders,
)


class MeteredRuntime:
    """Opens channels of ``inner`` that fill ``stats`` (``runtimes.contract.Runtime``)."""

    def __init__(self, inner: Runtime, stats: ConnectionStats) -> None:
        self._inner, self._stats = inner, stats

    def open(
        self, arguments: Sequence[Argument], timeouts: RunTimeouts, *, feed: bool = False
    ) -> ByteChannel:
        return _MeteredChannel(self._inner.open(arguments, timeouts, feed=feed), self._stats)

    def shared_folders(self) -> SharedFolders:
        return self._inner.shared_folders()


class _MeteredChannel:
    def __init__(self, inner: ByteChannel, stats: ConnectionStats) -> None:
        self._inner, self._stats = inner, stats

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
        stats = self._stats
        stats.wait_seconds += time.monotonic() - began
        if block:
            if not stats.spoke:
                stats.first_byte_seconds = stats.wait_seconds
                stats.spoke = True
            stats.bytes += len(block)
        return block

    def write(self, data: bytes | memoryview, timeout: float) -> int:
        began = time.monotonic()
        taken = self._inner.write(data, timeout)
        self._stats.write_seconds += time.monotonic() - began
        self._stats.written += taken
        return taken

    def drained(self, timeout: float) -> bool:
        return self._inner.drained(timeout)

    def end_input(self) -> None:
        self._inner.end_input()

    def private(self, name: str) -> bytes | None:
        return self._inner.private(name)

    def wait(self, timeout: float) -> int | None:
        return self._inner.wait(timeout)

    def ended_well(self) -> bool:
        return self._inner.ended_well()

    def stop(self) -> None:
        self._inner.stop()

    def stderr_tail(self) -> str:
        return self._inner.stderr_tail()
