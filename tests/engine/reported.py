"""A pipeline of a connector that behaves as public reports say (``reported_connectors``), whose
tables are in memory."""

import json
from pathlib import Path
from typing import Any

from quick_runs import Bench

from penstock.model.report import Report
from penstock.tables.contract import TableName
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
