"""``engine.plan.stream_plan``: which modes a stream gets, by what its table already is, what its
destination can and what its columns are; what makes a row the newest of its key (issue 9: A3, A6,
A7, A16)."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from penstock.config.load import parse_pipeline
from penstock.engine.plan.description import describe
from penstock.engine.plan.earlier_modes import NEWEST, mixed_keys, modes_of, other_rule_notes
from penstock.engine.plan.key_types import EXACT_NUMBER
from penstock.engine.plan.stream_plan import StreamRules
from penstock.engine.plan.streams import StreamsPlan, plan_streams
from penstock.engine.plan.table_types import TableTypes
from penstock.engine.specs.plan import PlannedStream
from penstock.errors import ConfigError
from penstock.model.catalog import Catalog, DestinationSyncMode, Stream, StreamId, SyncMode
from penstock.model.types import DataType, Field, Kind, RowSchema
from penstock.protocols import load
from penstock.store.remembered import Refresh, Remembered, UsedModes
from penstock.tables.contract import TableFormat, TypeChange
from penstock.tables.formats import open_table
from penstock.tables.parquet import tables as parquet
from penstock.transforms.contract import TransformJob

USERS = StreamId(None, "users")
SCHEMA = {
    "type": "object",
    "properties": {
        "id": {"type": "integer"},
        "at": {"type": "string", "format": "date-time"},
        "tags": {"type": "array", "items": {"type": "string"}},
        "_sdc_deleted_at": {"type": "string"},
    },
}
STREAM: dict[str, Any] = {
    "sync_modes": tuple(SyncMode),
    "default_cursor_field": ("at",),
    "source_defined_primary_key": (("id",),),
}


def lake(tmp_path: Path) -> TableFormat:
    return open_table("parquet", str(tmp_path / "lake"), {})


def plan(
    place: Any,
    stream: str = "",
    *,
    protocol: str = "singer",
    earlier: Remembered | None = None,
    transforms: tuple[TransformJob, ...] = (),
    table_types: TableTypes | None = None,
    **more: Any,
) -> StreamsPlan:
    head = f"pipeline: p\nsource: {{ use: {protocol}:x, defaults: {{ {stream} }} }}\n"
    text = head + "destination: { use: 'parquet:./lake' }\n"
    return plan_streams(
        parse_pipeline(text, {}),
        Catalog((Stream(id=USERS, **{"json_schema": SCHEMA, **STREAM, **more}),)),
        StreamRules(
            package=load(protocol),
            destination=place,
            earlier=earlier or Remembered(),
            transforms=transforms,
            metadata=None,
            sync_id=1,
            merges=True,
            table_types=table_types,
        ),
        known=set(),
        states=(),
        cores=1,
    )


def one(place: Any, stream: str = "", **more: Any) -> PlannedStream:
    return plan(place, stream, **more).streams[0]


def modes(planned: PlannedStream) -> str:
    return f"{planned.configured.sync_mode} + {planned.disposition.mode}"


def after(planned: PlannedStream) -> Remembered:
    """What the store remembers once this was run."""
    modes = {USERS: modes_of(planned.configured)}
    return Remembered(columns={USERS: planned.columns}, modes=modes)


def test_A16_a_plan_says_which_mode_and_why(tmp_path: Path) -> None:
    place = lake(tmp_path)
    found = describe(plan(place), place)[0]
    assert found["destination_sync_mode"] == "append_dedup"
    assert found["mode_reason"] == "its primary key is known"
    assert found["newest_by"] == {"by": "cursor", "field": ["at"]}
    assert found["loads"] == "at the end of the sync"
    appended = describe(plan(place, "mode: append"), place)[0]
    assert appended["mode_reason"] == "the pipeline sets it" and appended["newest_by"] is None


def test_A16_parquet_without_an_exchange_is_appended_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = lake(tmp_path)
    assert modes(one(place)) == "incremental + append_dedup"
    assert list(tmp_path.iterdir()) == []  # a plan leaves nothing behind
    monkeypatch.setattr(parquet, "can_exchange", lambda folder: False)
    found = one(place)
    assert modes(found) == "incremental + append"
    assert "cannot exchange two folders" in found.configured.mode_reason
    assert modes(one(place, "mode: upsert")) == "incremental + append_dedup"


def test_A16_a_key_that_is_no_column_is_appended_by_default_and_refused_when_asked(
    tmp_path: Path,
) -> None:
    key: Any = {"source_defined_primary_key": (("tags",),)}
    found = one(lake(tmp_path), **key)
    assert modes(found) == "incremental + append"
    assert "tags is not a typed column" in found.configured.mode_reason
    with pytest.raises(ConfigError) as refused:
        one(lake(tmp_path), "mode: upsert", **key)
    assert "tags is not a typed column" in refused.value.problems[0]


def test_A16_a_table_keeps_the_modes_it_was_written_with(tmp_path: Path) -> None:
    place = lake(tmp_path)
    first = one(place, source_defined_primary_key=None)
    assert modes(first) == "incremental + append"
    earlier = after(first)
    again = one(place, earlier=earlier)  # the catalog has learnt of a key
    assert modes(again) == "incremental + append"
    assert "appended to until now" in again.configured.mode_reason
    assert after(again) != earlier
    asked = plan(place, "mode: upsert", earlier=earlier)
    assert modes(asked.streams[0]) == "incremental + append_dedup"
    assert any("written under append until now" in note for note in asked.notes)
    earlier = after(asked.streams[0])
    assert modes(one(place, earlier=earlier)) == "incremental + append_dedup"


def test_A16_a_table_whose_key_changes_is_told(tmp_path: Path) -> None:
    place = lake(tmp_path)
    earlier = after(one(place))
    assert not plan(place, earlier=earlier).notes
    asked = plan(place, earlier=earlier, source_defined_primary_key=(("id",), ("at",)))
    assert [note for note in asked.notes if "one row for each id until now" in note] == [
        "stream users: its table kept one row for each id until now and keeps one for each id, at"
        " from now on"
    ]


def test_A16_so_does_one_that_was_mirrored(tmp_path: Path) -> None:
    place = lake(tmp_path)
    earlier = after(one(place, "mode: mirror"))
    found = one(place, earlier=earlier)
    assert modes(found) == "full_refresh + overwrite" and found.configured.cursor_field == ()
    assert (
        modes(one(place, "sync_mode: incremental", earlier=earlier)) == "incremental + append_dedup"
    )


def test_A16_a_key_that_only_messages_told_is_remembered(tmp_path: Path) -> None:
    place = lake(tmp_path)
    earlier = after(one(place))
    found = one(place, earlier=earlier, source_defined_primary_key=None)
    assert modes(found) == "incremental + append_dedup"
    assert found.disposition.primary_key == (("id",),)


def test_A16_a_home_of_an_earlier_version_goes_on_as_it_was(tmp_path: Path) -> None:
    earlier = Remembered(columns={USERS: {"id": "id"}})
    found = one(lake(tmp_path), earlier=earlier)
    assert modes(found) == "incremental + append"
    assert "earlier version" in found.configured.mode_reason
    assert (
        modes(one(lake(tmp_path), "mode: upsert", earlier=earlier)) == "incremental + append_dedup"
    )


def test_A16_a_tap_that_decides_goes_on_deciding(tmp_path: Path) -> None:
    """A mode that the source's own rules gave is not written into its catalog as if it were asked
    for."""
    silent: dict[str, Any] = {"default_cursor_field": None, "raw": {}}
    place = lake(tmp_path)
    first = one(place, **silent)
    assert first.configured.source_decides and modes(first) == "incremental + append_dedup"
    again = one(place, earlier=after(first), **silent)
    assert again.configured.source_decides and modes(again) == modes(first)


def test_A16_a_table_read_by_the_only_key_that_a_tap_takes_goes_on_so(tmp_path: Path) -> None:
    """By default a candidate is not taken any more; what an earlier run took is."""
    words = {"row-count": 1, "valid-replication-keys": ["id"]}
    raw = {"metadata": [{"breadcrumb": [], "metadata": words}]}
    table: dict[str, Any] = {"default_cursor_field": None, "raw": raw}
    place = lake(tmp_path)
    assert modes(one(place, **table)) == "full_refresh + overwrite"
    first = one(place, "sync_mode: incremental", **table)
    again = one(place, earlier=after(first), **table)
    assert modes(again) == "incremental + append_dedup"
    assert again.configured.cursor_field == ("id",)


def test_A3_a_pair_that_loses_rows_is_refused_with_the_way_out(tmp_path: Path) -> None:
    assert modes(one(lake(tmp_path), "mode: overwrite")) == "full_refresh + overwrite"
    for pair in ("incremental", "cdc"):
        with pytest.raises(ConfigError) as refused:
            one(lake(tmp_path), f"sync_mode: {pair}, destination_sync_mode: overwrite")
        assert "mode: mirror" in refused.value.problems[0]


def test_A6_a_deduped_overwrite_is_one_generation_that_replaces(tmp_path: Path) -> None:
    found = one(lake(tmp_path), "mode: full_refresh_overwrite_deduped")
    assert found.disposition.replaces and found.configured.fills_generation
    assert found.disposition.mode is DestinationSyncMode.append_dedup
    merged = one(lake(tmp_path), "sync_mode: full_refresh, destination_sync_mode: append_dedup")
    assert not merged.disposition.replaces


def test_A7_under_cdc_the_later_change_wins(tmp_path: Path) -> None:
    found = one(lake(tmp_path), "sync_mode: cdc")
    assert modes(found) == "cdc + append_dedup"
    assert found.disposition.arrival and found.disposition.cursor == ()
    assert found.newest_by == {"by": "arrival", "field": []}
    assert found.disposition.deleted_column == "_sdc_deleted_at"


def test_A7_without_a_cursor_the_time_of_extraction_decides_and_a_plan_says_so(
    tmp_path: Path,
) -> None:
    found = one(lake(tmp_path), "sync_mode: incremental", default_cursor_field=None)
    assert found.newest_by == {"by": "arrival", "field": []}


def test_shapes_that_an_earlier_version_sealed_are_read() -> None:
    found = one(open_table("delta", "./lake", {}))
    old = msgspec.to_builtins(found.disposition)
    del old["arrival"]
    assert msgspec.convert(old, type(found.disposition)) == found.disposition


@pytest.mark.parametrize(
    ("query", "mode"),
    [
        ("SELECT * FROM input WHERE id > 0 ORDER BY id LIMIT 9", "append_dedup"),
        ("SELECT id, upper(_sdc_deleted_at) AS up FROM input", "append_dedup"),
        ("SELECT id, unnest(tags) AS tag FROM input", "append"),
        ("SELECT id % 2 AS id, at FROM input", "append"),
        ("SELECT a.* FROM input a JOIN input b ON a.at = b.at", "append"),
        ("SELECT id, count(*) AS n FROM input GROUP BY id", "append"),
        ("SELECT at FROM input", "append"),
    ],
)
def test_A16_rows_that_a_transform_multiplies_are_not_merged_by_default(
    tmp_path: Path, query: str, mode: str
) -> None:
    """Of several rows made of one record all but one would go without a word."""
    job = TransformJob(use="transform-sql", config={"query": query}, where="transforms[0]")
    found = one(lake(tmp_path), transforms=(job,))
    assert found.disposition.mode.value == mode, found.configured.mode_reason
    if "at FROM input" not in query or "%" in query:
        asked = one(lake(tmp_path), "mode: upsert", transforms=(job,))
        assert modes(asked) == "incremental + append_dedup"


def test_a_transform_that_leaves_out_who_is_gone_is_told(tmp_path: Path) -> None:
    query = "SELECT id, at FROM input"
    job = TransformJob(use="transform-sql", config={"query": query}, where="transforms[0]")
    told = "leave out _sdc_deleted_at: rows that are gone"
    assert any(told in n for n in plan(lake(tmp_path), transforms=(job,)).notes)
    assert not any(told in n for n in plan(lake(tmp_path)).notes)
    appended = plan(lake(tmp_path), "mode: append", transforms=(job,))
    assert not any(told in n for n in appended.notes)


@pytest.mark.parametrize("mode", ["append", "upsert"])
def test_the_mark_of_deletes_is_planned_whatever_the_mode(tmp_path: Path, mode: str) -> None:
    """A destination that only appends is told of it too: it may not know the mark."""
    assert one(lake(tmp_path), f"mode: {mode}").deleted_at == "_sdc_deleted_at"
    bare = {"type": "object", "properties": {"id": {"type": "integer"}}}
    assert one(lake(tmp_path), f"mode: {mode}", json_schema=bare).deleted_at is None


TEXT_CURSOR = {"json_schema": {"properties": {**SCHEMA["properties"], "at": {"type": "string"}}}}


@pytest.mark.parametrize(
    ("stream", "more", "noted"),
    [
        ("", TEXT_CURSOR, True),
        ("", {}, False),  # a column of times
        ("cursor_order: text", TEXT_CURSOR, False),
        ("mode: mirror", TEXT_CURSOR, False),
        ("mode: append", TEXT_CURSOR, False),
    ],
)
def test_another_rule_of_the_newest_row_is_noted_once(
    tmp_path: Path, stream: str, more: dict[str, Any], noted: bool
) -> None:
    """Issue 38: a table that earlier code wrote, whose rows were compared otherwise."""
    place = lake(tmp_path)
    first = plan(place, stream, **more)
    words = "an earlier version of Penstock wrote its table"
    assert not [n for n in first.notes if words in n], "there is no table yet"
    of_before = msgspec.structs.replace(modes_of(first.streams[0].configured), newest=0)
    earlier = Remembered(columns={USERS: first.streams[0].columns}, modes={USERS: of_before})
    again = plan(place, stream, earlier=earlier, **more)
    found = [n for n in again.notes if words in n]
    assert len(found) == noted
    assert all("the cursor at, which is text" in n for n in found)
    assert again.found.modes[USERS].newest == NEWEST
    now = Remembered(columns=earlier.columns, modes=again.found.modes)
    assert not [n for n in plan(place, stream, earlier=now, **more).notes if words in n]


@pytest.mark.parametrize(
    ("kinds", "refresh", "mixed"),
    [
        ("string json", None, True),
        ("json string", Refresh(run="r", at="", after=1), True),
        ("string json string", Refresh(run="r", at="", after=1, until=2, cancelled=True), True),
        ("string json", Refresh(run="r", at="", after=1, until=2), False),
        ("json json", None, False),
        ("string string", None, False),
    ],
)
def test_L9_a_key_that_earlier_code_wrote_in_two_forms_is_found_and_noted_once(
    kinds: str, refresh: Refresh | None, mixed: bool
) -> None:
    """Issue 38: once a property was declared a union, that code wrote "A1" with its quotes."""
    stored = {
        number: RowSchema((Field("id", "id", DataType(Kind(kind))),), number)
        for number, kind in enumerate(kinds.split(), 1)
    }
    found = mixed_keys(USERS, (("id",), ("o", "id")), lambda stream: stored, refresh)
    assert found == ("id",) * mixed


@pytest.mark.parametrize(
    ("declared", "had", "decoded"),
    [
        ("string", DataType(Kind.number), DataType(Kind.number)),
        ("number", DataType(Kind.number), DataType(Kind.number)),
        ("string", DataType(Kind.decimal, 10, 2), DataType(Kind.decimal, 10, 2)),
        ("string", DataType(Kind.string), DataType(Kind.string)),
        ("number", None, EXACT_NUMBER),
    ],
)
def test_L9_a_key_is_decoded_by_the_type_of_a_table_that_another_home_made(
    tmp_path: Path, declared: str, had: DataType | None, decoded: DataType
) -> None:
    """Spark would cast it, 0.1000000000000000055 to 0.1; a lane rejects what the type lacks."""
    columns = () if had is None else (Field("id", "id", had), Field("n", "n", DataType(Kind.date)))
    types = TableTypes(lambda table: columns, {}, lambda stream: {}, TypeChange.coerce)
    schema = {"type": "object", "properties": {"id": {"type": declared}, "n": {"type": "integer"}}}
    found = one(lake(tmp_path), table_types=types, json_schema=schema, default_cursor_field=None)
    kinds = {f.name: f.type for f in found.schema.fields}
    assert kinds == {"id": decoded, "n": DataType(Kind.integer)}
    assert found.exact == ("id",) * (decoded == EXACT_NUMBER)


def test_a_key_of_two_forms_is_noted_once(tmp_path: Path) -> None:
    planned = one(lake(tmp_path))
    mixed = msgspec.structs.replace(planned.disposition, mixed_keys=("id",))
    planned = msgspec.structs.replace(planned, disposition=mixed)
    had = msgspec.structs.replace(modes_of(planned.configured), newest=0)
    (note,) = other_rule_notes(planned, had)
    assert "replaces the rows of its key in both forms" in note
    assert not other_rule_notes(planned, modes_of(planned.configured))


def test_modes_that_an_earlier_version_stored_have_the_rule_of_before() -> None:
    stored = b'{"sync_mode":"incremental","destination_sync_mode":"append_dedup"}'
    assert msgspec.json.decode(stored, type=UsedModes).newest == 0
