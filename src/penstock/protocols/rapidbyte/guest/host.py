"""Implements the 19 host functions for one stage and one run of a connector.

Plain values in and out; an error that the connector may handle is raised as ``Refusal``. The first
refusal is kept until a later call shows that the guest continued its work. Guests hide the errors
of host functions (a denied host comes back as a retryable network fault), so a failed run is
reported with that refusal. Neighbours: ``host_imports`` gives the functions to a component;
``frame_table``, ``sockets``, ``rapidbyte.wire.key_scopes`` and ``metrics`` do the work; ``events``
declares the events. Source: the protocol, section 4.
"""

import contextlib
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Protocol, TypeVar

import msgspec

from penstock.byte_queue import END, ByteQueue, QueueAbandoned, QueueEnd, TooLong, WriterFailed
from penstock.config.sections import MAX_DEAD_LETTERS
from penstock.errors import Role, error_class
from penstock.model.hosts import ReachableHosts
from penstock.protocols.rapidbyte.guest.events import (
    CheckpointCall,
    ComponentLog,
    DeadLettered,
    Frame,
    StageEvent,
)
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
from penstock.store.keys import KeyAddress, KeyPort, MemoryKeys

NEIGHBOUR_TIMEOUT = 10800.0
"""Seconds that a stage waits for the stage before or after it."""
_LEVELS = ("ERROR", "WARN", "INFO", "DEBUG", "TRACE")
_LONGEST_MESSAGE = 16 * 1024
_LONGEST_DOCUMENT = 16 << 20
_ENTRY = 64  # bytes that even an empty text counts
_KINDS = 3  # of checkpoints
_RESERVES = {"WARN": 1, "ERROR": 2}  # times ``HostBounds.grave_lines``
FEED_FAILED = "UPSTREAM_FAILED"
_REFUSALS_TO_STOP = 1000
"""The calls of a stopped guest that are refused; at the next one the guest is ended."""

R = TypeVar("R")


class EventOutput(Protocol):
    """Takes the events of a host: a ``ByteQueue``, or an object that takes each at once. ``put``
    raises ``QueueAbandoned``, ``TooLong``."""

    def put(self, item: StageEvent, size: int, timeout: float, /) -> None: ...


class HostBounds(msgspec.Struct, frozen=True, kw_only=True):
    """Bounds one run. ``keys``, ``dead_letters``: bytes, of keys with their values. ``log_lines``:
    lines, the rest is only counted; ``grave_lines``: further lines for warnings, and as many again
    for errors. ``timeout``: seconds to wait for the stage before or after. ``silence``: seconds
    without activity of the guest; None: as ``timeout``."""

    frames: FrameBounds = FrameBounds()
    keys: int = 64 << 20
    dead_letters: int = MAX_DEAD_LETTERS
    sockets: SocketBounds = SocketBounds()
    log_lines: int = 10_000
    grave_lines: int = 1_000
    timeout: float = NEIGHBOUR_TIMEOUT
    silence: float | None = None


def _bytes_of(*texts: str) -> int:
    """Returns the bytes that a guest's texts count against a bound."""
    return _ENTRY + sum(len(t) if t.isascii() else len(t.encode()) for t in texts)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


class HostFunctions:
    """The host functions of one run. ``inbox``: frames for the guest (destination, transform);
    ``out``: takes events, with the frames of a source or transform; None: they are dropped.
    ``reach``: the hosts the guest may connect to. ``instance``: the connector's position in the
    pipeline, which owns its keys (``source``, ``transform:1``).

    Other threads read: ``beats`` grows with each frame, checkpoint and dead letter;
    ``awaiting_frame``: the guest waits for its next frame; ``awaited_peer``: the peer that it waits
    for."""

    def __init__(
        self,
        role: Role,
        *,
        stream: str,
        instance: str,
        reach: ReachableHosts | None = None,
        keys: KeyPort | None = None,
        inbox: ByteQueue[Bytes | CompressedFrame] | None = None,
        out: EventOutput | None = None,
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
        self._sockets = Sockets(reach or ReachableHosts(), self._bounds.sockets)
        self._waiting: Waiting = contextlib.nullcontext
        self._lines = 0
        self._key_sizes: dict[KeyAddress, int] = {}
        self._key_bytes = self._dead_letter_bytes = 0
        self._stopped = False
        self._refusals = 0
        self._peers: dict[int, str] = {}
        self._unplaced: Bytes | CompressedFrame | None = None  # out of the inbox, found no room yet
        self.lines_dropped = 0
        self.last_line = ""
        self.beats = 0
        self.awaiting_frame = False
        self.awaited_peer: str | None = None
        self.metrics = Metrics()
        self.first_fault: Refusal | None = None
        self.frames_in = 0
        self.frames_out = 0
        self.checkpoints = 0

    def attach(self, waiting: Waiting) -> None:
        """Sets the context that surrounds every wait for another stage, peer or store."""
        self._waiting = waiting
        self._sockets.waiting = self._frames.waiting = waiting

    def record_refusal(self, fault: Refusal) -> None:
        """Records a refusal that the guest gets; the first one is kept."""
        self.first_fault = self.first_fault or fault

    def _recovered(self) -> None:
        """Forgets the first refusal, since the guest continues its work; but not a failure of its
        input, which no later call repairs."""
        if self.first_fault is None or self.first_fault.fault.code != FEED_FAILED:
            self.first_fault = None

    @property
    def frames_lost(self) -> int:
        """The number of frames that the guest takes for emitted, though its host refused them."""
        return len(self._frames.refused)

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
        self._check_stopped()
        data = self._frames.take(handle)
        if not data:
            raise refusal("internal", "EMPTY_BATCH", "a frame of no bytes was emitted")
        self._emit(Frame(data, self.frames_out + 1), len(data))
        self.frames_out += 1
        self.beats += 1
        self._recovered()

    def next_batch(self) -> int | None:
        if self._inbox is None:
            raise refusal("internal", "NO_RECEIVER", "this stage has no stage before it")
        self._frames.expect()
        data = self._unplaced if self._unplaced is not None else self._asked(self._inbox)
        if data is END:
            self._recovered()
            return None
        self._unplaced = data  # if the frame table refuses it, the next call gets it again
        handle = self._frames.receive(decompress(data))
        self._unplaced = None
        self.frames_in += 1
        self.beats += 1
        self._recovered()
        return handle

    def _asked(
        self, inbox: ByteQueue[Bytes | CompressedFrame]
    ) -> Bytes | CompressedFrame | QueueEnd:
        self.awaiting_frame = True
        try:
            with self._waiting():
                return inbox.get(self._bounds.timeout)
        except WriterFailed as e:
            raise refusal("internal", FEED_FAILED, f"the stage before it failed: {e.cause}") from e
        except TooLong as e:
            raise refusal("internal", "UPSTREAM_SILENT", str(e)) from e
        finally:
            self.beats += 1
            self.awaiting_frame = False

    # -- logging and telemetry

    def log(self, level: int, message: str) -> None:
        if self._stopped:
            self._refuse_again()  # `log` has no result that could carry a refusal
        self.say(_LEVELS[min(level, len(_LEVELS) - 1)], message)

    def say(self, level: str, message: str) -> None:
        """Emits a log line, masked; lines beyond the bound of their level are only counted."""
        self.last_line = message[-_LONGEST_MESSAGE:]
        room = self._bounds.log_lines + _RESERVES.get(level, 0) * self._bounds.grave_lines
        if self._lines >= room:
            self.lines_dropped += 1
            return
        self._lines += 1
        with contextlib.suppress(Refusal):
            text = self._masker.mask(message[: 2 * _LONGEST_MESSAGE])[:_LONGEST_MESSAGE]
            self._emit(ComponentLog(level, text), len(text))

    def checkpoint(self, kind: int, payload_json: str) -> None:
        if kind >= _KINDS:
            raise refusal("config", "INVALID_CHECKPOINT_KIND", f"invalid checkpoint kind: {kind}")
        if self.frames_lost:  # a state would cover their rows (L1)
            raise refusal(
                "frame",
                "FRAME_LOST",
                f"{self.frames_lost} frames were refused, and neither emitted since nor dropped",
                scope="batch",
            )
        document = self._document(payload_json, "PARSE_CHECKPOINT")
        payload, problem = None, None
        try:
            payload = decode_json(document, CheckpointPayload)
        except ValueError as e:
            problem = f"a checkpoint of the connector is malformed: {e}"
            self.say("WARN", problem)
        frames = self.frames_out if self.role == "source" else self.frames_in
        self.checkpoints += 1
        keys = self._stored(self._keys.checkpoint)
        self._emit(
            CheckpointCall(kind, document.decode(), frames, payload, problem, keys),
            len(payload_json),
        )
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
        self._dead_letter_bytes += size
        if self._dead_letter_bytes > self._bounds.dead_letters:
            # Not a refusal: a guest that ignored it would lose the record silently (L8).
            raise error_class(self.role)(
                f"the {self.role} put aside more than {self._bounds.dead_letters} bytes of records "
                "in one run of a stream",
                code="connector.dead_letters",
                hint="`penstock rejects` shows why; raise limits.max_dead_letters of this "
                "connector if that is intended",
            )
        category = error_category if error_category in CATEGORIES else "internal"
        letter = DeadLetter(
            stream_name=stream_name,
            record_json=record_json,
            error_message=self._masker.mask(error_message),
            error_category=category,
            failed_at=_now(),
        )
        self._emit(DeadLettered(letter), size)
        self.beats += 1

    # -- state

    def state_get(self, scope: int, key: str) -> str | None:
        address = self._key_place(scope, key)
        return self._stored(lambda: self._keys.get(address))

    def state_put(self, scope: int, key: str, value: str) -> None:
        address = self._room_for(self._key_place(scope, key), value)
        self._stored(lambda: self._keys.put(address, value))

    def state_cas(self, scope: int, key: str, expected: str | None, new: str) -> bool:
        address = self._room_for(self._key_place(scope, key), new)
        return self._stored(lambda: self._keys.compare_and_swap(address, expected, new))

    # -- TCP

    def connect_tcp(self, host: str, port: int) -> int:
        self._check_stopped()
        peer = f"{host}:{port}"
        self.awaited_peer = peer
        handle = self._sockets.connect(host, port)
        self.awaited_peer, self._peers[handle] = None, peer
        self._recovered()
        return handle

    def socket_read(
        self, handle: int, length: int, *, absorbed: bool = False
    ) -> tuple[ReadKind, bytes]:
        self._check_stopped()
        read = self._sockets.read(handle, length, absorbed=absorbed)
        if read[0] == "data":
            self.awaited_peer = None
            self._recovered()
        else:
            self.awaited_peer = self._peers.get(handle)
        return read

    def socket_write(self, handle: int, data: bytes | memoryview) -> int | None:
        self._check_stopped()
        taken = self._sockets.write(handle, data)
        self.awaited_peer = self._peers.get(handle) if taken is None else None
        return taken

    def socket_close(self, handle: int) -> None:
        self._peers.pop(handle, None)
        self._sockets.close(handle)

    def stop(self) -> None:
        """Stops the guest, from another thread: its next socket call or frame is refused (socket
        calls too, since a slow peer may keep it from any other). A guest that ignores
        ``_REFUSALS_TO_STOP`` refusals is ended."""
        self._stopped = True

    def _check_stopped(self) -> None:
        if self._stopped:
            self._refuse_again()
            raise refusal("internal", "STOPPED", "the reader is gone")

    def _refuse_again(self) -> None:
        self._refusals += 1
        if self._refusals > _REFUSALS_TO_STOP:
            raise QueueAbandoned("the reader is gone, and it does not stop")

    def release(self) -> None:
        """Closes the sockets and drops the frames that the guest left."""
        self._sockets.clear()
        self._frames.clear()

    # -- inside

    def _key_place(self, scope: int, key: str) -> KeyAddress:
        return key_place(scope, key, stream=self._stream, instance=self._instance)

    def _room_for(self, address: KeyAddress, value: str) -> KeyAddress:
        """Counts a key against the bound; a key that is written again counts once. Raises
        ``Refusal`` (``STATE_QUOTA``)."""
        size = _bytes_of(address.key, value)
        total = self._key_bytes + size - self._key_sizes.get(address, 0)
        if total > self._bounds.keys:
            raise refusal(
                "internal",
                "STATE_QUOTA",
                f"its keys of this run would hold more than {self._bounds.keys} bytes: raise "
                "limits.max_keys of this connector",
            )
        self._key_bytes, self._key_sizes[address] = total, size
        return address

    def _emit(self, item: StageEvent, size: int) -> None:
        if self._out is None:
            return
        try:
            with self._waiting():
                self._out.put(item, size, self._bounds.timeout)
        except QueueAbandoned as e:
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

    def _stored(self, action: Callable[[], R]) -> R:
        """Calls the store of keys. Raises ``Refusal`` (``STATE_BACKEND``)."""
        try:
            with self._waiting():
                result = action()
        except Exception as e:
            raise refusal("internal", "STATE_BACKEND", str(e)) from e
        self._recovered()
        return result
