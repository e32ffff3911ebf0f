"""The 19 host functions, for one stage and one run of a connector.

Plain values in and out; what a connector may handle is raised as ``Refusal``. The first refusal is
kept until a call shows that the guest went on: guests hide their host's errors (a denied host
comes back as a retryable network fault), so whoever reports shows that one. Neighbours:
``binding`` gives the functions to a component; ``frames``, ``sockets``, ``keys``, ``metrics`` and
``pipe`` do the work; ``told`` is what it says. Source: the protocol, section 4.
"""

import contextlib
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Protocol, TypeVar

import msgspec

from penstock.protocols.rapidbyte.frames import FrameBounds, FrameTable
from penstock.protocols.rapidbyte.keys import place
from penstock.protocols.rapidbyte.messages import (
    CATEGORIES,
    CheckpointPayload,
    DeadLetter,
    MetricPayload,
    Refusal,
    Role,
    decoded,
    payload_of,
    refusal,
)
from penstock.protocols.rapidbyte.metrics import Metrics
from penstock.protocols.rapidbyte.pipe import END, Abandoned, End, Failed, Pipe, TooLong
from penstock.protocols.rapidbyte.sockets import ReadKind, SocketBounds, Sockets, Waiting
from penstock.protocols.rapidbyte.squeeze import Bytes, Squeezed, expand
from penstock.protocols.rapidbyte.told import Checkpoint, Frame, Logged, PutAside, Told
from penstock.runtimes.masking import Masker
from penstock.state.keys import KeyPort, MemoryKeys, Place

PATIENCE = 10800.0
"""Seconds that a stage waits for a neighbour that does nothing."""
_LEVELS = ("ERROR", "WARN", "INFO", "DEBUG", "TRACE")
_LONGEST_MESSAGE = 16 * 1024
_LONGEST_DOCUMENT = 16 << 20
_KINDS = 3
_RESERVES = {"WARN": 1, "ERROR": 2}  # times ``HostBounds.grave_lines``
FEED_FAILED = "UPSTREAM_FAILED"
_REFUSALS_TO_STOP = 1000
"""So often is a guest told that nobody listens, before it is ended."""

R = TypeVar("R")


class Outlet(Protocol):
    """Who is told: a ``Pipe``, or whoever takes an item at once. Raises ``Abandoned``,
    ``TooLong``."""

    def put(self, item: Told, size: int, patience: float) -> None: ...


class HostBounds(msgspec.Struct, frozen=True, kw_only=True):
    """``log_lines`` of one run, the rest is counted; ``grave_lines``: room beyond that for
    warnings, and as much again for errors. ``patience``: seconds without a neighbour. ``silence``:
    seconds without a sign of life of its own; None: as ``patience``."""

    frames: FrameBounds = FrameBounds()
    sockets: SocketBounds = SocketBounds()
    log_lines: int = 10_000
    grave_lines: int = 1_000
    patience: float = PATIENCE
    silence: float | None = None


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


class Host:
    """``inbox``: where frames come from (destination, transform); ``out``: what is told, frames
    included (source, transform); None where nobody listens. ``hosts``: patterns of ``network``.
    ``instance``: the connector's place in the pipeline, for its own keys (``source``,
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
        hosts: tuple[str, ...] = (),
        keys: KeyPort | None = None,
        inbox: Pipe[Bytes | Squeezed] | None = None,
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
        self._masker = masker or Masker(())
        self._frames = FrameTable(self._bounds.frames)
        self._sockets = Sockets(hosts, self._bounds.sockets)
        self._waiting: Waiting = contextlib.nullcontext
        self._lines = 0
        self._stopped = False
        self._refusals = 0
        self._peers: dict[int, str] = {}
        self._ahead: Bytes | Squeezed | None = None  # taken, and refused for want of room
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
        self._sockets.waiting = waiting

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
        handle = self._frames.receive(expand(data))
        self._ahead = None
        self.frames_in += 1
        self.beats += 1
        self._recovered()
        return handle

    def _asked(self, inbox: Pipe[Bytes | Squeezed]) -> Bytes | Squeezed | End:
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
            payload = decoded(document, CheckpointPayload)
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
            self.metrics.add(decoded(document, MetricPayload))
        except ValueError as e:
            raise refusal("internal", "PARSE_METRIC", str(e)) from None

    def emit_dlq_record(
        self, stream_name: str, record_json: str, error_message: str, error_category: str
    ) -> None:
        category = error_category if error_category in CATEGORIES else "internal"
        letter = DeadLetter(
            stream_name=stream_name,
            record_json=record_json,
            error_message=self._masker.mask(error_message),
            error_category=category,
            failed_at=_now(),
        )
        self._tell(PutAside(letter), len(record_json) + len(error_message))
        self.beats += 1

    # -- state

    def state_get(self, scope: int, key: str) -> str | None:
        where = self._place(scope, key)
        return self._kept(lambda: self._keys.get(where))

    def state_put(self, scope: int, key: str, value: str) -> None:
        where = self._place(scope, key)
        self._kept(lambda: self._keys.put(where, value))

    def state_cas(self, scope: int, key: str, expected: str | None, new: str) -> bool:
        where = self._place(scope, key)
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
        return place(scope, key, stream=self._stream, instance=self._instance)

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
            return payload_of(text)
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
