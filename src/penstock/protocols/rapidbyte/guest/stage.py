"""Holds a compiled connector with the requirements of one run: configuration, permissions, limits,
keys. Starts its sessions and hosts.

``component`` builds it. Not here: check and discover (``probe``), runs (``guest_thread``).
"""

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import msgspec

from penstock.byte_queue import ByteQueue
from penstock.protocols.rapidbyte.declared.permissions import EffectivePermissions, grants
from penstock.protocols.rapidbyte.guest.host import EventOutput, HostBounds, HostFunctions
from penstock.protocols.rapidbyte.guest.session import CompiledConnector, ComponentSession
from penstock.protocols.rapidbyte.wire.compression import Bytes, Codec, CompressedFrame
from penstock.runtimes.masking import Masker
from penstock.runtimes.wasm.compile_cache import take_problems
from penstock.store.keys import KeyPort, MemoryKeys

_LEAST_SHARE = 64 << 10


class HostMemory(NamedTuple):
    """Divides the host's share of a component's memory limit, in bytes: live frames, and frames
    that wait in the queues before and behind it."""

    frames: int
    waiting: int

    @staticmethod
    def of(memory: int) -> "HostMemory":
        """Returns a quarter of the limit altogether, since a guest needs several times the size of
        a batch to build one."""
        return HostMemory(max(memory // 8, _LEAST_SHARE), max(memory // 8, _LEAST_SHARE))


class QueueBounds(msgspec.Struct, frozen=True, kw_only=True):
    """Bytes that may wait in the queues before and behind a stage; one frame is always admitted.
    ``codec``: frames wait compressed, and their compressed size counts."""

    inbox_bytes: int = 64 << 20
    outbox_bytes: int = 64 << 20
    codec: Codec | None = None


@dataclass(frozen=True)
class Stage:
    """A connector that can be run. ``host_bytes``: its host's share of its memory limit, in bytes
    (:class:`HostMemory`). ``instance``: its position in the pipeline (``source``, ``transform:0``,
    ``destination``). ``keys``: its own state. ``owner``: the stream that owns its stream-scoped
    keys (``StreamId.key``); empty: the stream of the run's name, without a namespace."""

    loaded: CompiledConnector
    config: dict[str, Any]
    allowed: EffectivePermissions
    instance: str
    keys: KeyPort = field(default_factory=MemoryKeys)
    owner: str = ""
    host_bytes: int = 0
    bounds: HostBounds = field(default_factory=HostBounds)
    pressure: QueueBounds = field(default_factory=QueueBounds)
    masker: Masker = field(default_factory=Masker)

    def session(self, host: HostFunctions) -> ComponentSession:
        """Starts an instance. Problems of the compile cache go to the log."""
        for problem in take_problems():
            host.say("WARN", problem)
        return ComponentSession(
            self.loaded,
            host,
            grants=grants(self.allowed),
            memory=self.allowed.max_memory,
            host_bytes=self.host_bytes,
            seconds=self.allowed.timeout_seconds,
            masker=self.masker,
        )

    def host(
        self,
        owner: str,
        inbox: ByteQueue[Bytes | CompressedFrame] | None = None,
        out: EventOutput | None = None,
    ) -> HostFunctions:
        """Returns the host functions of one run. ``owner``: of its stream-scoped keys; ``inbox``:
        the frames it takes; ``out``: receives its events."""
        return HostFunctions(
            self.loaded.role,
            stream=owner,
            instance=self.instance,
            reach=self.allowed.reach,
            keys=self.keys,
            inbox=inbox,
            out=out,
            bounds=self.bounds,
            masker=self.masker,
        )
