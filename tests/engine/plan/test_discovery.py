"""The source's streams are discovered at each run: a column that a table got between two runs is
read, with its values.

The sources play databases as the specifications describe them: they read the columns that the
catalog names which they are given.
"""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from quick_runs import Bench

from penstock.connectors.environments import Environment, Installed
from penstock.connectors.source import SourceConnector
from penstock.engine.plan import open_source
from penstock.model.report import Report
from penstock.tables.contract import TableName

LOCK = Environment(
    protocol="singer", package="p", version="1", key="k", lock="", python="3.11",
    script="python", folder="",
)  # fmt: skip

# A table of a database: `columns` with their JSON types, `rows`. Each read is recorded.
TAP = """
columns, rows = WORLD["columns"], WORLD["rows"]
if "--about" in sys.argv or "--help" in sys.argv:
    sys.exit(2)
if "--discover" in sys.argv:
    log("discover")
    types = {c: {"type": ["null", t]} for c, t in columns.items()}
    schema = {"type": "object", "properties": types}
    root = {"table-key-properties": ["id"], "database-name": "shop", "row-count": len(rows)}
    found = [{"breadcrumb": [], "metadata": root}]
    found += [{"breadcrumb": ["properties", c], "metadata": {"inclusion": "available"}}
              for c in columns]
    print(json.dumps({"streams": [{"tap_stream_id": "users", "stream": "users", "schema": schema,
                                   "metadata": found}]}))
    sys.exit(0)
log("read")
catalog = given("--catalog") or given("--properties")
(stream,) = catalog["streams"]
picked = [c for c in stream["schema"]["properties"] if c in columns]
schema = {**stream["schema"], "properties": {c: stream["schema"]["properties"][c] for c in picked}}
say({"type": "SCHEMA", "stream": "users", "schema": schema, "key_properties": ["id"],
     "bookmark_properties": ["id"]})
state = given("--state") or {}
after = state.get("bookmarks", {}).get("users", {}).get("replication_key_value", 0)
for row in rows:
    if row["id"] > after:
        say({"type": "RECORD", "stream": "users", "record": {c: row.get(c) for c in picked}})
        after = row["id"]
say({"type": "STATE", "value": {"bookmarks": {"users": {
    "replication_key": "id", "replication_key_value": after}}}})
"""

SOURCE = """
columns, rows, command = WORLD["columns"], WORLD["rows"], sys.argv[1]
if command == "spec":
    say({"type": "SPEC", "spec": {"connectionSpecification": {"type": "object"}}})
elif command == "check":
    say({"type": "CONNECTION_STATUS", "connectionStatus": {"status": "SUCCEEDED"}})
elif command == "discover":
    log("discover")
    say({"type": "CATALOG", "catalog": {"streams": [{"name": "users", "json_schema": {
        "type": "object", "properties": {c: {"type": ["null", t]} for c, t in columns.items()}},
        "supported_sync_modes": ["full_refresh", "incremental"], "source_defined_cursor": True,
        "default_cursor_field": ["id"], "source_defined_primary_key": [["id"]]}]}})
else:
    log("read")
    (one,) = given("--catalog")["streams"]
    picked = [c for c in one["stream"]["json_schema"]["properties"] if c in columns]
    stream = {"name": "users"}
    def status(word):
        say({"type": "TRACE", "trace": {"type": "STREAM_STATUS", "emitted_at": 1,
             "stream_status": {"stream_descriptor": stream, "status": word}}})
    status("STARTED")
    status("RUNNING")
    after = max([0, *(s["stream"]["stream_state"]["id"] for s in given("--state") or [])])
    for row in rows:
        if row["id"] > after:
            say({"type": "RECORD", "record": {"stream": "users", "emitted_at": 1,
                 "data": {c: row.get(c) for c in picked}}})
            after = row["id"]
    say({"type": "STATE", "state": {"type": "STREAM", "stream": {
        "stream_descriptor": stream, "stream_state": {"id": after}}}})
    status("COMPLETE")
"""
HELP = """
def log(what):
    with open({path!r}, "a") as file: file.write(what + "\\n")
"""


class Database:
    """A table, and the connector that reads it as if it had been installed."""

    def __init__(self, bench: Bench, protocol: str, patch: pytest.MonkeyPatch) -> None:
        self.bench, self.protocol = bench, protocol
        self.journal = bench.folder / "journal"
        body = HELP.format(path=str(self.journal)) + (TAP if protocol == "singer" else SOURCE)
        self.use = bench.connector(body, protocol)
        folder = bench.folder / "environment"
        folder.mkdir()
        entry = Installed(name="t", environment=LOCK, path=str(folder), built_at="")
        real = open_source.resolve

        def installed(*given: Any, **more: Any) -> SourceConnector:
            source = real(*given, **more)
            source._entry = entry
            return source

        patch.setattr(open_source, "resolve", installed)

    def table(self, *ids: int, **columns: str) -> None:
        columns = {"id": "integer", **columns}
        rows = [{c: i if t == "integer" else f"{c}{i}" for c, t in columns.items()} for i in ids]
        self.bench.set(columns=columns, rows=rows)

    def run(self, **source: Any) -> Report:
        modes = {
            "sync_mode": "incremental",
            "destination_sync_mode": "append",
            "cursor_field": "id",
        }
        return self.bench.run(self.use, source={"defaults": modes, **source})

    def rows(self) -> dict[int, dict[str, Any]]:
        rows = self.bench.tables.rows[TableName(None, "users")]
        found = {row["id"]: {k: v for k, v in row.items() if k[0] != "_"} for row in rows}
        assert len(found) == len(rows)
        return found

    def asked(self) -> list[str]:
        return self.journal.read_text().split()


@pytest.fixture(params=["singer", "airbyte"])
def database(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> Iterator[Database]:
    yield Database(Bench(tmp_path, monkeypatch), request.param, monkeypatch)


def test_a_column_that_came_between_two_runs_is_read_with_its_values(database: Database) -> None:
    database.table(1, 2)
    assert database.run().status == "succeeded"
    database.table(1, 2, 3, city="string")
    report = database.run()
    assert report.status == "succeeded", report.error
    rows = database.rows()
    assert rows[3]["city"] == "city3"
    assert rows[1].get("city") is None
    assert rows.keys() == {1, 2, 3}
    assert report.time.discover > 0
    assert report.guarantee == "exactly-once"


def test_a_column_that_is_gone_is_not_asked_for(database: Database) -> None:
    database.table(1, city="string")
    assert database.run().status == "succeeded"
    database.table(1, 2)
    assert database.run().status == "succeeded"
    assert database.rows()[2].get("city") is None


def test_the_users_catalog_needs_no_discovery(database: Database) -> None:
    if database.protocol != "singer":
        pytest.skip("only Singer pipelines give a catalog file")
    import subprocess

    database.table(1)
    assert database.run().status == "succeeded"
    command = [sys.executable, str(database.bench.folder / "connector.py"), "--discover"]
    catalog = database.bench.folder / "catalog.json"
    catalog.write_bytes(subprocess.run(command, check=True, capture_output=True).stdout)
    before = database.asked().count("discover")
    database.table(1, 2, city="string")
    report = database.run(catalog=str(catalog))
    assert report.status == "succeeded", report.error
    assert database.asked().count("discover") == before and report.time.discover == 0
    assert "city" not in database.rows()[2]
