"""The 19 host functions, for one stage and one run of a connector.

Plain values in and out; what a connector may handle is raised as ``Refusal``. The first refusal is
kept until a call shows that the guest went on: guests hide their host's errors (a denied host
comes back as a retryable network fault), so whoever reports shows that one. Neighbours:
``host_imports`` gives the functions to a component; ``frame_table``, ``sockets``,
``rapidbyte.wire.key_scopes`` and ``metrics`` do the work; ``events`` is what it says.
Source: the protocol, section 4.
"""

import contextlib
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Protocol, TypeVar

import msgspec

from penstock.byte_queue import END, Abandoned, ByteQueue, End, Failed, TooLong
from penstock.config.sections import MAX_DEAD_LETTERS
from penstock.errors import Role, error_class
from penstock.protocols.rapidbyte.declared.host_patterns import Reach
from penstock.protocols.rapidbyte.guest.events import Checkpoint, Frame, Logged, PutAside, Told
from penstock.protocols.rapidbyte.guest.frame_table import FrameTable
from penstock.protocols.rapidbyte.guest.metrics import Metrics
from penstock.protocols.rapidbyte.guest.sockets import ReadKind, SocketBounds, Sockets, Waiting
from penstock.protocols.rapidbyte.wire.compression import Bytes, CompressedFrame, decompress
from penstock.protocols.rapidbyte.wire.frame_check import FrameBounds
from penstock.protocols.rapidbyte.wire.key_scopes import key_place
from penstock.protocols.rapidbyte.wire.messages import (
    CATEGORIES,
    CheckpointPayload,
    DeadLetter,
    MetricPayload,
    Refusal,
    decode_json,
    refusal,
    unwrap_envelope,
)
from penstock.runtimes.masking import Masker
from penstock.state.keys import KeyPort, MemoryKeys, Place

PATIENCE = 10800.0
"""Seconds that a stage waits for a neighbour that does nothing."""
_LEVELS = ("ERROR", "WARN", "INFO", "DEBUG", "TRACE")
_LONGEST_MESSAGE = 16 * 1024
_LONGEST_DOCUMENT = 16 << 20
_ENTRY = 64
_KINDS = 3
_RESERVES = {"WARN": 1, "ERROR": 2}  # times ``HostBounds.grave_lines``
FEED_FAILED = "UPSTREAM_FAILED"
_REFUSALS_TO_STOP = 1000
"""So often is a guest told that nobody listens, before it is ended."""

R = TypeVar("R")


class Outlet(Protocol):
    """Who is told: a ``ByteQueue``, or whoever takes an item at once. Raises ``Abandoned``,
    ``TooLong``."""

    def put(self, item: Told, size: int, patience: float) -> None: ...


class HostBounds(msgspec.Struct, frozen=True, kw_only=True):
    """Bytes of ``keys``, with their values, and of ``dead_letters``, of one run. ``log_lines`` of
    one run, the rest is counted; ``grave_lines``: room beyond that for warnings, and as much again
    for errors. ``patience``: seconds without a neighbour. ``silence``: seconds without a sign of
    life of its own; None: as ``patience``."""

    frames: FrameBounds = FrameBounds()
    keys: int = 64 << 20
    dead_letters: int = MAX_DEAD_LETTERS
    sockets: SocketBounds = SocketBounds()
    log_lines: int = 10_000
    grave_lines: int = 1_000
    patience: float = PATIENCE
    silence: float | None = None


def _bytes_of(*texts: str) -> int:
    """What a guest's texts count, with the room that even empty ones take."""
    return _ENTRY + sum(len(t) if t.isascii() else len(t.encode()) for t in texts)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


class Host:
    """``inbox``: where frames come from (destination, transform); ``out``: what is told, frames
    included (source, transform); None where nobody listens. ``reach``: the hosts it may connect to.
    ``instance``: the connector's position in the pipeline, for its own keys (``source``,
    ``transform:1``).

    For whoever waits for it, in another thread: ``beats`` grows with each frame, checkpoint and
    dead letter; ``asking``: it waits for its next frame; ``waits_for``: the peer that has not
    answered it."""

    def __init__(
        self,
        role: Role,
        *,
        stream: str,
        instance: str,
        reach: Reach | None = None,
        keys: KeyPort | None = None,
        inbox: ByteQueue[Bytes | CompressedFrame] | None = None,
        out: Outlet | None = None,
        bounds: HostBounds | None = None,
        masker: Masker | None = None,
    ) -> None:
        self.role: Role = role
        self._stream = stream
        self._instance = instance
        self._keys = keys or MemoryKeys()
        self._inbox = inbox
        self._out = out
        self._bounds = bounds or HostBounds()
        self._masker = Masker() if masker is None else masker
        self._frames = FrameTable(self._bounds.frames)
        self._sockets = Sockets(reach or Reach(), self._bounds.sockets)
        self._waiting: Waiting = contextlib.nullcontext
        self._lines = 0
        self._key_sizes: dict[Place, int] = {}
        self._key_bytes = self._dead = 0
        self._stopped = False
        self._refusals = 0
        self._peers: dict[int, str] = {}
        self._ahead: Bytes | CompressedFrame | None = None  # taken, and refused for want of room
        self.lines_dropped = 0
        self.last_line = ""
        self.beats = 0
        self.asking = False
        self.waits_for: str | None = None
        self.metrics = Metrics()
        self.first_fault: Refusal | None = None
        self.frames_in = 0
        self.frames_out = 0
        self.checkpoints = 0

    def attach(self, waiting: Waiting) -> None:
        """Around every wait for somebody else from now on."""
        self._waiting = waiting
        self._sockets.waiting = self._frames.waiting = waiting

    def note(self, fault: Refusal) -> None:
        """Every refusal that a guest is given passes here."""
        self.first_fault = self.first_fault or fault

    def _recovered(self) -> None:
        """The guest goes on with its work: what it was refused before was not what ends it, but
        that its input failed is."""
        if self.first_fault is None or self.first_fault.fault.code != FEED_FAILED:
            self.first_fault = None

    # -- batches

    def frame_new(self, capacity: int) -> int:
        return self._frames.new()

    def frame_write(self, handle: int, chunk: bytes | memoryview) -> int:
        return self._frames.write(handle, chunk)

    def frame_seal(self, handle: int) -> None:
        self._frames.seal(handle)

    def frame_len(self, handle: int) -> int:
        return self._frames.length(handle)

    def frame_read(self, handle: int, offset: int, length: int) -> memoryview:
        return self._frames.read(handle, offset, length)

    def frame_drop(self, handle: int) -> None:
        self._frames.drop(handle)

    def emit_batch(self, handle: int) -> None:
        if self.role == "destination" or self._out is None:
            raise refusal("internal", "NO_SENDER", "this stage has no stage after it")
        self._go_on()
        data = self._frames.take(handle)
        if not data:
            raise refusal("internal", "EMPTY_BATCH", "a frame of no bytes was emitted")
        self._tell(Frame(data, self.frames_out + 1), len(data))
        self.frames_out += 1
        self.beats += 1
        self._recovered()

    def next_batch(self) -> int | None:
        if self._inbox is None:
            raise refusal("internal", "NO_RECEIVER", "this stage has no stage before it")
        self._frames.expect()
        data = self._ahead if self._ahead is not None else self._asked(self._inbox)
        if data is END:
            self._recovered()
            return None
        self._ahead = data  # a refusal loses nothing: it comes again
        handle = self._frames.receive(decompress(data))
        self._ahead = None
        self.frames_in += 1
        self.beats += 1
        self._recovered()
        return handle

    def _asked(self, inbox: ByteQueue[Bytes | CompressedFrame]) -> Bytes | CompressedFrame | End:
        self.asking = True
        try:
            with self._waiting():
                return inbox.get(self._bounds.patience)
        except Failed as e:
            raise refusal("internal", FEED_FAILED, f"the stage before it failed: {e.cause}") from e
        except TooLong as e:
            raise refusal("internal", "UPSTREAM_SILENT", str(e)) from e
        finally:
            self.beats += 1
            self.asking = False

    # -- logging and telemetry

    def log(self, level: int, message: str) -> None:
        if self._stopped:
            self._insist()  # a line has no answer that could tell it
        self.say(_LEVELS[min(level, len(_LEVELS) - 1)], message)

    def say(self, level: str, message: str) -> None:
        """Tell a line; beyond its level's bound lines are only counted."""
        self.last_line = message[-_LONGEST_MESSAGE:]
        room = self._bounds.log_lines + _RESERVES.get(level, 0) * self._bounds.grave_lines
        if self._lines >= room:
            self.lines_dropped += 1
            return
        self._lines += 1
        with contextlib.suppress(Refusal):
            text = self._masker.mask(message[: 2 * _LONGEST_MESSAGE])[:_LONGEST_MESSAGE]
            self._tell(Logged(level, text), len(text))

    def checkpoint(self, kind: int, payload_json: str) -> None:
        if kind >= _KINDS:
            raise refusal("config", "INVALID_CHECKPOINT_KIND", f"invalid checkpoint kind: {kind}")
        document = self._document(payload_json, "PARSE_CHECKPOINT")
        payload, problem = None, None
        try:
            payload = decode_json(document, CheckpointPayload)
        except ValueError as e:
            problem = f"a checkpoint of the connector is none: {e}"
            self.say("WARN", problem)
        frames = self.frames_out if self.role == "source" else self.frames_in
        self.checkpoints += 1
        keys = self._kept(self._keys.checkpoint)
        told = Checkpoint(kind, document.decode(), frames, payload, problem, keys)
        self._tell(told, len(payload_json))
        self.beats += 1
        self._recovered()

    def metric(self, payload_json: str) -> None:
        document = self._document(payload_json, "PARSE_METRIC")
        try:
            self.metrics.add(decode_json(document, MetricPayload))
        except ValueError as e:
            raise refusal("internal", "PARSE_METRIC", str(e)) from None

    def emit_dlq_record(
        self, stream_name: str, record_json: str, error_message: str, error_category: str
    ) -> None:
        size = _bytes_of(stream_name, record_json, error_message)
        self._dead += size
        if self._dead > self._bounds.dead_letters:
            # No refusal: a guest that goes on from one would lose the record in silence.
            raise error_class(self.role)(
                f"the {self.role} put aside more than {self._bounds.dead_letters} bytes of records "
                "in one run of a stream",
                code="connector.dead_letters",
                hint="see in `penstock rejects` why; raise limits.max_dead_letters of this "
                "connector if that is meant",
            )
        category = error_category if error_category in CATEGORIES else "internal"
        letter = DeadLetter(
            stream_name=stream_name,
            record_json=record_json,
            error_message=self._masker.mask(error_message),
            error_category=category,
            failed_at=_now(),
        )
        self._tell(PutAside(letter), size)
        self.beats += 1

    # -- state

    def state_get(self, scope: int, key: str) -> str | None:
        where = self._place(scope, key)
        return self._kept(lambda: self._keys.get(where))

    def state_put(self, scope: int, key: str, value: str) -> None:
        where = self._room_for(self._place(scope, key), value)
        self._kept(lambda: self._keys.put(where, value))

    def state_cas(self, scope: int, key: str, expected: str | None, new: str) -> bool:
        where = self._room_for(self._place(scope, key), new)
        return self._kept(lambda: self._keys.compare_and_swap(where, expected, new))

    # -- TCP

    def connect_tcp(self, host: str, port: int) -> int:
        self._go_on()
        peer = f"{host}:{port}"
        self.waits_for = peer
        handle = self._sockets.connect(host, port)
        self.waits_for, self._peers[handle] = None, peer
        self._recovered()
        return handle

    def socket_read(
        self, handle: int, length: int, *, absorbed: bool = False
    ) -> tuple[ReadKind, bytes]:
        self._go_on()
        read = self._sockets.read(handle, length, absorbed=absorbed)
        if read[0] == "data":
            self.waits_for = None
            self._recovered()
        else:
            self.waits_for = self._peers.get(handle)
        return read

    def socket_write(self, handle: int, data: bytes | memoryview) -> int | None:
        self._go_on()
        taken = self._sockets.write(handle, data)
        self.waits_for = self._peers.get(handle) if taken is None else None
        return taken

    def socket_close(self, handle: int) -> None:
        self._peers.pop(handle, None)
        self._sockets.close(handle)

    def stop(self) -> None:
        """From another thread: nobody listens any more. The guest hears so at its next socket call
        (a slow peer may keep it from any other), or at its next frame; one that goes on all the
        same is ended."""
        self._stopped = True

    def _go_on(self) -> None:
        if self._stopped:
            self._insist()
            raise refusal("internal", "STOPPED", "nobody listens any more")

    def _insist(self) -> None:
        self._refusals += 1
        if self._refusals > _REFUSALS_TO_STOP:
            raise Abandoned("nobody listens any more, and it does not stop")

    def release(self) -> None:
        """Close and drop what the guest left open."""
        self._sockets.clear()
        self._frames.clear()

    # -- inside

    def _place(self, scope: int, key: str) -> Place:
        return key_place(scope, key, stream=self._stream, instance=self._instance)

    def _room_for(self, where: Place, value: str) -> Place:
        """One that is written again counts once."""
        size = _bytes_of(where.key, value)
        total = self._key_bytes + size - self._key_sizes.get(where, 0)
        if total > self._bounds.keys:
            raise refusal(
                "internal",
                "STATE_QUOTA",
                f"its keys of this run would hold more than {self._bounds.keys} bytes: raise "
                "limits.max_keys of this connector",
            )
        self._key_bytes, self._key_sizes[where] = total, size
        return where

    def _tell(self, item: Told, size: int) -> None:
        if self._out is None:
            return
        try:
            with self._waiting():
                self._out.put(item, size, self._bounds.patience)
        except Abandoned as e:
            raise refusal("internal", "CHANNEL_SEND", "the stage after it is gone") from e
        except TooLong as e:
            raise refusal("internal", "DOWNSTREAM_SILENT", str(e)) from e

    @staticmethod
    def _document(text: str, code: str) -> bytes:
        if len(text) > _LONGEST_DOCUMENT:
            raise refusal("internal", code, f"a document of {len(text)} characters")
        try:
            return unwrap_envelope(text)
        except ValueError as e:
            raise refusal("internal", code, f"not JSON: {e}") from None

    def _kept(self, action: Callable[[], R]) -> R:
        try:
            with self._waiting():
                kept = action()
        except Exception as e:
            raise refusal("internal", "STATE_BACKEND", str(e)) from e
        self._recovered()
        return kept
