"""A pipeline of a connector that behaves as public reports say (``reported_connectors``), whose
tables are in memory."""

import json
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import deltalake
import msgspec
import pyarrow.parquet as pq
import pytest
from quick_runs import Bench, in_this_process

from penstock.engine.plan import destination
from penstock.engine.run import spark as run_spark
from penstock.engine.run import wiring
from penstock.model.report import Report
from penstock.tables.contract import TableName
from penstock.tables.files import merge_task
from penstock.tables.files.merge_job import MergeTaskJob
from penstock.tables.formats import open_table
from reported_connectors import BODIES


class Reported:
    """``streams``: what the connector has; a test changes them between runs."""

    def __init__(self, bench: Bench, protocol: str, **streams: dict[str, Any]) -> None:
        self.bench, self.protocol, self.streams = bench, protocol, streams
        self._state = bench.folder / "given.json"
        body = f"STATE = {str(self._state)!r}\n{BODIES[protocol]}"
        self.use = bench.connector(body, protocol)

    @property
    def script(self) -> Path:
        return self.bench.folder / "connector.py"

    def send(self, *sent: Any, scope: str = "STREAM", **parts: Any) -> Report:
        """A run in which the connector sends this."""
        self.bench.set(streams=self.streams, sent=list(sent), scope=scope)
        return self.bench.run(self.use, **parts)

    def sends(self, *sent: Any, **parts: Any) -> Report:
        report = self.send(*sent, **parts)
        assert report.exit_code == 0, report.error
        return report

    def given(self) -> Any:
        """The state that the connector was given last."""
        return json.loads(self._state.read_text())

    def rows(self, table: str = "t") -> list[dict[str, Any]]:
        return [dict(row) for row in self.bench.tables.rows.get(TableName(None, table), [])]

    def values(self, *columns: str, table: str = "t") -> list[tuple[Any, ...]]:
        return sorted((tuple(r.get(c) for c in columns) for r in self.rows(table)), key=repr)


class Lake(Reported):
    """The same with real tables, ``format`` parquet or delta, in whose files loads are merged in
    this process. Without Spark: a load that Spark has to write fails."""

    def __init__(
        self, bench: Bench, patch: pytest.MonkeyPatch, protocol: str, format: str, **streams: Any
    ) -> None:
        super().__init__(bench, protocol, **streams)
        self._format, self._folder = format, bench.folder / "lake"
        patch.setattr(destination, "open_table", open_table)
        patch.setattr(wiring, "on_spark", lambda *_: _submit)
        patch.setattr(run_spark.RunSpark, "open", lambda *_: SimpleNamespace(conf=_NO_SETTINGS))

    def send(self, *sent: Any, **parts: Any) -> Report:
        to = {"use": f"{self._format}:{self._folder}", **parts.pop("destination", {})}
        return super().send(*sent, destination=to, **parts)

    def rows(self, table: str = "t") -> list[dict[str, Any]]:
        folder = self._folder / table
        if self._format == "delta":
            return deltalake.DeltaTable(str(folder)).to_pyarrow_table().to_pylist()
        files = [pq.read_table(file).to_pylist() for file in sorted(folder.glob("*.parquet"))]
        return [row for rows in files for row in rows]


_NO_SETTINGS = SimpleNamespace(getAll={}, get=lambda name, default=None: default)


def _submit(module: str, job: bytes) -> bytes:
    if module == "penstock.engine.worker.lane":
        return in_this_process(module, job)
    found = merge_task.run(msgspec.json.decode(job, type=MergeTaskJob), threading.Event())
    return msgspec.json.encode(found)
