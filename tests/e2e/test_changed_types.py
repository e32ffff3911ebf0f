"""A column whose declared type changes at the source, in tables that keep their rows: text stays
the text that the source sent, no key is doubled and no update is lost (L9; docs/reading-tables.md,
"When a declared type changes"). After public reports: dlt-hub/dlt 2385 and 3916 (a field that
becomes a union; ids that are text, then numbers), delta-io/delta 1551.
"""

import json
import sys
from typing import Any

import deltalake
import duckdb
import pytest
from pipelines import Ran, Site

pytestmark = [pytest.mark.spark, pytest.mark.dear, pytest.mark.timeout(300)]

SOURCE = """
import json, sys
told = json.load(open(TOLD))
if sys.argv[1] == "spec":
    out = {"type": "SPEC", "spec": {"connectionSpecification": {"type": "object"}}}
elif sys.argv[1] == "check":
    out = {"type": "CONNECTION_STATUS", "connectionStatus": {"status": "SUCCEEDED"}}
elif sys.argv[1] == "discover":
    out = {"type": "CATALOG", "catalog": {"streams": told["streams"]}}
else:
    for name, records in told["records"].items():
        about = {"stream_descriptor": {"name": name}}
        for record in records:
            print(json.dumps({"type": "RECORD", "record": {"stream": name, "emitted_at": 1, "data": record}}))
        state = {"type": "STREAM", "stream": {**about, "stream_state": {"n": 1}}}
        print(json.dumps({"type": "STATE", "state": state}))
        for status in ("STARTED", "COMPLETE"):
            trace = {"type": "STREAM_STATUS", "emitted_at": 1, "stream_status": {**about, "status": status}}
            print(json.dumps({"type": "TRACE", "trace": trace}))
    sys.exit()
print(json.dumps(out))
"""  # noqa: E501

TYPES: dict[str, tuple[dict[str, Any], Any, Any]] = {  # declared, a value of it, and as JSON text
    "string": ({"type": ["null", "string"]}, "A1", '"A1"'),
    "integer": ({"type": ["null", "integer"]}, 12345678, "12345678"),
    "number": ({"type": ["null", "number"]}, 12345678.5, "12345678.5"),
    "boolean": ({"type": ["null", "boolean"]}, True, "true"),
    "decimal": ({"type": ["null", "number"], "multipleOf": 0.01}, 7.25, "7.25"),
    "date": ({"type": "string", "format": "date"}, "2024-05-01", '"2024-05-01"'),
    "timestamp": (
        {"type": "string", "format": "date-time"},
        "2024-05-01T09:00:00+02:00",
        '"2024-05-01T09:00:00+02:00"',
    ),
    "timestamp_ntz": (
        {
            "type": "string",
            "format": "date-time",
            "airbyte_type": "timestamp_without_timezone",
        },
        "2024-05-01T09:00:00",
        '"2024-05-01T09:00:00"',
    ),
    "time": ({"type": "string", "format": "time"}, "09:00:00", '"09:00:00"'),
    "binary": ({"type": "string", "contentEncoding": "base64"}, "YWI=", '"YWI="'),
    "array": (
        {"type": ["null", "array"], "items": {"type": "string"}},
        ["x", "y"],
        '["x","y"]',
    ),
    "object": (
        {"type": ["null", "object"], "properties": {"a": {"type": "integer"}}},
        {"a": 1},
        '{"a":1}',
    ),
    "union": ({"type": ["null", "string", "integer"]}, "A1", '"A1"'),
    "any": ({}, "A1", '"A1"'),
    "oneof": ({"oneOf": [{"type": "string"}, {"type": "number"}]}, "A1", '"A1"'),
}
JSON = ("union", "any", "oneof")
TEXT = ("string", "time")
KEYS = [name for name in TYPES if name not in ("array", "object")]


def stream(name: str, fields: dict[str, Any], **more: Any) -> dict[str, Any]:
    properties = {"seq": {"type": "integer"}, "v": {"type": "string"}, **fields}
    return {
        "name": name,
        "json_schema": {"type": "object", "properties": properties},
        "supported_sync_modes": ["full_refresh", "incremental"],
        "source_defined_cursor": True,
        "default_cursor_field": ["seq"],
        **more,
    }


def run(here: Site, streams: list[dict[str, Any]], records: dict[str, Any], **keys: Any) -> Ran:
    told, script = here.folder / "told.json", here.folder / "source.py"
    told.write_text(json.dumps({"streams": streams, "records": records}))
    script.write_text(SOURCE.replace("TOLD", repr(str(told))))
    done = here.run(use=f"airbyte:{sys.executable} {script}", **keys)
    assert done.status == "succeeded", done.error
    return done


def rows(here: Site, table: str) -> list[dict[str, Any]]:
    folder = here.lake / table
    if here.format == "delta":
        arrow = deltalake.DeltaTable(str(folder)).to_pyarrow_table()
    else:
        files = f"read_parquet('{folder}/*.parquet', union_by_name = true)"
        arrow = duckdb.connect().sql(f"SELECT * FROM {files}").to_arrow_table()
    return sorted(arrow.to_pylist(), key=lambda row: row["seq"])


def in_table(had: str, now: str) -> Any:
    """What a value of the type ``now`` is in a column that was made for ``had``: where that is
    text, the text that was sent, or JSON if it is a column of JSON."""
    value, text = TYPES[now][1:]
    if had in JSON:
        return text
    return value if isinstance(value, str) else text


@pytest.mark.parametrize("form", ["parquet", "delta"])
def test_l9_a_text_column_stores_what_was_sent_whatever_is_declared(site: Any, form: str) -> None:
    here: Site = site(form)
    olds = [*TEXT, *JSON]
    pairs = [(had, now) for had in olds for now in TYPES if had != "time" or now not in TEXT]
    keyed = [(had, now) for had, now in pairs if had in ("string", "any") and now in KEYS]
    keyed += [("union", "string"), ("string", "oneof")]
    keyed = list(dict.fromkeys(keyed))

    def declared(side: int) -> list[dict[str, Any]]:
        columns = {f"{p[0]}_{p[1]}": TYPES[p[side]][0] for p in pairs}
        made = [stream("a", columns)]
        for p in keyed:
            name = f"k_{p[0]}_{p[1]}"
            made.append(stream(name, {"f": TYPES[p[side]][0]}, source_defined_primary_key=[["f"]]))
        return made

    def sent(seq: int) -> dict[str, Any]:
        # the source sends the same values before and after: its declaration changes
        row = {f"{had}_{now}": TYPES[now][1] for had, now in pairs}
        v = "old" if seq == 1 else "new"
        keys = {f"k_{had}_{now}": [{"f": TYPES[now][1], "seq": seq, "v": v}] for had, now in keyed}
        return {"a": [{**row, "seq": seq, "v": v}], **keys}

    run(here, declared(0), sent(1))
    done = run(here, declared(1), sent(2))
    old, new = rows(here, "a")
    wrong = {}
    for had, now in pairs:
        name = f"{had}_{now}"
        if new[name] != in_table(had, now) or (had != "time" and old[name] != in_table(had, now)):
            wrong[name] = (old[name], new[name])
    for had, now in keyed:
        found = [(r["f"], r["v"]) for r in rows(here, f"k_{had}_{now}")]
        if found != [(in_table(had, now), "new")]:
            wrong[f"k_{had}_{now}"] = found
    assert not wrong, wrong
    assert any("stream a:" in note and "--recreate" in note for note in done.notes), done.notes


TYPED = [name for name in TYPES if name not in (*TEXT, *JSON)]
TAKES = {  # of other types that are no text, those whose values fit, or that make the column wider
    "integer": ("number", "decimal"),
    "number": ("integer", "decimal"),
    "decimal": ("integer", "number"),
    "date": ("timestamp_ntz",),
    "timestamp": ("date", "timestamp_ntz"),
    "timestamp_ntz": ("date", "timestamp"),
}
READ = [name for name in TYPED if name not in ("binary", "array", "object")]


def test_l9_a_typed_column_takes_what_fits_and_names_what_does_not(site: Any) -> None:
    here: Site = site("delta")
    pairs = [(had, now) for had in TYPED for now in TYPES if now != had]
    fits = [(had, now) for had in READ for now in ("string", *JSON)]

    def declared(side: int) -> list[dict[str, Any]]:
        columns = {f"{p[0]}_{p[1]}": TYPES[p[side]][0] for p in pairs}
        return [stream("a", columns | {f"fit_{p[0]}_{p[1]}": TYPES[p[side]][0] for p in fits})]

    def sent(side: int) -> dict[str, Any]:
        row = {f"{p[0]}_{p[1]}": TYPES[p[side]][1] for p in pairs}
        for had, now in fits:
            value = TYPES[had][1]
            if side and not isinstance(value, str):
                value = TYPES[had][2]  # as text
            row[f"fit_{had}_{now}"] = value
        return {"a": [{**row, "seq": side, "v": ""}]}

    run(here, declared(0), sent(0))
    run(here, declared(1), sent(1))
    old, new = rows(here, "a")
    lost = {entry["field"] for entry in new["_airbyte_meta"]["changes"]}
    wrong = {}
    for had, now in pairs:
        name, taken = f"{had}_{now}", now in TAKES.get(had, ())
        if (new[name] is not None) is not taken or (name in lost) is taken:
            wrong[name] = (old[name], new[name])
    for had, now in fits:
        name = f"fit_{had}_{now}"
        if new[name] != old[name] or new[name] is None or name in lost:
            wrong[name] = (old[name], new[name])
    assert not wrong, wrong
