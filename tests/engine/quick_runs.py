"""Whole runs of real connectors in half a second each: no Java, the lane in this process, tables in
memory.

Real: the pipeline file, the connector's process, discovery, plan, store, log, ledger, loads. Twins:
Spark (nothing), tables (``tables.memory``), the lane's own process.
"""

import json
import sys
import textwrap
import threading
from pathlib import Path
from typing import Any

import msgspec
import pyarrow.parquet as pq
import pytest

from memory_tables import MemoryTables
from penstock.config.home import Home
from penstock.config.load import load_pipeline
from penstock.engine.deliver.part_checks import CheckInDriver
from penstock.engine.inspect.pipelines import open_known
from penstock.engine.inspect.plan_check import plan_pipeline
from penstock.engine.log.log import FileLog
from penstock.engine.plan import destination
from penstock.engine.run import run as runs
from penstock.engine.run import spark as run_spark
from penstock.engine.run import wiring
from penstock.engine.run.reject_retry import RetryRequest
from penstock.engine.run.start import run_pipeline
from penstock.engine.specs.lane import LaneJob
from penstock.engine.worker.lane import run_lane
from penstock.model.report import Report
from penstock.model.state import StoredState
from penstock.store.open import open_store
from penstock.tables.contract import TableName

NAME = "quick"


class Silent:
    """A run's observer that keeps what it hears."""

    def __init__(self) -> None:
        self.heard: list[str] = []

    def phase(self, name: str, detail: str) -> None: ...

    def stream(self, *about: object) -> None: ...

    def log(self, level: str, origin: str, message: str) -> None:
        self.heard.append(message)

    def note(self, text: str) -> None:
        self.heard.append(text)


def in_this_process(module: str, job: bytes) -> bytes:
    assert module == "penstock.engine.worker.lane"
    return msgspec.json.encode(run_lane(msgspec.json.decode(job, type=LaneJob), threading.Event()))


class Bench:
    """One pipeline and its home. ``knob``: what the connector's script reads as its world, a JSON
    file beside it (:meth:`set`)."""

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch) -> None:
        self.folder, self.home = folder, Home(folder / "home")
        self.knobs = folder / "world.json"
        self.tables = MemoryTables(lambda path: pq.read_table(path).to_pylist())
        self.protocol = "singer"
        patch.setattr(destination, "open_table", lambda *_: self.tables)
        patch.setattr(run_spark.RunSpark, "start_early", lambda *_: None)
        patch.setattr(run_spark.RunSpark, "open", lambda *_: object())
        patch.setattr(runs, "jvm_peak", lambda: 0)
        patch.setattr(wiring, "on_spark", lambda *_: in_this_process)
        patch.setattr(wiring, "CheckInTasks", lambda _, root: CheckInDriver(FileLog(root)))

    def connector(self, body: str, protocol: str = "singer", name: str = "connector") -> str:
        """Write a connector's script; its reference. ``WORLD`` in it: the knobs; ``say`` prints a
        message; ``given(option)``: the JSON in the file of a command line option, or None."""
        self.protocol = protocol
        path = self.folder / f"{name}.py"
        path.write_text(
            "import json, sys\n"
            f"WORLD = json.load(open({str(self.knobs)!r}))\n"
            "def say(message): print(json.dumps(message), flush=True)\n"
            "def given(option):\n"
            "    if option not in sys.argv: return None\n"
            "    return json.load(open(sys.argv[sys.argv.index(option) + 1]))\n"
            + textwrap.dedent(body)
        )
        return f"{protocol}:{sys.executable} {path}"

    def set(self, **world: Any) -> None:
        self.knobs.write_text(json.dumps(world))

    def file(self, use: str, *, source: dict[str, Any] | None = None, **sections: Any) -> Path:
        path = self.folder / "pipeline.yaml"
        document = {
            "pipeline": NAME,
            "source": {"use": use, **(source or {})},
            "destination": {"use": "parquet", "config": {"path": str(self.folder / "lake")}},
            **sections,
        }
        path.write_text(json.dumps(document))
        return path

    def run(
        self,
        use: str,
        *,
        full_refresh: bool = False,
        recreate: bool = False,
        retry: RetryRequest | None = None,
        home: Home | None = None,
        **parts: Any,
    ) -> Report:
        """``retry``: reads rejects. ``home``: another one than the bench's."""
        pipeline = load_pipeline(self.file(use, **parts), env={})
        how: dict[str, Any] = {"full_refresh": full_refresh, "recreate": recreate, "retry": retry}
        return run_pipeline(pipeline, home or self.home, observer=Silent(), **how)

    def plan(self, use: str, **parts: Any) -> dict[str, Any]:
        pipeline = load_pipeline(self.file(use, **parts), env={})
        return plan_pipeline(pipeline, self.home, observer=Silent())

    def known(self) -> Any:
        """``with bench.known() as known``: the pipeline by its bare name, for the state verbs."""
        return open_known(NAME, self.home)

    def ids(self, table: str, column: str = "id") -> list[Any]:
        return sorted(row[column] for row in self.tables.rows.get(TableName(None, table), []))

    def states(self) -> list[StoredState]:
        store = open_store(self.home.state_url())
        try:
            return store.states(NAME)
        finally:
            store.close()
