"""Holds the frames of one instance: blocks of bytes behind handles, bounded singly and together.

A frame is writable, then sealed, then gone (emitted or dropped). Handles count from 1 and are never
used again. Instances without their own memory limit share a :class:`FramePool`, so that their
number does not multiply the bound. Every error is a ``Refusal``, which the connector may handle.
Not here: the content of frames (``wire.frame_check``). Source: the protocol, sections 4.1 and 6.
"""

import contextlib
import functools
import threading
from dataclasses import dataclass, field

from penstock.protocols.rapidbyte.guest.sockets import Waiting
from penstock.protocols.rapidbyte.wire.frame_check import FrameBounds
from penstock.protocols.rapidbyte.wire.messages import Refusal, refusal
from penstock.runtimes.machine import memory_bytes

_POOL_SECONDS = 60.0
_LEAST_POOL = 512 << 20


class FramePool:
    """Bounds the bytes of several frame tables together. A caller without room waits until another
    table releases bytes, for at most ``seconds``, since all may be waiting."""

    def __init__(self, most: int, seconds: float = _POOL_SECONDS) -> None:
        self.most = most
        self._seconds = seconds
        self._bytes = 0
        self._changed = threading.Condition()

    @property
    def live_bytes(self) -> int:
        return self._bytes

    def take(self, size: int, own: int, waiting: Waiting) -> bool:
        """Reserves ``size`` bytes. Returns False where there is no room. ``own``: bytes of this
        pool that the caller already holds: if no other table holds any, it does not wait."""
        with self._changed:
            if self._bytes + size > self.most:
                with waiting():
                    self._changed.wait_for(
                        lambda: self._bytes + size <= self.most or self._bytes <= own, self._seconds
                    )
            if self._bytes + size > self.most:
                return False
            self._bytes += size
            return True

    def force(self, size: int) -> None:
        """Reserves ``size`` bytes beyond the bound, for bytes that exist already."""
        with self._changed:
            self._bytes += size

    def give(self, size: int) -> None:
        """Releases ``size`` bytes."""
        with self._changed:
            self._bytes -= size
            self._changed.notify_all()


@functools.cache
def process_pool() -> FramePool:
    """Returns the pool of this process: a quarter of the machine's memory, at least 512 MiB."""
    return FramePool(max(memory_bytes() // 4, _LEAST_POOL))


@dataclass(slots=True)
class _Frame:
    data: bytearray | memoryview = field(default_factory=bytearray)
    sealed: bool = False
    fault: Refusal | None = None


class FrameTable:
    """Holds the frames of one instance. ``waiting``: a context around every wait for other
    instances to release bytes. ``refused``: frames with a refused write or take that the guest has
    neither emitted nor dropped since: it has not noticed."""

    def __init__(self, bounds: FrameBounds | None = None, pool: FramePool | None = None) -> None:
        self._bounds = bounds or FrameBounds()
        self._pool = (pool or process_pool()) if self._bounds.pooled else None
        self.waiting: Waiting = contextlib.nullcontext
        self._frames: dict[int, _Frame] = {}
        self._last = 0
        self._bytes = 0
        self.refused: set[int] = set()

    @property
    def live_bytes(self) -> int:
        """The bytes of all frames."""
        return self._bytes

    def __len__(self) -> int:
        return len(self._frames)

    def new(self) -> int:
        return self._add(_Frame(), "FRAME_NEW_FAILED")

    def expect(self, size: int = 0) -> None:
        """Checks that there is room for a frame of ``size`` bytes from the previous stage. Without
        live frames any size fits. Raises ``Refusal``."""
        self._room("NEXT_BATCH_FAILED")
        if self._bytes and self._bytes + size > self._bounds.all_bytes:
            raise refusal(
                "frame",
                "NEXT_BATCH_FAILED",
                f"{size} bytes more are over {self._bounds.all_bytes} with the frames that are "
                "alive: drop some",
                scope="batch",
            )

    def receive(self, data: bytes | bytearray | memoryview) -> int:
        """Adds a sealed frame with data of the previous stage; returns its handle. Raises
        ``Refusal`` as :meth:`expect` does, and where other instances leave no room."""
        self.expect(len(data))
        pool = self._pool
        if pool is not None and not pool.take(len(data), self._bytes, self.waiting):
            if self._bytes:
                raise refusal(
                    "frame",
                    "NEXT_BATCH_FAILED",
                    f"{len(data)} bytes more are over {pool.most} with the frames of all "
                    "instances: drop some",
                    scope="batch",
                )
            pool.force(len(data))
        handle = self._add(_Frame(memoryview(data).cast("B"), sealed=True), "NEXT_BATCH_FAILED")
        self._bytes += len(data)
        return handle

    def write(self, handle: int, chunk: bytes | memoryview) -> int:
        """Appends to a writable frame; returns its size. A refused write breaks the frame."""
        frame = self._get(handle, "FRAME_WRITE_FAILED")
        if frame.sealed or not isinstance(frame.data, bytearray):
            raise refusal(
                "frame", "FRAME_WRITE_FAILED", f"frame {handle} is already sealed", scope="batch"
            )
        size = len(frame.data) + len(chunk)
        if size > self._bounds.frame_bytes:
            raise self._broken(frame, handle, f"more than {self._bounds.frame_bytes} bytes")
        if self._bytes + len(chunk) > self._bounds.all_bytes:
            raise self._broken(
                frame, handle, f"with the other frames more than {self._bounds.all_bytes} bytes"
            )
        if self._pool is not None and not self._pool.take(len(chunk), self._bytes, self.waiting):
            raise self._broken(
                frame,
                handle,
                f"with the frames of the other instances more than {self._pool.most} bytes, a "
                "quarter of the machine's memory; with limits.max_memory it has room of its own",
            )
        frame.data += chunk
        self._bytes += len(chunk)
        return size

    def seal(self, handle: int) -> None:
        frame = self._get(handle, "FRAME_SEAL_FAILED")
        if frame.sealed:
            raise refusal(
                "frame", "FRAME_SEAL_FAILED", f"frame {handle} is already sealed", scope="batch"
            )
        frame.sealed = True

    def length(self, handle: int) -> int:
        return len(self._get(handle, "FRAME_LEN_FAILED").data)

    def read(self, handle: int, offset: int, length: int) -> memoryview:
        """Returns a view of a part of a sealed frame, without a copy."""
        frame = self._get(handle, "FRAME_READ_FAILED")
        if not frame.sealed:
            raise refusal(
                "frame", "FRAME_READ_FAILED", f"frame {handle} is not sealed", scope="batch"
            )
        if offset + length > len(frame.data):
            raise refusal(
                "frame",
                "FRAME_READ_FAILED",
                f"out of bounds: offset={offset}, len={length}, frame_len={len(frame.data)}",
                scope="batch",
            )
        return memoryview(frame.data)[offset : offset + length]

    def take(self, handle: int) -> bytearray | memoryview:
        """Removes a sealed frame and returns its content, for the next stage."""
        frame = self._get(handle, "EMIT_BATCH_FAILED")
        if not frame.sealed:
            self.refused.add(handle)
            raise refusal(
                "frame", "EMIT_BATCH_FAILED", f"frame {handle} is not sealed", scope="batch"
            )
        self.drop(handle)
        return frame.data

    def drop(self, handle: int) -> None:
        frame = self._frames.pop(handle, None)
        self.refused.discard(handle)
        if frame is not None:
            self._give(len(frame.data))

    def clear(self) -> None:
        self._frames.clear()
        self._give(self._bytes)

    def _give(self, size: int) -> None:
        self._bytes -= size
        if self._pool is not None:
            self._pool.give(size)

    def _add(self, frame: _Frame, code: str) -> int:
        self._room(code)
        self._last += 1
        self._frames[self._last] = frame
        return self._last

    def _room(self, code: str) -> None:
        if len(self._frames) >= self._bounds.frames:
            raise refusal(
                "frame", code, f"{len(self._frames)} frames are alive: drop or emit some",
                scope="batch",
            )  # fmt: skip

    def _get(self, handle: int, code: str) -> _Frame:
        frame = self._frames.get(handle)
        if frame is None:
            raise refusal("frame", code, f"invalid frame handle: {handle}", scope="batch")
        if frame.fault is not None:
            raise frame.fault
        return frame

    def _broken(self, frame: _Frame, handle: int, grew: str) -> Refusal:
        """Marks a frame as broken: the writes of the fast path cannot fail one by one, so the next
        call with its handle raises the refusal."""
        self.refused.add(handle)
        frame.fault = refusal(
            "frame", "FRAME_WRITE_FAILED", f"frame {handle} would hold {grew}", scope="batch"
        )
        return frame.fault
