"""``engine.plan.stream_columns``: which columns, and parts of them, a stream keeps (issue 9: C)."""

import json
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest

from penstock.codec.columns import ColumnDecoder, Columns
from penstock.codec.decode import RowDecoder
from penstock.config.load import parse_pipeline
from penstock.engine.plan.description import describe
from penstock.engine.plan.stream_plan import StreamRules
from penstock.engine.plan.streams import StreamsPlan, plan_streams
from penstock.errors import ConfigError
from penstock.model.catalog import Catalog, Stream, StreamId, SyncMode
from penstock.protocols import load
from penstock.store.remembered import Remembered
from penstock.tables.formats import open_table

PROPERTIES: dict[str, Any] = {
    "id": {"type": "integer"},
    "address": {
        "type": ["null", "object"],
        "properties": {
            "city": {"type": "string"},
            "street": {"type": "string"},
            "geo": {"properties": {"lat": {"type": "number"}, "lon": {"type": "number"}}},
        },
    },
    "meta": {"type": "object", "properties": {"a.b": {"type": "integer"}, "a": {}}},
    "meta.a": {"type": "string"},
    "free": {"type": "object"},
    "lines": {"type": "array", "items": {"properties": {"sku": {"type": "string"}}}},
}
WHOLE_ADDRESS = "struct<city: string, street: string, geo: struct<lat: number, lon: number>>"
PROTOCOLS = ("airbyte", "singer", "rapidbyte")


USERS = Stream(
    id=StreamId(None, "users"),
    json_schema={"type": "object", "properties": PROPERTIES},
    sync_modes=tuple(SyncMode),
    source_defined_primary_key=(("id",),),
)


def plan(
    tmp_path: Path,
    said: str,
    *,
    protocol: str = "singer",
    stream: Stream = USERS,
    had: dict[str, str] | None = None,
) -> StreamsPlan:
    text = f"pipeline: p\nsource: {{ use: {protocol}:x, defaults: {{ {said} }} }}\n"
    return plan_streams(
        parse_pipeline(text + "destination: { use: 'parquet:./lake' }\n", {}),
        Catalog((stream,)),
        StreamRules(
            package=load(protocol),
            destination=open_table("parquet", str(tmp_path / "lake"), {}),
            earlier=Remembered(columns={stream.id: had or {}}),
            metadata=None,
            sync_id=1,
        ),
        known=set(),
        states=(),
        cores=1,
    )


def types(tmp_path: Path, said: str, **more: Any) -> dict[str, str]:
    place = open_table("parquet", str(tmp_path / "lake"), {})
    found = describe(plan(tmp_path, said, **more), place)[0]["columns"]
    return {c["source"]: c["type"] for c in found}


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize(
    ("columns", "expected"),
    [
        ("[address.city]", {"address": "struct<city: string>"}),
        ("[[address, city]]", {"address": "struct<city: string>"}),
        (
            "[address.geo.lon, address.city]",
            {"address": "struct<city: string, geo: struct<lon: number>>"},
        ),
        (
            "[address.geo.lon, address.geo]",
            {"address": "struct<geo: struct<lat: number, lon: number>>"},
        ),
        ("[address.city, address]", {"address": WHOLE_ADDRESS}),
        ("[meta.a]", {"meta.a": "string"}),  # a property of that name wins
        ("[[meta, a.b]]", {"meta": "struct<a.b: integer>"}),
        ("[[meta, a]]", {"meta": "struct<a: json>"}),
    ],
)  # fmt: skip
def test_a_path_keeps_only_this_part_of_an_object(
    columns: str, expected: dict[str, str], protocol: str, tmp_path: Path
) -> None:
    found = types(tmp_path, f"columns: {columns}", protocol=protocol)
    assert found == {"id": "integer", **expected}


def test_a_column_that_changes_its_case_is_noted(tmp_path: Path) -> None:
    had = {"ID": "ID", "Free": "Free", "lines": "lines", "LINES": "LINES_ab", "other": "other"}
    planned = plan(tmp_path, "columns: [id, lines]", had=had)
    (note,) = planned.notes
    new = planned.streams[0].columns["id"]
    assert (
        new.startswith("id_") and f"the column ID is id now, which is another column ({new}" in note
    )
    assert not plan(tmp_path, "columns: [id]", had=dict(planned.streams[0].columns)).notes


def test_what_key_and_cursor_need_is_kept(tmp_path: Path) -> None:
    said = "columns: [address.city], mode: upsert, cursor_field: [address, geo, lat]"
    assert types(tmp_path, said, protocol="airbyte") == {
        "id": "integer",
        "address": "struct<city: string, geo: struct<lat: number>>",
    }


@pytest.mark.parametrize(
    ("column", "message"),
    [
        ("address.citty", "('citty' is unknown); did you mean 'city'?"),
        ("adress.city", "('adress.city' is unknown); did you mean"),
        ("[address, geo, x]", "('x' is unknown); its properties: lat, lon"),
        (
            "free.x",
            "free.x cannot be kept alone, because the source's schema does not name the fields "
            "around it (free is json); list free",
        ),
        ("lines.sku", "('sku' is unknown)"),
        ("address..city", "is unknown)"),
    ],
)  # fmt: skip
def test_a_part_that_cannot_be_kept_alone_is_a_problem(
    column: str, message: str, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError) as caught:
        plan(tmp_path, f"columns: [id, {column}]")
    assert message in caught.value.problems[0]
    assert "stream users: columns" in caught.value.problems[0]


def test_a_type_that_the_pipeline_says_has_parts(tmp_path: Path) -> None:
    said = "columns: [free.x], types: { free: 'struct<x: date, y: json>' }"
    assert types(tmp_path, said) == {"id": "integer", "free": "struct<x: date>"}


def test_parts_of_a_stream_that_was_not_discovered_wait_for_its_rows(tmp_path: Path) -> None:
    package, users = load("rapidbyte"), StreamId(None, "users")
    assert package.undiscovered is not None
    guess = package.undiscovered(users, {"id": None, "address": None})
    assert types(
        tmp_path, "columns: [id, [address, city]]", protocol="rapidbyte", stream=guess
    ) == {
        "id": "json",
        "address": "json",
    }
    shown = msgspec.structs.replace(
        guess, json_schema={"type": "object", "properties": PROPERTIES}, assumed=False
    )
    assert types(
        tmp_path, "columns: [id, [address, city]]", protocol="rapidbyte", stream=shown
    ) == {
        "id": "integer",
        "address": "struct<city: string>",
    }


ROW = {"id": 1, "address": {"city": "Ulm", "street": "A 1", "geo": {"lat": 1.5, "lon": 2.5}}}


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_L8_what_is_left_out_is_no_loss(protocol: str, tmp_path: Path) -> None:
    columns = "[address.city, address.geo.lat]"
    planned = plan(tmp_path, f"columns: {columns}", protocol=protocol).streams[0]
    assert set(planned.ignored) == {
        ("address", "street"), ("address", "geo", "lon"), ("meta",), ("meta.a",), ("free",),
        ("lines",),
    }  # fmt: skip
    decoder = RowDecoder(planned.schema, ignored=planned.ignored)
    bodies = [json.dumps(r).encode() for r in (ROW, {"id": 2, "address": {"street": "B"}})]
    found = decoder.decode(bodies, 0, [0, 0])
    expected = [
        {"city": "Ulm", "geo": {"lat": 1.5}},
        {"city": None, "geo": None},
    ]
    assert found.table.column("address").to_pylist() == expected
    assert (found.cast_failures, found.rejects, found.extra_fields) == (0, [], {})
    rows = Columns(pa.Table.from_pylist([ROW]))
    frames = ColumnDecoder(planned.schema, ignored=planned.ignored).decode(rows, 0, [0], {})
    assert frames.table.column("address").to_pylist() == expected[:1]
    assert (frames.cast_failures, frames.extra_fields) == (0, {})
