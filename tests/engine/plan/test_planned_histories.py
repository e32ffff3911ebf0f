"""``engine.plan.histories``: which streams keep every version of a key, and which cannot."""

from pathlib import Path
from typing import Any

import pytest
from test_stream_plan import SCHEMA, STREAM, USERS, after, lake

from penstock.config.load import parse_pipeline
from penstock.engine.plan.description import describe
from penstock.engine.plan.histories import KeptHistories
from penstock.engine.plan.stream_plan import StreamRules
from penstock.engine.plan.streams import StreamsPlan, plan_streams
from penstock.engine.specs.plan import PlannedStream
from penstock.errors import ConfigError
from penstock.model.catalog import Catalog, Stream
from penstock.protocols import load
from penstock.store.remembered import Remembered


def plan(
    tmp_path: Path,
    stream: str,
    *,
    earlier: Remembered | None = None,
    recreate: bool = False,
    kept: dict[str, Any] | None = None,
    **more: Any,
) -> StreamsPlan:
    earlier = earlier or Remembered()
    place = lake(tmp_path)
    had = {id: modes.primary_key for id, modes in earlier.modes.items() if modes.history}
    text = f"pipeline: p\nsource: {{ use: singer:x, defaults: {{ {stream} }} }}\n"
    return plan_streams(
        parse_pipeline(text + "destination: { use: 'parquet:./lake' }\n", {}),
        Catalog((Stream(id=USERS, **{"json_schema": SCHEMA, **STREAM, **more}),)),
        StreamRules(
            package=load("singer"),
            destination=place,
            earlier=earlier,
            metadata=None,
            sync_id=1,
            merges=True,
            recreate=recreate,
            kept_histories=KeptHistories(
                **{"local": True, "columns_of": place.columns_of, "had": had, **(kept or {})}
            ),
        ),
        known=set(),
        states=(),
        cores=1,
    )


def one(tmp_path: Path, stream: str, **more: Any) -> PlannedStream:
    return plan(tmp_path, stream, **more).streams[0]


def problem(tmp_path: Path, stream: str, **more: Any) -> str:
    with pytest.raises(ConfigError) as refused:
        plan(tmp_path, stream, **more)
    (found,) = refused.value.problems
    return found


def test_versions_begin_at_the_cursor_or_when_they_were_extracted(tmp_path: Path) -> None:
    found = one(tmp_path, "history: true")
    assert found.disposition.history and found.disposition.cursor == ("at",)
    assert not found.disposition.replaces and not found.replaces_table
    full = one(tmp_path, "history: true, sync_mode: full_refresh")
    assert full.disposition.history and full.disposition.cursor == () and full.disposition.arrival
    assert full.disposition.replaces and not full.replaces_table  # its old versions stay
    cdc = one(tmp_path, "history: true, sync_mode: cdc")
    assert cdc.disposition.arrival and not cdc.disposition.replaces


def test_a_plan_says_so(tmp_path: Path) -> None:
    streams = plan(tmp_path, "history: true")
    (shown,) = describe(streams, lake(tmp_path))
    assert shown["history"] and shown["mode_reason"] == "its table keeps a history"
    (shown,) = describe(plan(tmp_path, ""), lake(tmp_path))
    assert not shown["history"]


def test_keyed_leaves_out_streams_without_a_key(tmp_path: Path) -> None:
    assert one(tmp_path, "history: keyed").disposition.history
    without = one(tmp_path, "history: keyed", source_defined_primary_key=None)
    assert not without.disposition.history
    assert without.disposition.mode == "append"
    appended = one(tmp_path, "history: keyed, mode: append")
    assert not appended.disposition.history
    notes = plan(tmp_path, "history: keyed", source_defined_primary_key=None).notes
    assert [n for n in notes if "keeps no history: it has no primary key" in n]
    assert not [n for n in plan(tmp_path, "history: keyed").notes if "no history" in n]
    notes = plan(tmp_path, "history: keyed, mode: append").notes
    assert [n for n in notes if "keeps no history: its mode is append" in n]


def test_a_history_keeps_its_key(tmp_path: Path) -> None:
    earlier = after(one(tmp_path, "history: true"))
    other = "history: true, primary_key: [[at]]"
    found = problem(tmp_path, other, earlier=earlier)
    assert "has versions of the key id, and the key is at" in found and "--recreate" in found
    assert one(tmp_path, other, earlier=earlier, recreate=True).disposition.history
    assert one(tmp_path, "history: true", earlier=earlier).disposition.history


def test_a_history_ends_where_the_user_agrees(tmp_path: Path) -> None:
    earlier = after(one(tmp_path, "history: true"))
    assert "`penstock run --yes`" in problem(tmp_path, "history: false", earlier=earlier)
    planned = plan(tmp_path, "history: false", earlier=earlier, kept={"ends": True})
    given = planned.streams[0].disposition
    assert given.ends_history and not given.history
    assert [n for n in planned.notes if "history ends: current rows stay" in n]
    unasked = plan(tmp_path, "mode: upsert", kept={"ends": True}).streams[0].disposition
    assert not unasked.ends_history
    assert not one(tmp_path, "history: true", kept={"ends": True}).disposition.ends_history


def test_a_table_keeps_its_history_where_the_pipeline_says_nothing(tmp_path: Path) -> None:
    earlier = after(one(tmp_path, "history: true"))
    assert one(tmp_path, "", earlier=earlier).disposition.history
    for said in ("history: false", "mode: append", "mode: mirror"):
        assert "has a history of its rows" in problem(tmp_path, said, earlier=earlier)
        assert not one(tmp_path, said, earlier=earlier, recreate=True).disposition.history


REFUSED: dict[str, tuple[str, dict[str, Any], str]] = {
    "no key": ("history: true", {"source_defined_primary_key": None}, "primary key"),
    "append": ("history: true, mode: append", {}, "its destination sync mode is append"),
    "mirror": ("history: true, mode: mirror", {}, "its destination sync mode is overwrite"),
    "elsewhere": (
        "history: true",
        {"kept": {"local": False}},
        "its destination keeps no history yet",
    ),
    "a query": ("history: true", {"kept": {"queried": True}}, "a query over the whole stream"),
    "soft": ("history: true", {"kept": {"soft": True}}, "its deletes are soft"),
    "a nested key": (
        "history: true, primary_key: [[meta, id]]",
        {
            "json_schema": {
                **SCHEMA,
                "properties": {
                    **SCHEMA["properties"],
                    "meta": {"type": "object", "properties": {"id": {"type": "integer"}}},
                },
            },
            "source_defined_primary_key": None,
        },
        "its key or cursor is nested",
    ),
}


@pytest.mark.parametrize("case", [*REFUSED])
def test_what_cannot_have_one_is_refused(tmp_path: Path, case: str) -> None:
    stream, more, words = REFUSED[case]
    assert words in problem(tmp_path, stream, **more)
