"""Cursors, keys, types and delete marks that lost or froze rows in public reports, each a stream of
its own, with real decoding and real merges: the right rows were decided from docs/incremental.md,
docs/guarantees.md and docs/reading-tables.md (L8, L9)."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fuzz_columns import ANY, CENTS, INTEGER, NUMBER, STRING, TIME, UNION
from fuzz_tables import FileTables
from fuzz_world import World, run_once

from penstock.runtimes.memory import Exit, Step

pytestmark = pytest.mark.dear
Run = tuple[dict[str, Any], list[str]]  # declarations, and records as JSON text
Streams = dict[str, list[Run]]
MARK = {"airbyte": "_ab_cdc_deleted_at", "singer": "_sdc_deleted_at"}

# cursors of one key, one a run, and which of them wins
CURSORS: dict[str, tuple[list[str], int]] = {
    "hex like a number of tens": (['"99"', '"07E1"'], 1),
    "hex": (['"0099"', '"009A"', '"0100"'], 2),
    "a date after a time": (['"20240501T101010Z"', '"20240502"'], 1),
    "versions": (['"1.9.0"', '"1.10"'], 1),
    "epoch after ISO": (['"2024-05-01T10:00:00Z"', '"1714557600"'], 1),
    "a fraction": (['"5"', '"5.5"'], 1),
    "days first": (['"31.12.2023"', '"01.01.2024"'], 1),
    "an offset newer": (['"2024-05-01T10:00:00+02:00"', '"2024-05-01T09:00:00Z"'], 1),
    "an offset older": (['"2024-05-01T10:00:00Z"', '"2024-05-01T11:00:00+02:00"'], 0),
    "a zero date": (['"2024-05-01T10:00:00Z"', '"0000-00-00 00:00:00"'], 1),
    "infinity": (['"infinity"', '"2024-05-01T10:00:00Z"'], 1),
    "a leap second": (
        ['"2016-12-31T23:59:59.9Z"', '"2016-12-31T23:59:60Z"', '"2016-12-31T23:59:59.99Z"'], 1,
    ),
    "midnight": (['"2024-04-30T24:00:00Z"', '"2024-04-30T23:59:59Z"'], 0),
    "midnight tied": (['"2024-04-30T24:00:00Z"', '"2024-05-01T00:00:00Z"'], 1),
    "year 10000": (['"10000-01-01T00:00:00Z"', '"9999-12-31T23:59:59Z"'], 0),
}  # fmt: skip
# the same under other declarations
DECLARED: dict[str, tuple[list[dict[str, Any]], list[str], int]] = {
    "format": ([STRING, TIME], ['"2024-05-01T12:00:00+02:00"', '"2024-05-01T10:30:00Z"'], 1),
    "format older": ([STRING, TIME], ['"2024-05-01T12:00:00Z"', '"2024-05-01T13:30:00+02:00"'], 0),
    "union": ([STRING, UNION], ['"5"', "7"], 1),
    "union older": ([STRING, UNION], ['"50"', "7"], 0),
    "no time for the column": ([TIME] * 2, ['"2024-04-30T24:00:00Z"', '"2024-04-30T22:00:00Z"'], 1),
    "nanoseconds": (
        [TIME] * 2, ['"2024-05-01T10:00:00.123456789Z"', '"2024-05-01T10:00:00.123456788Z"'], 0,
    ),
    "beyond doubles": ([NUMBER] * 2, ["9007199254740993", "9007199254740992"], 0),
}  # fmt: skip
KEYS: dict[str, tuple[dict[str, Any], list[str], list[int]]] = {  # and which of them stay
    "times": (
        TIME,
        ['"2024-05-01T10:00:00.123456789Z"', '"2024-05-01T10:00:00.123456790Z"',
         '"2024-05-01T10:00:00.123456Z"'],
        [2],
    ),
    "numbers": (NUMBER, ["9007199254740993", "9007199254740992", "1", "1.0", "1e0"], [0, 1, 4]),
    "decimals": (CENTS, ["1.01", "1.014", "1.010"], [2]),
}  # fmt: skip
# a key under two declarations: one row of the second
AGAIN: dict[str, tuple[dict[str, Any], str, dict[str, Any], str, str]] = {
    "a union": (STRING, '"A1"', UNION, '"A1"', "A1"),
    "numbers now": (STRING, '"12345678"', NUMBER, "12345678", "12345678"),
    "a whole number": (STRING, '"7"', NUMBER, "7", "7"),
    "text now": (ANY, '"A1"', STRING, '"A1"', '"A1"'),
}
LIVE = ["null", '""', '"false"', "0", '"0000-00-00 00:00:00"', '"null"', '"  "', "false", '"-0"']
GONE = ['"2024-05-02T00:00:00Z"', "true", '"Yes"', "5"]
ODD = '"2018-11-22T12:51:30+00:00+00:00"'  # deletes where a time is declared, else a reject


def record(**texts: str) -> str:
    return "{" + ",".join(f'"{name}":{text}' for name, text in texts.items()) + "}"


def declared(id: Any, at: Any = INTEGER, **more: Any) -> dict[str, Any]:
    return {"id": id, "at": at, "v": STRING, **more}


def streams(protocol: str) -> tuple[Streams, dict[str, dict[Any, str] | list[str]], set[str]]:
    """The runs of each stream, its rows at the end (value by key, or values), and the streams of
    which records are rejected."""
    runs: Streams = {}
    rows: dict[str, dict[Any, str] | list[str]] = {}
    cursors = {n: ([STRING] * len(v), v, wins) for n, (v, wins) in CURSORS.items()} | DECLARED
    for name, (types, values, wins) in cursors.items():
        runs[name] = [
            (declared(INTEGER, t), [record(id="1", at=v, v=f'"{n}"')])
            for n, (t, v) in enumerate(zip(types, values, strict=True))
        ]
        rows[name] = {1: str(wins)}
    for name, (type_, keys, stay) in KEYS.items():
        sent = [record(id=key, at=str(n), v=f'"{n}"') for n, key in enumerate(keys)]
        runs[name], rows[name] = [(declared(type_), sent)], [str(n) for n in stay]
    for name, (old, before, new, after, key) in AGAIN.items():
        made = [(old, before), (new, after)]
        runs[name] = [
            (declared(t), [record(id=k, at=str(n), v=f'"{n}"')]) for n, (t, k) in enumerate(made)
        ]
        rows[name] = {key: "1"}
    marks = [*LIVE, *GONE, ODD]
    for name, type_ in (("marks of time", TIME), ("marks of text", STRING)):
        mark = {MARK[protocol]: type_}
        first = [record(id=str(n), at="1", v='"0"') for n in range(len(marks))]
        then = [
            record(id=str(n), at="2", v='"1"', **{MARK[protocol]: m}) for n, m in enumerate(marks)
        ]
        runs[name] = [(declared(INTEGER, **mark), first), (declared(INTEGER, **mark), then)]
        rows[name] = dict.fromkeys(range(len(LIVE)), "1")
    rows["marks of text"][len(marks) - 1] = "0"  # type: ignore[index, call-overload]
    return runs, rows, {"times", "decimals", "marks of text"}


def script(protocol: str, runs: Streams, number: int, arguments: Any) -> Iterator[Step]:
    def line(message: dict[str, Any]) -> bytes:
        return json.dumps(message).encode() + b"\n"

    schemas = {
        name: {"type": "object", "properties": each[min(number, len(each) - 1)][0]}
        for name, each in runs.items()
    }
    airbyte = protocol == "airbyte"
    if "discover" in arguments or "--discover" in arguments:
        root = {"selected": True, "replication-method": "INCREMENTAL", "replication-key": "at"}
        entries = [
            {"name": name, "json_schema": schema, "source_defined_cursor": True,
             "supported_sync_modes": ["full_refresh", "incremental"],
             "default_cursor_field": ["at"], "source_defined_primary_key": [["id"]]}
            if airbyte
            else {"tap_stream_id": name, "stream": name, "schema": schema, "key_properties": ["id"],
                  "metadata": [{"breadcrumb": [], "metadata": root}]}
            for name, schema in schemas.items()
        ]  # fmt: skip
        catalog = {"streams": entries}
        yield line({"type": "CATALOG", "catalog": catalog} if airbyte else catalog)
        return
    marks: dict[str, Any] = {}
    for name, schema in schemas.items():
        about = {"stream_descriptor": {"name": name}}
        sent = runs[name][number][1] if number < len(runs[name]) else []
        marks[name] = {"replication_key": "at", "replication_key_value": number}
        if not airbyte:
            yield line({"type": "SCHEMA", "stream": name, "schema": schema,
                        "key_properties": ["id"]})  # fmt: skip
        for text in sent:
            head = f'"stream":"{name}","emitted_at":1700000000000,"data":{text}'
            tap = f'{{"type":"RECORD","stream":"{name}","record":{text}}}'
            whole = f'{{"type":"RECORD","record":{{{head}}}}}' if airbyte else tap
            yield whole.encode() + b"\n"
        if not airbyte:
            yield line({"type": "STATE", "value": {"bookmarks": marks}})
            continue
        state = {"type": "STREAM", "stream": {**about, "stream_state": {"n": number}}}
        yield line({"type": "STATE", "state": state})
        status = {"type": "STREAM_STATUS", "emitted_at": 1.0,
                  "stream_status": {**about, "status": "COMPLETE"}}  # fmt: skip
        yield line({"type": "TRACE", "trace": status})
    yield Exit(0)


@pytest.mark.parametrize(("protocol", "form"), [("airbyte", "parquet"), ("singer", "delta")])
def test_L8_L9_each_report_has_its_right_rows(protocol: str, form: str, tmp_path: Path) -> None:
    runs, rows, some_rejected = streams(protocol)
    world = World(decodes=True)
    world.tables = tables = FileTables(form, tmp_path, world.home.log)
    rejected = set[str]()
    for number in range(3):
        outcome = run_once(
            world, f"{protocol}:./shop", {"destination_sync_mode": "append_dedup"},
            lambda arguments, number=number: script(protocol, runs, number, arguments),
            full_refresh=False,
        )  # fmt: skip
        assert outcome.report is not None and not tables.needed_spark, outcome.told()
        rejected |= {s.name for s in outcome.report.streams if s.rejected}
    assert rejected == some_rejected
    wrong: dict[str, Any] = {}
    for name, wanted in rows.items():
        found = [(row["id"], row["v"]) for row in tables.rows_of(name.replace(" ", "_"))]
        has = sorted(v for _, v in found) if isinstance(wanted, list) else dict(found)
        if has != wanted or len(found) != len(wanted):
            wrong[name] = found, wanted
    assert not wrong
