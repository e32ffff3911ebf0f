"""A table keeps every version of a key (docs/history.md), from a source written from the Airbyte
protocol: it sends what changed since the cursor of its state, or all that it has. The right rows
were decided before the runs."""

import json
import sys
from typing import Any

import deltalake
import duckdb
import pytest
from pipelines import Ran, Site

from penstock.errors import ConfigError

pytestmark = [pytest.mark.spark, pytest.mark.dear, pytest.mark.timeout(300)]

SOURCE = """
import json, sys
told = json.load(open(TOLD))
def option(name):
    return json.load(open(sys.argv[sys.argv.index(name) + 1])) if name in sys.argv else None
if sys.argv[1] == "spec":
    out = {"type": "SPEC", "spec": {"connectionSpecification": {"type": "object"}}}
elif sys.argv[1] == "check":
    out = {"type": "CONNECTION_STATUS", "connectionStatus": {"status": "SUCCEEDED"}}
elif sys.argv[1] == "discover":
    out = {"type": "CATALOG", "catalog": {"streams": told["streams"]}}
else:
    states = {s["stream"]["stream_descriptor"]["name"]: s["stream"]["stream_state"] for s in option("--state") or ()}
    for asked in option("--catalog")["streams"]:
        name = asked["stream"]["name"]
        about = {"stream_descriptor": {"name": name}}
        def status(word):
            trace = {"type": "STREAM_STATUS", "emitted_at": 1.0, "stream_status": {**about, "status": word}}
            print(json.dumps({"type": "TRACE", "trace": trace}))
        status("STARTED")
        seen = states.get(name, {}).get("at") if asked["sync_mode"] == "incremental" else None
        highest = seen
        for record in told["records"].get(name, ()):
            at = record.get("at")
            if seen is not None and at is not None and at < seen and not record.get("late"):
                continue
            data = {k: v for k, v in record.items() if k != "late"}
            print(json.dumps({"type": "RECORD", "record": {"stream": name, "emitted_at": told["now"], "data": data}}))
            if at is not None and (highest is None or at > highest):
                highest = at
        state = {"type": "STREAM", "stream": {**about, "stream_state": {"at": highest}}}
        print(json.dumps({"type": "STATE", "state": state}))
        status("COMPLETE")
    sys.exit()
print(json.dumps(out))
"""  # noqa: E501
COLUMNS = ("id", "v", "__START_AT", "__END_AT", "is_current")


def stream(name: str, **more: Any) -> dict[str, Any]:
    at = {"type": ["null", "string"], "format": "date-time"}
    properties = {"id": {"type": "integer"}, "v": {"type": ["null", "string"]}, "at": at}
    return {
        "name": name,
        "json_schema": {"type": "object", "properties": {**properties, **more.pop("columns", {})}},
        "supported_sync_modes": ["full_refresh", "incremental"],
        **more,
    }


class World:
    """A source whose records a test changes between runs. Its clock is that of ``now``, seconds."""

    def __init__(self, here: Site, *streams: dict[str, Any]) -> None:
        self.here, self.streams = here, [*streams]
        self._told, script = here.folder / "told.json", here.folder / "source.py"
        script.write_text(SOURCE.replace("TOLD", repr(str(self._told))))
        self._use = f"airbyte:{sys.executable} {script}"

    def run(
        self, now: int = 0, *, recreate: bool = False, ends: bool = False, **records: Any
    ) -> Ran:
        self._told.write_text(
            json.dumps({"streams": self.streams, "records": records, "now": now * 1000})
        )
        return self.here.run(
            use=self._use, streams=self.asked, recreate=recreate, ends_histories=ends
        )

    asked: list[dict[str, Any]]

    def versions(self, table: str) -> list[tuple[Any, ...]]:
        folder = self.here.lake / table
        if self.here.format == "delta":
            rows = deltalake.DeltaTable(str(folder)).to_pyarrow_table()
        else:
            files = f"read_parquet('{folder}/*.parquet')"
            rows = duckdb.connect().sql(f"SELECT * FROM {files}").to_arrow_table()
        found = [tuple(row[c] for c in COLUMNS) for row in rows.to_pylist()]
        times = [
            tuple(v.strftime("%d %H:%M:%S") if hasattr(v, "strftime") else v for v in row)
            for row in found
        ]
        return sorted(times, key=repr)


def day(number: int) -> str:
    return f"2024-05-{number:02d}T00:00:00Z"


@pytest.mark.parametrize("form", ["parquet", "delta"])
def test_every_version_of_a_key_is_kept(site: Any, form: str) -> None:
    world = World(site(form), stream("users"), stream("shops"), stream("clicks"))
    world.asked = [
        {"name": "users", "history": True, "primary_key": "id", "cursor_field": "at"},
        {"name": "shops", "history": True, "primary_key": "id", "sync_mode": "full_refresh"},
        {"name": "clicks", "mode": "full_refresh_append"},
    ]
    click = [{"id": 1, "v": "c", "at": None}]
    users = [{"id": 1, "v": "a", "at": day(1)}, {"id": 2, "v": "x", "at": day(1)}]
    shops = [{"id": 1, "v": "s"}, {"id": 2, "v": "t"}]
    first = world.run(10, users=users, shops=shops, clicks=click)
    assert first.status == "succeeded", first.error
    users = [{"id": 1, "v": "c", "at": day(3)}, {"id": 1, "v": "b", "at": day(2), "late": True}]
    again = world.run(20, users=users, shops=[{"id": 1, "v": "s"}, {"id": 3, "v": "n"}])
    assert again.status == "succeeded", again.error
    assert world.versions("users") == [
        (1, "a", "01 00:00:00", "02 00:00:00", False),
        (1, "b", "02 00:00:00", "03 00:00:00", False),
        (1, "c", "03 00:00:00", None, True),
        (2, "x", "01 00:00:00", None, True),
    ]
    assert world.versions("shops") == [
        (1, "s", "01 00:00:10", None, True),
        (2, "t", "01 00:00:10", "01 00:00:20", False),
        (3, "n", "01 00:00:20", None, True),
    ]
    before = world.versions("users")
    # a source that sends old rows again makes no version
    old = [{"id": 1, "v": "a", "at": day(1), "late": True}]
    assert world.run(30, users=old, shops=[{"id": 3, "v": "n"}]).status == "succeeded"
    assert world.versions("users") == before
    assert world.versions("shops") == [
        (1, "s", "01 00:00:10", "01 00:00:30", False),
        (2, "t", "01 00:00:10", "01 00:00:20", False),
        (3, "n", "01 00:00:20", None, True),
    ]


REFUSED: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "no key": ({}, {"primary_key": None}, "set primary_key"),
    "append": ({}, {"mode": "append"}, "its destination sync mode is append"),
    "a column of ours": (
        {"columns": {"is_current": {"type": "boolean"}}},
        {},
        "its rows have a column is_current of their own",
    ),
    "ours in another case": (
        {"columns": {"__start_at": {"type": "string"}}},
        {},
        "its rows have a column __start_at of their own",
    ),
}


def problems(world: World, *words: str, **records: Any) -> None:
    """The run is refused before a row is read, for a reason that has these words."""
    with pytest.raises(ConfigError) as refused:
        world.run(20, **records)
    (problem,) = refused.value.problems
    assert all(word in problem for word in words), problem


@pytest.mark.parametrize("case", [*REFUSED])
def test_what_cannot_have_a_history_is_refused_before_a_row_is_read(site: Any, case: str) -> None:
    more, settings, words = REFUSED[case]
    world = World(site(), stream("users", **more))
    asked = {"name": "users", "history": True, "primary_key": "id", "cursor_field": "at"}
    world.asked = [{k: v for k, v in {**asked, **settings}.items() if v is not None}]
    problems(world, "users", words, users=[{"id": 1, "v": "a", "at": day(1)}])
    assert not (world.here.lake / "users").exists()


@pytest.mark.parametrize("form", ["parquet", "delta"])
def test_a_table_s_history_begins_stays_and_ends(site: Any, form: str) -> None:
    world = World(site(form), stream("users"))
    plain = {"name": "users", "primary_key": "id", "cursor_field": "at"}
    users = [{"id": 1, "v": "a", "at": day(1)}]
    world.asked = [plain]
    assert world.run(10, users=users).status == "succeeded"
    world.asked = [{**plain, "history": True}]
    done = world.run(30, users=users)
    assert done.status == "succeeded", done.error
    assert any("its rows are the first versions" in note for note in done.notes)
    world.asked = [plain]  # it stays
    done = world.run(40, users=[{"id": 1, "v": "b", "at": day(2)}])
    assert done.status == "succeeded", done.error
    assert world.versions("users") == [
        (1, "a", "01 00:00:00", "02 00:00:00", False),
        (1, "b", "02 00:00:00", None, True),
    ]
    world.asked = [{**plain, "history": False}]
    problems(world, "has a history of its rows", "run --yes", users=users)
    assert len(world.versions("users")) == 2
    done = world.run(50, ends=True, users=[{"id": 2, "v": "n", "at": day(3)}])
    assert done.status == "succeeded", done.error
    rows = world.here.rows("users", "id")
    assert [(r["id"], r["v"]) for r in rows] == [(1, "b"), (2, "n")] and "is_current" not in rows[0]
    done = world.run(60, users=[{"id": 2, "v": "m", "at": day(4)}])  # nothing more to agree to
    assert done.status == "succeeded", done.error


@pytest.mark.parametrize("form", ["parquet", "delta"])
def test_columns_that_come_and_go_leave_old_versions_as_they_were(site: Any, form: str) -> None:
    world = World(site(form), stream("users", columns={"n": {"type": "integer"}}))
    world.asked = [{"name": "users", "primary_key": "id", "cursor_field": "at", "history": True}]
    done = world.run(10, users=[{"id": 1, "v": "a", "at": day(1), "n": 7}])
    assert done.status == "succeeded", done.error
    # one is new, one is gone, one holds more
    world.streams = [stream("users", columns={"more": {"type": "string"}})]
    done = world.run(20, users=[{"id": 1, "v": "b", "at": day(2), "more": "m"}])
    assert done.status == "succeeded", done.error
    world.streams = [stream("users", columns={"n": {"type": "number", "multipleOf": 0.01}})]
    done = world.run(30, users=[{"id": 1, "v": "c", "at": day(3), "n": 1.25}])
    assert done.status == "succeeded", done.error
    assert world.versions("users") == [
        (1, "a", "01 00:00:00", "02 00:00:00", False),
        (1, "b", "02 00:00:00", "03 00:00:00", False),
        (1, "c", "03 00:00:00", None, True),
    ]
    rows = {row["v"]: (row["n"], row["more"]) for row in world.here.rows("users", "id")}
    assert rows["a"] == (7, None) and rows["b"] == (None, "m") and rows["c"][1] is None
    assert float(rows["c"][0]) == 1.25
