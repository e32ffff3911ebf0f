"""L1: a saved state goes to its source under the cursor that it was made with.

Under another one a source passes over rows, or a tap fails in every run. What a user changes is
refused; what a source's catalog changes is not followed as long as the old cursor is there.
"""

from pathlib import Path
from typing import Any

import pytest
from quick_runs import Bench

from penstock.config.pipeline import StreamOptions
from penstock.engine.inspect import states
from penstock.engine.inspect.rewinds import rewind
from penstock.errors import ConfigError
from penstock.store.open import open_store

pytestmark = pytest.mark.dear

# ``rows``: [id, at] each. ``columns``: of the schema; ``default``: the source's own cursor;
# ``own``: it is source-defined; ``kind``: of the states. The source keeps one value and compares it
# with whatever cursor it is given.
SOURCE = """
properties = {c: {"type": "integer"} for c in WORLD.get("columns", ["id", "at"])}
default = {"default_cursor_field": [WORLD["default"]]} if WORLD.get("default") else {}
if "spec" in sys.argv:
    say({"type": "SPEC", "spec": {"connectionSpecification": {}}})
elif "check" in sys.argv:
    say({"type": "CONNECTION_STATUS", "connectionStatus": {"status": "SUCCEEDED"}})
elif "discover" in sys.argv:
    say({"type": "CATALOG", "catalog": {"streams": [
        {"name": "users", "json_schema": {"properties": properties}, **default,
         "source_defined_primary_key": [["id"]],
         "supported_sync_modes": ["incremental", "full_refresh"],
         "source_defined_cursor": WORLD.get("own", False)}]}})
else:
    (one,) = given("--catalog")["streams"]
    cursor = (one.get("cursor_field") or [WORLD.get("default")])[0]
    state = given("--state") or []
    if WORLD.get("kind") == "LEGACY": last = state["users"] if state else 0
    else: last = (state[0]["stream"]["stream_state"] or {"at": 0})["at"] if state else 0
    rows = sorted(WORLD["rows"], key=lambda row: row[cursor or "id"])
    if one["sync_mode"] == "incremental": rows = [row for row in rows if row[cursor] > last]
    for row in rows:
        say({"type": "RECORD", "record": {"stream": "users", "data": row, "emitted_at": 1}})
        last = max(last, row[cursor]) if cursor else last
    if WORLD.get("kind") == "LEGACY":
        say({"type": "STATE", "state": {"data": {"users": last}}})
    elif one["sync_mode"] == "incremental":
        say({"type": "STATE", "state": {"type": "STREAM", "stream": {
            "stream_descriptor": {"name": "users"}, "stream_state": {"at": last}}}})
    say({"type": "TRACE", "trace": {"type": "STREAM_STATUS", "emitted_at": 1.0, "stream_status":
        {"stream_descriptor": {"name": "users"}, "status": "COMPLETE"}}})
"""

TAP = """
columns = WORLD.get("columns", ["id", "at"])
schema = {"type": "object", "properties": {c: {"type": "integer"} for c in columns}}
if "--discover" in sys.argv:
    words = {"table-key-properties": ["id"], "valid-replication-keys": WORLD.get("valid", columns)}
    if WORLD.get("default"): words["replication-key"] = WORLD["default"]
    say({"streams": [{"tap_stream_id": "users", "stream": "users", "schema": schema, "metadata": [
        {"breadcrumb": [], "metadata": words}]}]}); sys.exit(0)
if "--about" in sys.argv or "--help" in sys.argv: sys.exit(2)
(one,) = given("--catalog")["streams"]
words = next(m["metadata"] for m in one["metadata"] if m["breadcrumb"] == [])
cursor = words.get("replication-key")
incremental = words.get("replication-method") != "FULL_TABLE"
mark = (given("--state") or {}).get("bookmarks", {}).get("users", {})
last = mark.get("value", 0) if incremental else 0
say({"type": "SCHEMA", "stream": "users", "schema": schema, "key_properties": ["id"]})
for row in sorted(WORLD["rows"], key=lambda row: row[cursor or "id"]):
    if row[cursor or "id"] > last or not incremental:
        say({"type": "RECORD", "stream": "users", "record": row})
        if incremental: last = row[cursor]
if incremental: say({"type": "STATE", "value": {"bookmarks": {"users": {"value": last}}}})
"""

BOTH = pytest.mark.parametrize(("program", "protocol"), [(SOURCE, "airbyte"), (TAP, "singer")])
FIRST = [{"id": 1, "at": 100}, {"id": 2, "at": 90}]
LATER = [*FIRST, {"id": 3, "at": 95}, {"id": 4, "at": 110}]


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    return Bench(tmp_path, monkeypatch)


def users(**options: Any) -> dict[str, Any]:
    chosen = {"name": "users", "mode": "incremental_append", **options}
    return {"streams": [{k: v for k, v in chosen.items() if v is not None}]}


def sync(bench: Bench, source: str, **options: Any) -> Any:
    report = bench.run(source, source=users(**options))
    assert report.exit_code == 0, report.error
    return report


def refused(bench: Bench, source: str, **options: Any) -> str:
    """The problem, by ``plan`` and by a run, which has changed nothing."""
    before = bench.states(), bench.ids("users")
    with pytest.raises(ConfigError) as caught:
        bench.run(source, source=users(**options))
    (problem,) = bench.plan(source, source=users(**options))["problems"]
    assert caught.value.exit_code == 2 and caught.value.problems == [problem]
    assert (bench.states(), bench.ids("users")) == before
    assert "run again" not in problem
    return problem


@BOTH
def test_L1_a_cursor_that_the_user_changed_is_refused(
    bench: Bench, program: str, protocol: str
) -> None:
    source = bench.connector(program, protocol)
    bench.set(rows=FIRST)
    sync(bench, source, cursor_field="id")
    bench.set(rows=LATER)
    problem = refused(bench, source, cursor_field="at")
    assert problem.startswith("stream users: its cursor has changed from id to at")
    assert f"`penstock state reset quick --home {bench.home.path} --stream users`" in problem
    assert "cursor_field: id" in problem
    sync(bench, source, cursor_field="id")  # the first way out
    assert bench.ids("users") == [1, 2, 3, 4]
    with bench.known() as known:  # the second one
        states.reset(known, StreamOptions(name="users"))
    sync(bench, source, cursor_field="at")
    assert bench.ids("users") == sorted([1, 2, 3, 4] * 2)
    bench.set(rows=[*LATER, {"id": 0, "at": 120}])
    sync(bench, source, cursor_field="at")
    assert bench.ids("users")[0] == 0
    assert "from at to id" in refused(bench, source, cursor_field="id")


@BOTH
@pytest.mark.parametrize("way", ["full_refresh", "--full-refresh", "set"])
def test_no_state_goes_to_the_source_and_nothing_is_refused(
    bench: Bench, program: str, protocol: str, way: str
) -> None:
    source = bench.connector(program, protocol)
    bench.set(rows=FIRST)
    sync(bench, source, cursor_field="id")
    bench.set(rows=LATER)
    if way == "full_refresh":
        options = {"mode": None, "sync_mode": "full_refresh"}
        sync(bench, source, destination_sync_mode="overwrite", **options)
        assert "from id to at" in refused(bench, source, cursor_field="at")
        return
    if way == "set":  # the user brings a state for the new cursor
        with bench.known() as known:
            given = {"bookmarks": {"users": {"value": 100}}}
            if protocol == "airbyte":
                name = {"stream_descriptor": {"name": "users"}, "stream_state": {"at": 100}}
                given = {"type": "STREAM", "stream": name}
            states.update(known, given)
        sync(bench, source, cursor_field="at")
        assert bench.ids("users") == [1, 2, 4]
        return
    report = bench.run(source, source=users(cursor_field="at"), full_refresh=True)
    assert report.exit_code == 0
    assert "from at to id" in refused(bench, source, cursor_field="id")


@BOTH
def test_a_default_that_the_source_changed_is_not_followed_while_the_old_one_is_there(
    bench: Bench, program: str, protocol: str
) -> None:
    source = bench.connector(program, protocol)
    bench.set(rows=FIRST, default="id")
    sync(bench, source)
    bench.set(rows=LATER, default="at")
    report = sync(bench, source)
    assert bench.ids("users") == [1, 2, 3, 4]
    (note,) = [n for n in report.notes if "its cursor stays" in n]
    assert "its cursor stays id" in note and "at now" in note
    assert note in bench.plan(source, source=users())["notes"]
    bench.set(rows=[{"at": 200}], default="at", columns=["at"])
    problem = refused(bench, source, primary_key=None)
    assert "from id to at" in problem and "id is no longer a cursor" in problem


@BOTH
def test_a_cursor_that_the_user_no_longer_names_stays(
    bench: Bench, program: str, protocol: str
) -> None:
    source = bench.connector(program, protocol)
    bench.set(rows=FIRST)
    sync(bench, source, cursor_field="id")
    bench.set(rows=LATER)
    report = sync(bench, source)
    assert bench.ids("users") == [1, 2, 3, 4]
    assert [n for n in report.notes if "its cursor stays id" in n]


def test_a_cursor_that_the_source_defines_is_the_sources_affair(bench: Bench) -> None:
    source = bench.connector(SOURCE, "airbyte")
    bench.set(rows=FIRST, default="id", own=True)
    sync(bench, source)
    bench.set(rows=LATER, default="at", own=True)
    assert not [n for n in sync(bench, source).notes if "its cursor stays" in n]


def test_L1_a_state_that_cannot_be_taken_apart_goes_by_its_cursor_too(bench: Bench) -> None:
    source = bench.connector(SOURCE, "airbyte")
    bench.set(rows=FIRST, kind="LEGACY")
    sync(bench, source, cursor_field="id")
    problem = refused(bench, source, cursor_field="at")
    assert f"`penstock state reset quick --home {bench.home.path}`" in problem


def test_a_home_of_the_version_before_takes_todays_cursor(bench: Bench) -> None:
    tap = bench.connector(TAP)
    bench.set(rows=FIRST)
    sync(bench, tap, cursor_field="id")
    import sqlite3

    from penstock.store.database_url import sqlite_file

    with sqlite3.connect(sqlite_file(bench.home.state_url())) as store:
        store.execute("DELETE FROM penstock_names WHERE kind LIKE 'cursor:%'")
    open_store(bench.home.state_url()).close()
    bench.set(rows=[*FIRST, {"id": 5, "at": 120}])
    sync(bench, tap, cursor_field="at")
    assert "from at to id" in refused(bench, tap, cursor_field="id")


def test_L5_a_state_that_is_only_sealed_goes_by_its_cursor_too(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    tap = bench.connector(TAP)
    bench.set(rows=FIRST)

    class Died(BaseException):
        pass

    def die(*_: object) -> None:
        raise Died

    with monkeypatch.context() as patch, pytest.raises(Died):
        patch.setattr(bench.tables, "commit", die)
        bench.run(tap, source=users(cursor_field="id"))
    assert bench.states() == []
    with pytest.raises(ConfigError, match="cannot run as it is"):
        bench.run(tap, source=users(cursor_field="at"))


def test_a_rewind_goes_by_the_same_cursor(bench: Bench) -> None:
    tap = bench.connector(TAP)
    bench.set(rows=FIRST)
    sync(bench, tap, cursor_field="id")
    with bench.known() as known:
        rewind(known, StreamOptions(name="users"), "1")
    assert "from id to at" in refused(bench, tap, cursor_field="at")
    sync(bench, tap, cursor_field="id")
    assert bench.ids("users") == [1, 2, 2]
