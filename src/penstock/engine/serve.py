"""Serves Penstock as a destination connector: syncs another program's messages on stdin into
tables.

The input is a source like any other: it is copied into a named pipe, which a lane reads like a
connector's stdout; log, loads and ledger work as in every run. Four things differ. The host (the
program that feeds us) sends again what was not acknowledged, so rows that an earlier run sealed
without a load in the ledger are given up. The input cannot be restarted, so a lost lane fails the
run. Its end may be the end of a source that died, so no table is replaced before the host shows
that the stream is complete, where its protocol has a message for that. States are sent back, in
order, once everything before them is committed: each of them or the newest of each scope that a
load covers, as the protocol demands.

Neighbours: ``cli.serve`` communicates with the host; ``engine.run`` runs it.
"""

import hashlib
import json
import os
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, cast

import msgspec
from msgspec.structs import replace

from penstock.config.pipeline import Pipeline
from penstock.config.protocol_spec import spec_of
from penstock.connectors.launch import Launch
from penstock.connectors.reference import ConnectorRef, RefKind
from penstock.connectors.source import SourceConnector
from penstock.engine.plan.source_endpoint import SourceEndpoint
from penstock.engine.plan.streams import StreamsPlan
from penstock.engine.specs.observer import RunObserver
from penstock.engine.specs.plan import PlannedStream
from penstock.errors import ConfigError
from penstock.model.catalog import Catalog, DestinationSyncMode, StreamId
from penstock.model.segments import Load
from penstock.model.state import StoredState
from penstock.protocols import load
from penstock.protocols.hosts import HostGeneration
from penstock.runtimes.contract import RunTimeouts
from penstock.spark.session import choose_master, is_remote
from penstock.store.contract import Lease, Store
from penstock.store.remembered import Remembered

INPUT_TIMEOUT = 7 * 86400.0  # seconds: the host decides how long the input takes
BLOCK = 1 << 20
OPEN_SECONDS = 0.1

Say = Callable[[str, int, int], None]
"""Sends a state (its JSON text) back to the host, with two counts since the scope's previous state:
records that became rows, and records that were rejected."""

Published = Callable[[StreamId], None]
"""Called with a stream whose older rows were replaced, before its next state is sent back."""


class ServedInput(msgspec.Struct, frozen=True, kw_only=True):
    """The input of one run. ``catalog``: its streams, as far as they are known before it is read.
    ``say``: sends a state back. ``pipe``: carries the input. ``generations``: the host's numbers,
    which go into metadata columns; the ledger has its own."""

    protocol: str
    catalog: Catalog
    say: Say
    pipe: Path
    generations: Mapping[StreamId, HostGeneration] = {}

    def refreshes(self) -> dict[StreamId, int]:
        """Returns the host's generation of each stream whose older rows are replaced."""
        return {
            stream: given.generation
            for stream, given in self.generations.items()
            if given.replaces and given.generation is not None
        }

    def settled(self, plan: StreamsPlan, earlier: Remembered) -> StreamsPlan:
        """Returns the plan with the host's numbers, in which each refreshed stream replaces its
        table. A refresh that was published before replaces nothing more: its host resumes from a
        state that was sent back, and sends only the rest."""
        streams: list[PlannedStream] = []
        refreshes = self.refreshes()
        for stream in plan.streams:
            stream = _numbered(stream, self.generations.get(stream.id, HostGeneration()))
            number = refreshes.get(stream.id)
            if number is not None:
                done = number in earlier.refreshes.get(stream.id, ())
                stream = _goes_on(stream) if done else _replaces(stream)
            streams.append(stream)
        return replace(plan, streams=tuple(streams))

    def published(self, store: Store, lease: Lease) -> "Published":
        """Returns a function that saves in the store that a stream's refresh is published."""

        refreshes = self.refreshes()

        def known(stream: StreamId) -> None:
            number = refreshes.get(stream)
            if number is not None:
                store.remember(lease, Remembered(refreshes={stream: frozenset([number])}))

        return known

    def echo(self, store: Store, lease: Lease) -> "Echo":
        """Returns the sender of states."""
        as_served = spec_of(self.protocol).served
        every = as_served is not None and as_served.every_state
        return Echo(self.say, self.published(store, lease), every=every)

    def source(self, pipeline: Pipeline, store: Store, observer: RunObserver) -> "InputSource":
        """Returns the input as a source."""
        return InputSource(self, pipeline, store, observer)


class InputSource(SourceEndpoint):
    """Presents stdin as a source."""

    def __init__(
        self, served: ServedInput, pipeline: Pipeline, store: Store, observer: RunObserver
    ) -> None:
        # The shell ignores the arguments that a protocol appends to the command.
        command = ("/bin/sh", "-c", 'exec cat < "$1"', "input", str(served.pipe))
        ref = ConnectorRef(
            kind=RefKind.command,
            text=pipeline.source.use,
            protocol=served.protocol,
            command=command,
        )
        # The host names files (Singer's BATCH) from where this program runs, not the lane.
        launch = Launch(protocol=served.protocol, command=command, cwd=os.getcwd())
        super().__init__(
            pipeline,
            lambda log: SourceConnector(ref, load(served.protocol), launch, log=log),
            store,
            observer,
            save=lambda new: None,
        )
        self.timeouts = RunTimeouts(INPUT_TIMEOUT, INPUT_TIMEOUT, None, self.timeouts.stop)
        self._catalog = served.catalog

    def validate(self) -> None:
        """No-op: the input has no configuration."""

    def discover(self, *, first: bool = True, recovers: bool = False) -> Catalog:
        del first, recovers
        return self._catalog

    def given(self, catalog: Catalog | None = None) -> str:
        """Returns nothing: the input has no discovery."""
        del catalog
        return ""

    def abilities(self) -> dict[str, object]:
        return {}

    def secrets(self) -> list[str]:
        return []


def _numbered(stream: PlannedStream, given: HostGeneration) -> PlannedStream:
    own = stream.disposition
    sync = own.sync_id if given.sync is None else given.sync
    return replace(stream, disposition=replace(own, sync_id=sync, generation_id=given.generation))


def _replaces(stream: PlannedStream) -> PlannedStream:
    return replace(
        stream,
        configured=replace(stream.configured, replaces=True),
        disposition=replace(stream.disposition, replaces=True),
    )


def _goes_on(stream: PlannedStream) -> PlannedStream:
    if stream.disposition.mode is not DestinationSyncMode.overwrite:
        return stream
    mode = DestinationSyncMode.append
    return replace(
        stream,
        configured=replace(stream.configured, destination_sync_mode=mode),
        disposition=replace(stream.disposition, mode=mode),
    )


def refuse_remote(pipeline: Pipeline) -> None:
    """Raises ``ConfigError`` for a Spark master on another machine, whose workers cannot read
    stdin."""
    master = choose_master(pipeline.spark.master, os.cpu_count() or 1, 1)
    if is_remote(master):
        raise ConfigError(
            f"the Spark master {master} is another machine: it cannot read this program's input",
            code="config.serve",
            hint="serve on a local master (spark.master: local[*])",
        )


@contextmanager
def input_pipe(broke: Callable[[OSError], None], fd: int = 0) -> Generator[Path]:
    """Yields a named pipe that carries the bytes of ``fd`` while the block lasts. ``broke`` is
    called where ``fd`` cannot be read any more. The pipe does not end then, since its end means
    that the input is complete."""
    with tempfile.TemporaryDirectory(prefix="penstock-input-") as folder:
        pipe = Path(folder) / "input"
        os.mkfifo(pipe, 0o600)
        stop = threading.Event()
        work = (fd, pipe, stop, broke)
        pump = threading.Thread(target=_pump, args=work, name="input", daemon=True)
        pump.start()
        try:
            yield pipe
        finally:
            stop.set()


def _pump(fd: int, pipe: Path, stop: threading.Event, broke: Callable[[OSError], None]) -> None:
    """Copies the input into the pipe until the input ends, or its reader does."""
    out = _opened(pipe, stop)
    if out is None:
        return
    try:
        while not stop.is_set() and (block := os.read(fd, BLOCK)):
            view = memoryview(block)
            while view:
                view = view[os.write(out, view) :]
    except BrokenPipeError:
        return
    except OSError as e:
        broke(e)
        stop.wait(INPUT_TIMEOUT)
    finally:
        os.close(out)


def _opened(pipe: Path, stop: threading.Event) -> int | None:
    """Returns the pipe's writing end, once somebody reads from it."""
    while not stop.is_set():
        with suppress(OSError):
            out = os.open(pipe, os.O_WRONLY | os.O_NONBLOCK)
            os.set_blocking(out, True)
            return out
        time.sleep(OPEN_SECONDS)
    return None


class _Met(msgspec.Struct):
    """A state that waits to be sent back: its file, its line's offset, and the digest of its text.
    ``taken``, ``rejected``: its counts, which are known before it is committed."""

    path: Path
    at: int
    digest: bytes
    taken: int = 0
    rejected: int = 0


class Echo:
    """Sends states back once they are committed, in the order in which they were read, per scope.
    ``every``: each state; else only the newest of each scope that a load covers: some hosts save
    each line of a target by itself, which costs more than the sync. The lane writes the states to a
    file (``engine.worker.host_states``) before it seals what they cover; a waiting state takes a
    hundred bytes of memory, however long it is."""

    def __init__(
        self, say: Say, published: Published = lambda stream: None, *, every: bool = True
    ) -> None:
        self._say, self._published, self._every = say, published, every
        self._files: dict[Path, int] = {}
        self._waiting: dict[str, deque[_Met]] = {}
        self._uncounted: dict[Path, deque[_Met]] = {}

    def follow(self, path: Path) -> None:
        """Adds a lane's file of states."""
        self._files[path] = 0

    def loaded(self, load: Load) -> None:
        """Reports a published refresh. Ignores a load before the first lane: it is an earlier
        run's, whose states are not sent back."""
        if load.replaces and self._files:
            self._published(load.stream)

    def committed(self, states: Sequence[StoredState]) -> None:
        """Sends back these states of a load, and before each the earlier ones of its scope, where
        every state is sent. Of equal states it takes the first, which may be the only one with
        committed rows."""
        self._read()
        for state in states:
            waiting = self._waiting.get(state.scope.key, deque[_Met]())
            wanted = _digest(state.blob)
            first = next((i for i, met in enumerate(waiting) if met.digest == wanted), -1)
            self._give(waiting, first + 1)

    def rest(self) -> None:
        """Sends back the states that wait, when everything is committed."""
        self._read()
        for waiting in self._waiting.values():
            self._give(waiting, len(waiting))

    def _give(self, waiting: deque[_Met], count: int) -> None:
        for left in range(count, 0, -1):
            met = waiting.popleft()
            if left > 1 and not self._every:
                continue
            with met.path.open("rb") as file:
                file.seek(met.at)
                self._say(json.loads(file.readline())[1], met.taken, met.rejected)

    def _read(self) -> None:
        for path, at in self._files.items():
            with suppress(FileNotFoundError), path.open("rb") as file:
                file.seek(at)
                for line in file:
                    if not line.endswith(b"\n"):
                        break
                    self._line(json.loads(line), path, at)
                    at += len(line)
            self._files[path] = at

    def _line(self, line: Any, path: Path, at: int) -> None:
        """Takes a line at an offset: a state, or the counts of those before it without counts."""
        uncounted = self._uncounted.setdefault(path, deque())
        if isinstance(line, dict):
            for taken, rejected in cast(dict[str, Any], line)["counts"]:
                met = uncounted.popleft()
                met.taken, met.rejected = taken, rejected
        else:
            scope, blob = line
            met = _Met(path, at, _digest(blob))
            self._waiting.setdefault(scope, deque()).append(met)
            uncounted.append(met)


def _digest(blob: str) -> bytes:
    return hashlib.sha256(blob.encode()).digest()
