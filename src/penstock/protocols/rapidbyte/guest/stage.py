"""A connector with all that it may use: what it is asked and run with.

Made of what a pipeline says (``component``). Not here: asking it (``probe``), running it
(``guest_thread``).
"""

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import msgspec

from penstock.byte_queue import ByteQueue
from penstock.protocols.rapidbyte.declared.permissions import Effective, grants
from penstock.protocols.rapidbyte.guest.host import Host, HostBounds, Outlet
from penstock.protocols.rapidbyte.guest.session import Loaded, Session
from penstock.protocols.rapidbyte.wire.compression import Bytes, Codec, CompressedFrame
from penstock.runtimes.masking import Masker
from penstock.runtimes.wasm.compile_cache import take_problems
from penstock.state.keys import KeyPort, MemoryKeys

_LEAST_SHARE = 64 << 10


class Share(NamedTuple):
    """What of a component's memory its host holds for it: frames that are alive, and frames that
    wait before or behind it."""

    frames: int
    waiting: int

    @staticmethod
    def of(memory: int) -> "Share":
        """A quarter: a guest that makes a batch needs several times its size."""
        return Share(max(memory // 8, _LEAST_SHARE), max(memory // 8, _LEAST_SHARE))


class Pressure(msgspec.Struct, frozen=True, kw_only=True):
    """Bytes that may wait before and behind a stage; one frame is always admitted. ``codec``: they
    wait compressed, and count as what they then are."""

    inbox_bytes: int = 64 << 20
    outbox_bytes: int = 64 << 20
    codec: Codec | None = None


@dataclass(frozen=True)
class Stage:
    """A connector with all that it may use. ``aside``: bytes of its memory that are its host's for
    it (:class:`Share`). ``instance``: its place in the pipeline (``source``, ``transform:0``,
    ``destination``). ``keys``: its own state. ``owner``: whose stream-scoped keys
    these are (``StreamId.key``); empty: of a stream of the run's name, without a namespace."""

    loaded: Loaded
    config: dict[str, Any]
    allowed: Effective
    instance: str
    keys: KeyPort = field(default_factory=MemoryKeys)
    owner: str = ""
    aside: int = 0
    bounds: HostBounds = field(default_factory=HostBounds)
    pressure: Pressure = field(default_factory=Pressure)
    masker: Masker = field(default_factory=Masker)

    def session(self, host: Host) -> Session:
        """Starts an instance; what kept its code from being cached goes to the log."""
        for problem in take_problems():
            host.say("WARN", problem)
        return Session(
            self.loaded,
            host,
            grants=grants(self.allowed),
            memory=self.allowed.max_memory,
            aside=self.aside,
            seconds=self.allowed.timeout_seconds,
            masker=self.masker,
        )

    def host(
        self,
        owner: str,
        inbox: ByteQueue[Bytes | CompressedFrame] | None = None,
        out: Outlet | None = None,
    ) -> Host:
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
