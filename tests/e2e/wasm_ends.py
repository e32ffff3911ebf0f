"""Pipelines with WebAssembly components at both ends, run in this process.

Compiled code is kept (``kept_builds``), so that a component is compiled once for all tests.
"""

import json
import socket
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pipelines import Ran
from wasm_sites import WasmSite, encode_name, encode_section

from penstock.engine.plan import lane_jobs
from penstock.engine.specs.lane import LaneBounds
from penstock.protocols.rapidbyte.declared.manifest import MANIFEST_SECTION

import rapidbyte_guests  # isort: skip

APPEND = {"sync_mode": "full_refresh", "destination_sync_mode": "append"}
INCREMENTAL = {"sync_mode": "incremental", "destination_sync_mode": "append"}
UPSERT = {"sync_mode": "incremental", "destination_sync_mode": "append_dedup"}
REPLACE = {"sync_mode": "full_refresh", "destination_sync_mode": "overwrite"}


def seal_each_state(patch: pytest.MonkeyPatch) -> None:
    """Each state of a source makes a segment, and each segment goes out by itself."""
    patch.setattr(lane_jobs, "LaneBounds", partial(LaneBounds, seal_bytes=1, seal_seconds=0.01))


class Ends(WasmSite):
    """From one component into another. ``to``: the destination's content, or what its section's
    ``use`` says."""

    def __init__(self, folder: Path, *, binary: bytes, to: bytes | str) -> None:
        super().__init__(folder, "parquet", binary=binary)
        if isinstance(to, bytes):
            path = folder / "destination.wasm"
            path.write_bytes(to)
            self.to = str(path)
        else:
            self.to = to

    def sync(
        self,
        read: Mapping[str, Any],
        write: Mapping[str, Any],
        defaults: Mapping[str, str] = INCREMENTAL,
        *,
        destination: Mapping[str, Any] | None = None,
        **parts: Any,
    ) -> Ran:
        """``read``, ``write``: the two configurations; ``destination``: further keys of its
        section."""
        section = {"use": self.to, "config": dict(write), **(destination or {})}
        return self.run(config=dict(read), defaults=dict(defaults), destination=section, **parts)


# -- a destination that does what its peer answers (``tests/stubs/rapidbyte/obey.c``)

OBEY: dict[str, Any] = {
    "id": "penstock-tests/obey",
    "name": "Obey",
    "version": "1.0.0",
    "protocol_version": "4",
    "permissions": {"network": {"allow_runtime_config_domains": True}},
    "roles": {
        "destination": {
            "supported_write_modes": [{"mode": "append"}, {"mode": "upsert"}, {"mode": "replace"}]
        }
    },
}


def obedient() -> bytes:
    made = rapidbyte_guests.c_guest("destination", "obey.c")
    return made + encode_section(0, encode_name(MANIFEST_SECTION) + json.dumps(OBEY).encode())


@dataclass
class Heard:
    """A message of one run of the destination. ``run`` counts from 1."""

    run: int
    kind: str  # B, F, E, X
    body: bytes
    at: float

    @property
    def seqs(self) -> list[int]:
        """Of a frame: its first column."""
        return pa.ipc.open_stream(self.body).read_all().column(0).to_pylist()


class Peer:
    """``answer`` says what the guest does next; called from each connection's thread, one at a
    time. What it does not answer within a minute is hung up on."""

    def __init__(self, answer: Callable[[Heard], str]) -> None:
        self.heard: list[Heard] = []
        self.over = threading.Event()
        self._answer, self._lock, self._runs = answer, threading.Lock(), 0
        self._listening = socket.create_server(("127.0.0.1", 0))
        self._listening.settimeout(0.2)
        self.port: int = self._listening.getsockname()[1]
        self._thread = threading.Thread(target=self._accept, daemon=True)

    @property
    def config(self) -> dict[str, Any]:
        return {"host": "127.0.0.1", "port": self.port}

    def of(self, kind: str, run: int | None = None) -> list[Heard]:
        with self._lock:
            found = [h for h in self.heard if h.kind == kind]
        return [h for h in found if run in (None, h.run)]

    def seqs(self, run: int | None = None) -> list[int]:
        return [seq for frame in self.of("F", run) for seq in frame.seqs]

    def streams(self) -> list[str]:
        return [json.loads(h.body)["stream_name"] for h in self.of("B")]

    def __enter__(self) -> "Peer":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.over.set()
        self._thread.join(10)
        self._listening.close()

    def _accept(self) -> None:
        while not self.over.is_set():
            try:
                link, _ = self._listening.accept()
            except TimeoutError:
                continue
            self._runs += 1
            threading.Thread(target=self._talk, args=(link, self._runs), daemon=True).start()

    def _talk(self, link: socket.socket, run: int) -> None:
        link.settimeout(60)
        with link, suppress(OSError), link.makefile("rb") as said:
            while len(head := said.read(5)) == 5:
                body = said.read(int.from_bytes(head[1:], "little"))
                message = Heard(run, chr(head[0]), body, time.monotonic())
                with self._lock:
                    self.heard.append(message)
                link.sendall(self._answer(message).encode())


def always(frame: str = "c") -> Callable[[Heard], str]:
    """Each frame is answered with this letter, all else with ``k``."""
    return lambda heard: frame if heard.kind == "F" else "k"


class Gate:
    """Where the scripted source's ``wait`` waits until the gate is opened. ``reached``:
    somebody waits, or has waited."""

    def __init__(self) -> None:
        self.reached, self.open_component = threading.Event(), threading.Event()
        self._listening = socket.create_server(("127.0.0.1", 0))
        self._listening.settimeout(0.1)
        self.config: dict[str, Any] = {
            "host": "127.0.0.1", "port": self._listening.getsockname()[1],
        }  # fmt: skip
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._work, daemon=True)

    def __enter__(self) -> "Gate":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join(10)
        self._listening.close()

    def _work(self) -> None:
        held: list[socket.socket] = []
        while not self._over.is_set():
            with suppress(TimeoutError):
                held.append(self._listening.accept()[0])
                self.reached.set()
            if self.open_component.is_set():
                while held:
                    held.pop().close()
        for link in held:
            link.close()
