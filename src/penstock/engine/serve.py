"""Penstock as a connector: another program's messages come on our stdin and are synced into tables.

The input is a source like any other: it is passed on through a named pipe, which a lane reads as it
reads a connector's stdout; the log, the loads and the ledger are those of every run. Three things
differ. Whoever feeds us sends again what we did not acknowledge, so what an earlier run had sealed
and not written down is given up; the input cannot be begun again, so a lane that is lost fails the
run; and each state goes back, in order, once everything before it is committed.
Neighbours: ``cli.serve`` speaks to the other program; ``engine.run`` runs it.
"""

import json
import os
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec

from penstock.config.pipeline import Pipeline
from penstock.connectors.launch import Launch
from penstock.connectors.reference import ConnectorRef, RefKind
from penstock.connectors.source import SourceConnector
from penstock.engine.ends import Source
from penstock.engine.progress import RunObserver
from penstock.errors import ConfigError
from penstock.model.catalog import Catalog
from penstock.model.state import SavedState
from penstock.protocols import load
from penstock.runtimes.contract import Timeouts
from penstock.spark.session import choose_master, is_remote
from penstock.state.contract import Store

PATIENCE = 7 * 86400.0  # seconds: whoever feeds us decides how long it takes
BLOCK = 1 << 20
OPEN_SECONDS = 0.1

Say = Callable[[str], None]
"""Gives a state (its JSON text) back to whoever feeds us."""


class Served(msgspec.Struct, frozen=True, kw_only=True):
    """``catalog``: what the input will hold, as far as it is known before it comes."""

    protocol: str
    catalog: Catalog
    say: Say
    pipe: Path

    def source(self, pipeline: Pipeline, store: Store, observer: RunObserver) -> "InputSource":
        return InputSource(self, pipeline, store, observer)


class InputSource(Source):
    """Our own stdin, in the shape of a source."""

    def __init__(
        self, served: Served, pipeline: Pipeline, store: Store, observer: RunObserver
    ) -> None:
        # What a protocol adds to the command is of no use to it.
        command = ("/bin/sh", "-c", 'exec cat < "$1"', "input", str(served.pipe))
        ref = ConnectorRef(
            kind=RefKind.command,
            text=pipeline.source.use,
            protocol=served.protocol,
            command=command,
        )
        launch = Launch(protocol=served.protocol, command=command)
        super().__init__(
            pipeline,
            lambda log: SourceConnector(ref, load(served.protocol), launch, log=log),
            store,
            observer,
            save=lambda new: None,
        )
        self.timeouts = Timeouts(PATIENCE, PATIENCE, None, self.timeouts.stop)
        self._catalog = served.catalog

    def validate(self) -> None:
        """It has no configuration."""

    def discover(self) -> Catalog:
        return self._catalog

    def abilities(self) -> dict[str, object]:
        return {}

    def secrets(self) -> list[str]:
        return []


def refuse_remote(pipeline: Pipeline) -> None:
    """Raises ``ConfigError``: a worker elsewhere cannot read our stdin."""
    master = choose_master(pipeline.spark.master, os.cpu_count() or 1, 1)
    if is_remote(master):
        raise ConfigError(
            f"the Spark master {master} is another machine: it cannot read this program's input",
            code="config.serve",
            hint="serve on a local master (spark.master: local[*])",
        )


@contextmanager
def input_pipe(fd: int = 0) -> Generator[Path]:
    """A named pipe that carries what ``fd`` gives, for as long as the block lasts."""
    with tempfile.TemporaryDirectory(prefix="penstock-input-") as folder:
        pipe = Path(folder) / "input"
        os.mkfifo(pipe, 0o600)
        stop = threading.Event()
        pump = threading.Thread(target=_pump, args=(fd, pipe, stop), name="input", daemon=True)
        pump.start()
        try:
            yield pipe
        finally:
            stop.set()


def _pump(fd: int, pipe: Path, stop: threading.Event) -> None:
    """Until the input ends, or its reader does."""
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
    finally:
        os.close(out)


def _opened(pipe: Path, stop: threading.Event) -> int | None:
    """Its writing end, once somebody reads it."""
    while not stop.is_set():
        with suppress(OSError):
            out = os.open(pipe, os.O_WRONLY | os.O_NONBLOCK)
            os.set_blocking(out, True)
            return out
        time.sleep(OPEN_SECONDS)
    return None


class Echo:
    """States go back in the order in which they came, per scope, once they are committed. The lane
    writes down each that it met (``engine.child``), before it seals what the state covers."""

    def __init__(self, say: Say) -> None:
        self._say = say
        self._files: dict[Path, int] = {}
        self._waiting: dict[str, deque[str]] = {}

    def follow(self, path: Path) -> None:
        self._files[path] = 0

    def committed(self, states: Sequence[SavedState]) -> None:
        """These, and with each those of its scope that came before it."""
        self._read()
        for state in states:
            waiting = self._waiting.get(state.scope.key, deque[str]())
            last = max((i for i, blob in enumerate(waiting) if blob == state.blob), default=-1)
            for _ in range(last + 1):
                self._say(waiting.popleft())

    def rest(self) -> None:
        """Everything is committed."""
        self._read()
        for waiting in self._waiting.values():
            while waiting:
                self._say(waiting.popleft())

    def _read(self) -> None:
        for path, at in self._files.items():
            with suppress(FileNotFoundError), path.open("rb") as file:
                file.seek(at)
                for line in file:
                    if not line.endswith(b"\n"):
                        break
                    at += len(line)
                    scope, blob = json.loads(line)
                    self._waiting.setdefault(scope, deque()).append(blob)
            self._files[path] = at
