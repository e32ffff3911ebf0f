"""The source's streams are discovered at each run: a column that a table got between two runs is
read, with its values.

The sources play databases as the specifications describe them: they read the columns that the
catalog names which they are given.
"""

import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from quick_runs import Bench, Silent

from penstock.config.load import load_pipeline
from penstock.connectors.environments import Environment, Installed
from penstock.connectors.source import SourceConnector
from penstock.engine.plan import open_source
from penstock.engine.run.start import run_pipeline
from penstock.engine.sync.backlog import Backlog
from penstock.model.report import Report
from penstock.tables.contract import TableName

pytestmark = pytest.mark.dear

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
    discovery()
    types = {c: {"type": ["null", t]} for c, t in columns.items()}
    schema = {"type": "object", "properties": types}
    root = {"table-key-properties": ["id"], "database-name": "shop", "row-count": len(rows)}
    found = [{"breadcrumb": [], "metadata": root}]
    found += [{"breadcrumb": ["properties", c], "metadata": {"inclusion": "available"}}
              for c in columns]
    print(json.dumps({"streams": [{"tap_stream_id": NAME, "stream": NAME, "schema": schema,
                                   "metadata": found}]}))
    sys.exit(0)
log("read")
broken()
catalog = given("--catalog") or given("--properties")
(stream,) = catalog["streams"]
picked = [c for c in stream["schema"]["properties"] if c in columns]
schema = {**stream["schema"], "properties": {c: stream["schema"]["properties"][c] for c in picked}}
say({"type": "SCHEMA", "stream": NAME, "schema": schema, "key_properties": ["id"],
     "bookmark_properties": ["id"]})
state = given("--state") or {}
after = state.get("bookmarks", {}).get(NAME, {}).get("replication_key_value", 0)
for row in rows:
    if row["id"] > after:
        say({"type": "RECORD", "stream": NAME, "record": {c: row.get(c) for c in picked}})
        after = row["id"]
say({"type": "STATE", "value": {"bookmarks": {NAME: {
    "replication_key": "id", "replication_key_value": after}}}})
"""

SOURCE = """
columns, rows, command = WORLD["columns"], WORLD["rows"], sys.argv[1]
if command == "spec":
    say({"type": "SPEC", "spec": {"connectionSpecification": {"type": "object"}}})
elif command == "check":
    say({"type": "CONNECTION_STATUS", "connectionStatus": {"status": "SUCCEEDED"}})
elif command == "discover":
    discovery()
    say({"type": "CATALOG", "catalog": {"streams": [{"name": NAME, "json_schema": {
        "type": "object", "properties": {c: {"type": ["null", t]} for c, t in columns.items()}},
        "supported_sync_modes": ["full_refresh", "incremental"], "source_defined_cursor": True,
        "default_cursor_field": ["id"], "source_defined_primary_key": [["id"]]}]}})
else:
    log("read")
    broken()
    (one,) = given("--catalog")["streams"]
    picked = [c for c in one["stream"]["json_schema"]["properties"] if c in columns]
    stream = {"name": NAME}
    def status(word):
        say({"type": "TRACE", "trace": {"type": "STREAM_STATUS", "emitted_at": 1,
             "stream_status": {"stream_descriptor": stream, "status": word}}})
    if "rotates" in WORLD:
        say({"type": "CONTROL", "control": {"type": "CONNECTOR_CONFIG", "emitted_at": 1,
             "connectorConfig": {"config": WORLD["rotates"]}}})
    status("STARTED")
    status("RUNNING")
    after = max([0, *(s["stream"]["stream_state"]["id"] for s in given("--state") or [])])
    for row in rows:
        if row["id"] > after:
            say({"type": "RECORD", "record": {"stream": NAME, "emitted_at": 1,
                 "data": {c: row.get(c) for c in picked}}})
            after = row["id"]
    say({"type": "STATE", "state": {"type": "STREAM", "stream": {
        "stream_descriptor": stream, "stream_state": {"id": after}}}})
    status("COMPLETE")
"""
HELP = """
import time
NAME = WORLD.get("name", "users")
def log(what):
    with open({path!r}, "a") as file: file.write(what + "\\n")
def discovery():
    log("discover")
    time.sleep(WORLD.get("slow", 0))
    if open({path!r}).read().split().count("discover") in WORLD.get("undiscovered", []):
        print("the database is away", file=sys.stderr)
        sys.exit(1)
    log("discovered")
def broken():
    if WORLD.get("broken"):
        print("the session was ended by another one", file=sys.stderr)
        sys.exit(1)
"""


MODES = {"sync_mode": "incremental", "destination_sync_mode": "append", "cursor_field": "id"}
SLOW = {"slow": 1.0}


class Database:
    """A table, and the connector that reads it as if it had been installed."""

    def __init__(self, bench: Bench, protocol: str, patch: pytest.MonkeyPatch) -> None:
        self.bench, self.protocol = bench, protocol
        self.journal, self.seen = bench.folder / "journal", 0
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

    def table(self, *ids: int, world: Mapping[str, Any] | None = None, **columns: str) -> None:
        columns = {"id": "integer", **columns}
        rows = [{c: i if t == "integer" else f"{c}{i}" for c, t in columns.items()} for i in ids]
        self.bench.set(columns=columns, rows=rows, **(world or {}))

    def run(self, *, refresh: bool = False, **source: Any) -> Report:
        modes = {
            "sync_mode": "incremental",
            "destination_sync_mode": "append",
            "cursor_field": "id",
        }
        path = self.bench.file(self.use, source={"defaults": modes, **source})
        pipeline = load_pipeline(path, env={})
        return run_pipeline(pipeline, self.bench.home, observer=Silent(), refresh=refresh)

    def rows(self) -> dict[int, dict[str, Any]]:
        rows = self.bench.tables.rows[TableName(None, "users")]
        found = {row["id"]: {k: v for k, v in row.items() if k[0] != "_"} for row in rows}
        assert len(found) == len(rows)
        return found

    def asked(self) -> list[str]:
        """What the connector did since the last call."""
        found = self.journal.read_text().split()
        new, self.seen = found[self.seen :], len(found)
        return new


@pytest.fixture(params=["singer", "airbyte"])
def database(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> Iterator[Database]:
    yield Database(Bench(tmp_path, monkeypatch), request.param, monkeypatch)


def test_a_column_that_came_between_two_runs_is_read_with_its_values(database: Database) -> None:
    database.table(1, 2)
    first = database.run()
    assert first.status == "succeeded"
    database.table(1, 2, 3, city="string")
    report = database.run()
    assert report.status == "succeeded", report.error
    rows = database.rows()
    assert rows[3]["city"] == "city3"
    assert rows[1].get("city") is None
    assert rows.keys() == {1, 2, 3}
    assert report.guarantee == first.guarantee
    assert len([n for n in report.notes if "catalogue has changed" in n]) == 1
    assert database.asked().count("read") == 3 and report.streams[0].attempts == 2
    line = report.streams[0]
    assert (line.read, line.committed) == (1, 1)


def test_a_column_that_is_gone_is_not_asked_for(database: Database) -> None:
    database.table(1, city="string")
    assert database.run().status == "succeeded"
    database.table(1, 2)
    assert database.run().status == "succeeded"
    assert database.rows()[2].get("city") is None


@pytest.mark.parametrize("database", ["singer"], indirect=True)
def test_the_users_catalog_needs_no_discovery(database: Database) -> None:
    database.table(1)
    assert database.run().status == "succeeded"
    command = [sys.executable, str(database.bench.folder / "connector.py"), "--discover"]
    catalog = database.bench.folder / "catalog.json"
    catalog.write_bytes(subprocess.run(command, check=True, capture_output=True).stdout)
    database.asked()
    database.table(1, 2, city="string")
    report = database.run(catalog=str(catalog))
    assert report.status == "succeeded", report.error
    assert "discover" not in database.asked() and report.time.discover == 0
    assert "city" not in database.rows()[2]


def test_a_read_begins_beside_the_discovery_that_confirms_it(database: Database) -> None:
    """A count of rows is no difference. The run waits for the discovery, which is its cost."""
    database.table(1)
    first = database.run()
    assert first.time.discover > 0  # nothing is known of the source yet
    assert database.asked() == ["discover", "discovered", "read"]
    database.table(1, 2, world=SLOW)
    report = database.run()
    assert report.status == "succeeded", report.error
    asked = database.asked()
    assert sorted(asked[:2]) == ["discover", "read"] and asked[2:] == ["discovered"]
    assert 0 < report.time.discover < 1.0 + report.seconds
    assert database.rows().keys() == {1, 2}
    assert not [n for n in report.notes if "catalogue" in n]
    assert not list((database.bench.home.path).rglob("unconfirmed/0*"))


def test_no_row_of_the_old_catalogue_is_committed(database: Database) -> None:
    database.table(1)
    assert database.run().status == "succeeded"
    database.asked()
    database.table(1, 2, 3, city="string", world=SLOW)
    report = database.run()
    assert report.status == "succeeded", report.error
    assert database.asked().count("read") == 2
    assert database.rows()[2]["city"] == "city2" and len(database.rows()) == 3


def test_a_type_that_changed_begins_the_read_again(database: Database) -> None:
    database.table(1, age="integer")
    assert database.run().status == "succeeded"
    database.table(1, 2, age="string")
    report = database.run()
    assert report.status == "succeeded", report.error
    assert database.rows()[2]["age"] == "age2"


def test_a_discovery_that_fails_beside_a_read_is_tried_once_more(database: Database) -> None:
    database.table(1)
    assert database.run().status == "succeeded"
    database.asked()
    database.table(1, 2, world={"undiscovered": [2]})
    report = database.run()
    assert report.status == "succeeded", report.error
    assert database.asked().count("discover") == 2
    assert database.rows().keys() == {1, 2}


def test_a_discovery_that_fails_twice_fails_the_run_and_what_was_sealed_is_kept(
    database: Database,
) -> None:
    database.table(1)
    assert database.run().status == "succeeded"
    database.asked()
    database.table(1, 2, world={"undiscovered": [2, 3, 4]})
    report = database.run()
    assert report.exit_code != 0 and report.error is not None
    assert "the database is away" in report.error["message"], report.error
    assert database.asked().count("discover") == 2
    assert database.rows().keys() == {1}
    database.table(1, 2, 3)
    report = database.run()
    assert report.status == "succeeded", report.error
    assert database.rows().keys() == {1, 2, 3}
    (line,) = report.streams
    assert (line.read, line.committed) == (2, 2)
    assert database.asked().count("read") == 1


def test_what_was_sealed_with_an_old_catalogue_is_dropped_whole(database: Database) -> None:
    database.table(1)
    assert database.run().status == "succeeded"
    database.table(1, 2, world={"undiscovered": [2, 3]})
    assert database.run().exit_code != 0
    database.table(1, 2, 3, city="string")
    report = database.run()
    assert report.status == "succeeded", report.error
    rows = database.rows()
    assert rows.keys() == {1, 2, 3} and rows[2]["city"] == "city2"


def test_a_read_that_failed_beside_a_discovery_discovers_first_from_then_on(
    database: Database,
) -> None:
    database.table(1)
    assert database.run().status == "succeeded"
    database.table(1, 2, world={"broken": True, **SLOW})
    assert database.run().exit_code != 0
    for ids in ((1, 2), (1, 2, 3)):
        database.asked()
        database.table(*ids)
        assert database.run().status == "succeeded"
        assert database.asked() == ["discover", "discovered", "read"]
    assert database.rows().keys() == {1, 2, 3}
    database.run(discover="beside")
    assert sorted(database.asked()) == ["discover", "discovered", "read"]


@pytest.mark.parametrize("why", ["discover", "refresh_token", "option"])
def test_a_source_that_must_not_run_twice_is_discovered_first(database: Database, why: str) -> None:
    more: dict[str, Any] = {
        "discover": {"discover": "first"},
        "refresh_token": {"config": {"credentials": [{"refresh_token": "x"}]}},
        "option": {},
    }[why]
    for ids in ((1,), (1, 2)):
        database.table(*ids, world=SLOW)
        report = database.run(refresh=why == "option", **more)
        assert report.status == "succeeded", report.error
        assert database.asked() == ["discover", "discovered", "read"]
    assert report.time.discover >= 1.0
    plan = database.bench.plan(database.use, source={"defaults": MODES, **more})
    notes = plan["notes"]
    said = [n for n in notes if n.startswith("the source is discovered before it is read: ")]
    assert len(said) == (why != "option")


def test_a_stream_that_the_kept_catalogue_lacks_is_discovered_first(database: Database) -> None:
    database.table(1)
    assert database.run().status == "succeeded"
    database.asked()
    database.table(1, world={"name": "people"})
    report = database.run(streams=[{"name": "people", "cursor_field": "id"}])
    assert report.status == "succeeded", report.error
    assert database.asked() == ["discover", "discovered", "read"]


@pytest.mark.parametrize("database", ["singer"], indirect=True)
def test_a_stream_of_a_log_is_discovered_first(database: Database) -> None:
    modes = {"sync_mode": "cdc", "destination_sync_mode": "append", "primary_key": "id"}
    for ids in ((1,), (1, 2)):
        database.table(*ids, world=SLOW)
        report = database.run(defaults=modes, discover="beside")
        assert report.status == "succeeded", report.error
        assert database.asked()[-2:] == ["discovered", "read"]


@pytest.mark.parametrize("database", ["airbyte"], indirect=True)
def test_a_source_that_changed_its_configuration_is_discovered_first(database: Database) -> None:
    database.table(1, world={"rotates": {"token": "new"}})
    assert database.run(config={"token": "old"}).status == "succeeded"
    database.asked()
    database.table(1, 2)
    assert database.run(config={"token": "old"}).status == "succeeded"
    assert database.asked() == ["discover", "discovered", "read"]
    assert database.run(config={"token": "another"}).status == "succeeded"
    database.asked()
    assert database.run(config={"token": "another"}).status == "succeeded"
    assert sorted(database.asked()) == ["discover", "discovered", "read"]


def killed(*given: Any) -> Any:
    raise KeyboardInterrupt


def test_L5_what_was_sealed_is_delivered_though_the_source_is_away(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where it is discovered first: the catalogue that is kept is enough to deliver."""
    database.table(1)
    assert database.run().status == "succeeded"
    database.table(1, 2)
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(Backlog, "_admitted", killed)
        database.run()
    assert database.rows().keys() == {1}
    database.table(1, 2, 3, world={"undiscovered": list(range(9))})
    report = database.run(discover="first")
    assert report.error is not None and "the database is away" in report.error["message"]
    assert database.rows().keys() == {1, 2}
