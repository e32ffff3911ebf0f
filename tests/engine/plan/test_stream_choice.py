"""``engine.plan.stream_choice``: which streams a run syncs, and what is said of the others."""

from collections.abc import Set
from pathlib import Path
from typing import Any

import pytest

from penstock.config.load import parse_pipeline
from penstock.engine.plan.stream_plan import StreamRules
from penstock.engine.plan.streams import StreamsPlan, plan_streams
from penstock.errors import ConfigError
from penstock.model.catalog import Catalog, Stream, StreamId
from penstock.protocols import load
from penstock.store.remembered import Remembered
from penstock.tables.formats import open_table

DESTINATION = "destination: { use: 'parquet:./lake' }\n"
SCHEMA = {"type": "object", "properties": {"id": {"type": "integer"}}}


def plan(
    text: str,
    tmp_path: Path,
    there: tuple[StreamId, ...],
    known: Set[StreamId] = frozenset(),
    **catalog: Any,
) -> StreamsPlan:
    return plan_streams(
        parse_pipeline(text, {}),
        Catalog(tuple(Stream(id=s, json_schema=SCHEMA) for s in there), **catalog),
        StreamRules(
            package=load("airbyte"),
            destination=open_table("parquet", str(tmp_path / "lake"), {}),
            earlier=Remembered(),
            metadata=None,
            sync_id=1,
        ),
        known=known,
        states=(),
        cores=1,
    )


def test_streams_are_chosen_and_left_out_by_pattern(tmp_path: Path) -> None:
    """Issue 9, C: ``--streams 'user*'``, ``--exclude``."""

    def chosen(source: str) -> list[str]:
        text = f"pipeline: p\nsource: {{ use: airbyte:x, {source} }}\n" + DESTINATION
        ids = [StreamId(n, s) for n in (None, "shop") for s in ("users", "users_old", "orders")]
        found = plan(text, tmp_path, tuple(ids))
        return [str(s.id) for s in found.streams]

    assert chosen("streams: ['user*']") == ["users", "users_old", "shop.users", "shop.users_old"]
    assert chosen("streams: ['shop.*'], exclude: [orders]") == ["shop.users", "shop.users_old"]
    assert chosen("streams: [{name: '*s', namespace: shop}]") == ["shop.users", "shop.orders"]
    assert chosen("exclude: ['shop.*', 'users?old']") == ["users", "orders"]
    for wrong, told in (
        ("streams: ['usr*']", "unknown stream 'usr*'"),
        ("exclude: [usrs]", "excluded: unknown stream 'usrs'; did you mean"),
    ):
        with pytest.raises(ConfigError) as refused:
            chosen(wrong)
        assert told in refused.value.problems[0]


def test_the_closest_entry_of_a_stream_holds() -> None:
    text = (
        "pipeline: p\nsource:\n  use: airbyte:x\n  streams:\n"
        "    - { name: 'user*', mode: append }\n    - { name: users, mode: mirror }\n"
    )
    pipeline = parse_pipeline(text + DESTINATION, {})
    found = {
        n: pipeline.stream_settings(StreamId(None, n)) for n in ("users", "users_old", "orders")
    }
    assert [w and w.mode for w in found.values()] == ["mirror", "append", None]


def test_a_stream_that_the_source_no_longer_has_is_noted_without_a_list(tmp_path: Path) -> None:
    here, gone = StreamId(None, "here"), StreamId(None, "gone")
    text = "pipeline: p\nsource: { use: airbyte:x }\n" + DESTINATION
    found = plan(text, tmp_path, (here,), known={here, gone})
    assert found.gone == (gone,)
    assert any("no longer has the stream gone" in note for note in found.notes)
    assert [s.id for s in found.streams] == [here]


def test_what_the_catalog_lacks_is_told_and_may_be_what_has_no_name_in_it(tmp_path: Path) -> None:
    text = "pipeline: p\nsource: { use: airbyte:x }\n" + DESTINATION
    users, orders = StreamId(None, "users"), StreamId(None, "orders")
    gone = "the source no longer has the stream orders; its table is kept as it is"
    assert gone in plan(text, tmp_path, (users,), {users, orders}).notes
    notes = plan(
        text, tmp_path, (users,), {users, orders}, unnamed=2, notes=("stream 3 ...",)
    ).notes
    assert "stream 3 ..." in notes and gone not in notes
    assert any("orders, which may be one of its 2 without a name" in note for note in notes)
