"""``engine.plan.stream_columns``: columns whose types the pipeline says (issue 9: C), and their
values (L9)."""

import json
from datetime import datetime
from decimal import Decimal
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
from penstock.engine.specs.plan import PlannedStream
from penstock.errors import ConfigError
from penstock.model.catalog import Catalog, Stream, StreamId, SyncMode
from penstock.model.types import CHANGES, RowSchema
from penstock.protocols import load
from penstock.store.lock_holder import this_holder
from penstock.store.memory import MemoryStore
from penstock.store.remembered import Remembered
from penstock.tables.contract import TableFormat
from penstock.tables.formats import open_table

PROPERTIES: dict[str, Any] = {
    "id": {"type": "integer"},
    "price": {"type": "number"},
    "created": {"type": "string"},
    "payload": {"type": "object", "properties": {"a": {"type": "integer"}}},
    "unit.price": {"type": "number"},
}
ORDERS = Stream(
    id=StreamId(None, "orders"),
    json_schema={"type": "object", "properties": PROPERTIES},
    sync_modes=tuple(SyncMode),
    source_defined_primary_key=(("id",),),
)
USERS = Stream(
    id=StreamId(None, "users"),
    json_schema={"type": "object", "properties": {"id": {}, "created": {"type": "string"}}},
    sync_modes=(SyncMode.full_refresh,),
)
UNTOLD = Stream(id=StreamId(None, "untold"), json_schema={})
PROTOCOLS = ("airbyte", "singer", "rapidbyte")


def lake(tmp_path: Path) -> TableFormat:
    return open_table("parquet", str(tmp_path / "lake"), {})


def plan(
    place: Any, source: str, *streams: Stream, protocol: str = "airbyte", **options: Any
) -> StreamsPlan:
    """``source``: lines of the file's ``source``."""
    text = f"pipeline: p\nsource:\n  use: {protocol}:x\n" + source
    text += "destination: { use: 'parquet:./lake' }\n"
    return plan_streams(
        parse_pipeline(text, {}, name="shop.yaml"),
        Catalog(streams or (ORDERS,)),
        StreamRules(
            package=load(protocol),
            destination=place,
            earlier=Remembered(),
            metadata=None,
            sync_id=1,
        ),
        known=set(),
        states=(),
        cores=1,
        **options,
    )


def types(planned: PlannedStream, place: Any) -> dict[str, str]:
    told = StreamsPlan(streams=(planned,), lanes=1, notes=(), gone=())
    return {c["source"]: c["type"] for c in describe(told, place)[0]["columns"]}


SAID = """\
  streams:
    - name: orders
      types: { price: 'decimal(18,4)', created: timestamp, payload: json, unit.price: string }
"""


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_type_that_the_pipeline_says_is_the_columns(protocol: str, tmp_path: Path) -> None:
    place = lake(tmp_path)
    found = types(plan(place, SAID, protocol=protocol).streams[0], place)
    assert found == {
        "id": "integer",
        "price": "decimal(18,4)",
        "created": "timestamp",
        "payload": "json",
        "unit.price": "string",
    }


@pytest.mark.parametrize("text", [
    "boolean", "decimal(38,0)", "array<struct<a b: integer, c: array<decimal(5,2)>>>",
    "struct<a: timestamp_ntz, b: struct<c: json>>",
])  # fmt: skip
def test_what_a_plan_prints_can_be_said(text: str, tmp_path: Path) -> None:
    place = lake(tmp_path)
    said = plan(place, f"  defaults: {{ types: {{ payload: '{text}' }} }}\n")
    assert types(said.streams[0], place)["payload"] == text.replace("a b", "a_b")


def test_a_stream_says_its_types_column_by_column_over_the_defaults(tmp_path: Path) -> None:
    place = lake(tmp_path)
    source = "  defaults: { types: { created: timestamp, price: string } }\n"
    source += "  streams: [users, { name: orders, types: { price: integer } }]\n"
    users, orders = plan(place, source, USERS, ORDERS).streams
    assert types(orders, place)["created"] == "timestamp"
    assert types(orders, place)["price"] == "integer"
    assert types(users, place) == {"id": "json", "created": "timestamp"}  # users has no price


@pytest.mark.parametrize(
    ("source", "problem"),
    [
        (
            "  streams:\n    - name: orders\n      types:\n        prise: integer\n",
            "shop.yaml:7: source.streams[0].types: stream orders: unknown column 'prise'; "
            "did you mean 'price'?",
        ),
        (
            "  defaults:\n    types:\n      creatd: date\n",
            "shop.yaml:6: source.defaults.types: 2 streams: unknown column 'creatd'; "
            "did you mean 'created'?",
        ),
    ],
)
def test_a_column_that_no_stream_has_is_a_problem(
    source: str, problem: str, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError) as caught:
        plan(lake(tmp_path), source, ORDERS, USERS)
    assert caught.value.problems == [problem]


def test_a_stream_that_tells_nothing_of_its_columns_may_have_any(tmp_path: Path) -> None:
    place = lake(tmp_path)
    found = plan(place, "  defaults: { types: { prise: date, record: date } }\n", ORDERS, UNTOLD)
    assert types(found.streams[1], place) == {"record": "json"}


def test_a_cursor_is_compared_in_the_type_that_was_said(tmp_path: Path) -> None:
    """Of a text 9 is newer than 10 (issue 9: A7)."""
    source = "  defaults: { mode: upsert, cursor_field: created, types: { created: integer } }\n"
    found = plan(lake(tmp_path), source).streams[0]
    assert found.disposition.cursor == ("created",)
    assert [f.type.kind for f in found.schema.fields if f.name == "created"] == ["integer"]


def test_a_key_of_a_type_that_is_no_key_is_refused(tmp_path: Path) -> None:
    source = "  defaults: { mode: upsert, types: { id: 'array<integer>' } }\n"
    with pytest.raises(ConfigError, match=r"cannot run as it is") as caught:
        plan(lake(tmp_path), source)
    assert "the primary key id is not a typed column" in caught.value.problems[0]


ROWS: list[dict[str, Any]] = [
    {"id": 1, "price": "12.50", "created": "2026-01-02T03:04:05Z", "payload": {"a": 1}},
    {"id": 2, "price": 12.34567, "created": "soon", "payload": [1, "b"]},
    {"id": 3, "price": 0.1, "created": 1700000000, "payload": "text"},
]


def decoded(schema: RowSchema) -> Any:
    bodies = [json.dumps(r).encode() for r in ROWS]
    return RowDecoder(schema).decode(bodies, 0, [0] * len(ROWS))


def test_L9_a_json_value_is_read_by_the_type_that_was_said(tmp_path: Path) -> None:
    found = decoded(plan(lake(tmp_path), SAID).streams[0].schema)
    prices = [Decimal("12.5000"), None, Decimal("0.1000")]
    assert found.table.column("price").to_pylist() == prices
    assert [v is None for v in found.table.column("created").to_pylist()] == [False, True, True]
    assert found.table.column("payload").to_pylist() == ['{"a":1}', '[1,"b"]', '"text"']
    assert found.nulled == {"price": 1, "created": 2}
    fields = [[c["field"] for c in row] for row in found.table.column(CHANGES).to_pylist()]
    assert fields == [[], ["price", "created"], ["created"]]


EPOCH = datetime(1970, 1, 1, 0, 0, 0, 1)
FRAMES = [
    (pa.array(["12.50", "x", None]), "decimal(18,4)", [Decimal("12.5000"), None, None], 1),
    (pa.array([0.1, 12.34567, 1e30]), "decimal(18,4)", [Decimal("0.1000"), None, None], 2),
    (pa.array([12, 123456789, None]), "decimal(4,2)", [Decimal("12.00"), None, None], 1),
    (pa.array([1700000000]), "timestamp", [None], 1),
    (pa.array([1700000000]), "date", [None], 1),
    (pa.array([1, 0]), "boolean", [None, None], 2),
    (pa.array([True]), "integer", [None], 1),
    (pa.array([1.0, 1.5]), "integer", [1, None], 1),
    (pa.array(["YWJj", "a!"]), "binary", [b"abc", None], 1),
    (pa.array([{"a": 1}, None]), "string", ['{"a":1}', None], 0),
    (pa.array([86_400_000_000, 1], pa.timestamp("us", "UTC")), "date", ["1970-01-02", None], 1),
    (pa.array([1], pa.timestamp("us", "UTC")), "timestamp_ntz", [EPOCH], 0),
    (pa.array([1], pa.timestamp("us", "Europe/Paris")), "timestamp_ntz", [None], 1),
]


@pytest.mark.parametrize(("column", "text", "expected", "nulled"), FRAMES)
def test_L9_a_column_of_a_frame_is_read_by_the_type_as_json_is(
    column: Any, text: str, expected: list[Any], nulled: int, tmp_path: Path
) -> None:
    source = f"  defaults: {{ types: {{ price: '{text}' }} }}\n"
    schema = plan(lake(tmp_path), source, protocol="rapidbyte").streams[0].schema
    rows = Columns(pa.table({"price": column}))
    found = ColumnDecoder(schema).decode(rows, 0, [0] * len(column), {})
    values = found.table.column("price").to_pylist()
    assert [v.isoformat() if text == "date" and v else v for v in values] == expected
    assert found.cast_failures == nulled


POSTGRES = {"type": ["null", "number"], "multipleOf": 1e-38, "minimum": -1e62, "maximum": 1e62}


@pytest.mark.parametrize("protocol", ["airbyte", "singer"])
def test_L9_a_number_without_bounds_keeps_both_sides_of_its_point_and_the_plan_says_so(
    protocol: str, tmp_path: Path
) -> None:
    """As taps for Postgres describe a numeric without precision."""
    properties = {"id": {"type": "integer"}, "price": POSTGRES, "rate": POSTGRES}
    stream = msgspec.structs.replace(ORDERS, json_schema={"properties": properties})
    place = lake(tmp_path)
    found = plan(place, "  defaults: { types: { rate: number } }\n", stream, protocol=protocol)
    assert types(found.streams[0], place) == {
        "id": "integer", "price": "decimal(38,18)", "rate": "number",
    }  # fmt: skip
    (note,) = found.notes
    assert note.startswith("stream orders: the source's schema allows numbers with more than 38")
    assert "in price (decimal(38,18)): " in note and "`types` of the stream" in note
    decoder = RowDecoder(found.streams[0].schema)
    done = decoder.decode([b'{"price":12.5}', b'{"price":-98765432109876543210.01}'], 0, [0, 0])
    assert done.table.column("price").to_pylist() == [
        Decimal("12.5"), Decimal("-98765432109876543210.01"),
    ]  # fmt: skip


@pytest.mark.parametrize("protocol", ["airbyte", "singer"])
def test_L8_an_object_that_the_pipeline_takes_as_json_keeps_what_its_schema_lacks(
    protocol: str, tmp_path: Path
) -> None:
    inner = {"type": "object", "additionalProperties": True, "properties": {"a": {}}}
    properties = {"id": {"type": "integer"}, "o": inner, "l": {"type": "array", "items": inner}}
    stream = msgspec.structs.replace(ORDERS, json_schema={"properties": properties})
    body = b'{"o":{"a":1,"b":2.50},"l":[{"b":3}]}'
    place = lake(tmp_path)
    for source, extra in (
        ("", {"o.b": 1, "l[].b": 1}),
        ("  defaults: { types: { o: json, l: json } }\n", {}),
        ("  defaults: { types: { o: 'struct<b: number>', l: 'array<struct<b: json>>' } }\n", {}),
        ("  defaults: { types: { o: 'struct<c: json>' } }\n", {"o.b": 1, "l[].b": 1}),
    ):
        planned = plan(place, source, stream, protocol=protocol).streams[0]
        done = RowDecoder(planned.schema, ignored=planned.ignored).decode([body], 0, [0])
        assert done.extra_fields == extra, source
        if "json, l" in source:
            row = done.table.to_pylist()[0]
            assert (row["o"], row["l"]) == ('{"a":1,"b":2.50}', '[{"b":3}]')


def test_L3_another_type_is_another_version_of_the_schema(tmp_path: Path) -> None:
    store = MemoryStore()
    lease = store.acquire("p", this_holder("r"), 60)
    before, said = (plan(lake(tmp_path), s).streams[0].schema for s in ("", SAID))
    versions = [
        store.schema_version(lease, ORDERS.id, schema).version for schema in (before, said, said)
    ]
    assert versions[1] == versions[2] == versions[0] + 1
