"""A connector with all that it may use: what it is asked and run with.

Made of what a pipeline says (``settings``). Not here: asking it (``asking``), running it
(``running``).
"""

from dataclasses import dataclass, field
from typing import Any

import msgspec

from penstock.protocols.rapidbyte.host import Host, HostBounds, Outlet
from penstock.protocols.rapidbyte.lifecycle import Loaded, Session
from penstock.protocols.rapidbyte.permissions import Effective, grants
from penstock.protocols.rapidbyte.pipe import Pipe
from penstock.protocols.rapidbyte.squeeze import Bytes, Codec, Squeezed
from penstock.runtimes.masking import Masker
from penstock.state.keys import KeyPort, MemoryKeys


class Pressure(msgspec.Struct, frozen=True, kw_only=True):
    """Bytes that may wait before and behind a stage; one frame is always admitted. ``codec``: they
    wait compressed, and count as what they then are."""

    inbox_bytes: int = 64 << 20
    outbox_bytes: int = 64 << 20
    codec: Codec | None = None


@dataclass(frozen=True)
class Stage:
    """A connector with all that it may use. ``instance``: its place in the pipeline (``source``,
    ``transform:0``, ``destination``). ``keys``: its own state. ``owner``: whose stream-scoped keys
    these are (``StreamId.key``); empty: of a stream of the run's name, without a namespace."""

    loaded: Loaded
    config: dict[str, Any]
    allowed: Effective
    instance: str
    keys: KeyPort = field(default_factory=MemoryKeys)
    owner: str = ""
    bounds: HostBounds = field(default_factory=HostBounds)
    pressure: Pressure = field(default_factory=Pressure)
    masker: Masker = field(default_factory=lambda: Masker(()))

    def session(self, host: Host) -> Session:
        return Session(
            self.loaded,
            host,
            grants=grants(self.allowed),
            memory=self.allowed.max_memory,
            seconds=self.allowed.timeout_seconds,
            masker=self.masker,
        )

    def host(
        self,
        owner: str,
        inbox: Pipe[Bytes | Squeezed] | None = None,
        out: Outlet | None = None,
    ) -> Host:
        return Host(
            self.loaded.role,
            stream=owner,
            instance=self.instance,
            hosts=self.allowed.hosts,
            keys=self.keys,
            inbox=inbox,
            out=out,
            bounds=self.bounds,
            masker=self.masker,
        )
