"""Holds a compiled connector with everything that one run of it needs: configuration, permissions,
limits, keys. Starts its sessions and hosts.

``component`` builds it. Not here: check and discover (``probe``), runs (``guest_thread``).
"""

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import msgspec

from penstock.byte_queue import ByteQueue
from penstock.protocols.rapidbyte.declared.permissions import EffectivePermissions, grants
from penstock.protocols.rapidbyte.guest.host import Host, HostBounds, Outlet
from penstock.protocols.rapidbyte.guest.session import Loaded, Session
from penstock.protocols.rapidbyte.wire.compression import Bytes, Codec, CompressedFrame
from penstock.runtimes.masking import Masker
from penstock.runtimes.wasm.compile_cache import take_problems
from penstock.store.keys import KeyPort, MemoryKeys

_LEAST_SHARE = 64 << 10


class Share(NamedTuple):
    """Divides the part of a component's memory limit that its host uses, in bytes: live frames, and
    frames that wait in the queues before and behind it."""

    frames: int
    waiting: int

    @staticmethod
    def of(memory: int) -> "Share":
        """A quarter of the limit altogether, since a guest needs several times the size of a batch
        to make one."""
        return Share(max(memory // 8, _LEAST_SHARE), max(memory // 8, _LEAST_SHARE))


class Pressure(msgspec.Struct, frozen=True, kw_only=True):
    """Bytes that may wait in the queues before and behind a stage; one frame is always admitted.
    ``codec``: frames wait compressed, and their compressed size counts."""

    inbox_bytes: int = 64 << 20
    outbox_bytes: int = 64 << 20
    codec: Codec | None = None


@dataclass(frozen=True)
class Stage:
    """A connector that can be run. ``host_bytes``: bytes of its memory limit that its host uses
    (:class:`Share`). ``instance``: its position in the pipeline (``source``, ``transform:0``,
    ``destination``). ``keys``: its own state. ``owner``: the stream that owns its stream-scoped
    keys (``StreamId.key``); empty: the stream of the run's name, without a namespace."""

    loaded: Loaded
    config: dict[str, Any]
    allowed: EffectivePermissions
    instance: str
    keys: KeyPort = field(default_factory=MemoryKeys)
    owner: str = ""
    host_bytes: int = 0
    bounds: HostBounds = field(default_factory=HostBounds)
    pressure: Pressure = field(default_factory=Pressure)
    masker: Masker = field(default_factory=Masker)

    def session(self, host: Host) -> Session:
        """Starts an instance. Problems of the compile cache go to the log."""
        for problem in take_problems():
            host.say("WARN", problem)
        return Session(
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
        out: Outlet | None = None,
    ) -> Host:
        """The host functions of one run. ``owner``: of its stream-scoped keys; ``inbox``: the
        frames it takes; ``out``: where its events go."""
        return Host(
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
