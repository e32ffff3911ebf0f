"""``tables.load_way``: which way the loads of a stream take, and why (issue 37, part 2)."""

from typing import Any

import pytest

from penstock.model.catalog import DestinationSyncMode
from penstock.model.segments import WriteDisposition
from penstock.model.types import Kind
from penstock.tables.load_way import PlannedLoads, planned_way

KINDS = {"id": Kind.integer, "at": Kind.timestamp, "size": Kind.number, "tags": Kind.array}
APPEND, DEDUP = DestinationSyncMode.append, DestinationSyncMode.append_dedup


def way(
    mode: DestinationSyncMode, key: str = "id", cursor: str = "at", **more: Any
) -> tuple[str | None, str]:
    keyed = mode is DEDUP
    given = WriteDisposition(
        mode=mode,
        primary_key=((key,),) if keyed else (),
        cursor=(cursor,) if keyed else (),
    )
    known = {"files": True, "shaped": False, "queried": False, "replaces": False, **more}
    found = planned_way(PlannedLoads(disposition=given, kinds=KINDS, **known))
    return found.way and found.way.value, found.reason


@pytest.mark.parametrize("replaces", [False, True])
def test_parts_in_the_shape_of_the_table_are_published(replaces: bool) -> None:
    assert way(APPEND, shaped=True, replaces=replaces)[0] == "publish"


def test_keys_that_a_task_compares_are_merged_in_one_L13() -> None:
    assert way(DEDUP) == ("merge", "a Spark task compares the keys of parts and table")
    assert way(DEDUP, cursor="size")[0] == "merge"
    assert way(DEDUP, replaces=True)[0] == "merge"


@pytest.mark.parametrize(("key", "cursor"), [("size", "at"), ("tags", "at"), ("id", "tags")])
def test_spark_merges_by_what_no_task_compares(key: str, cursor: str) -> None:
    assert way(DEDUP, key, cursor) == (
        "spark", "only Spark compares keys or cursors of these types"
    )  # fmt: skip


def test_other_rows_are_sparks() -> None:
    assert way(APPEND)[0] == "spark"
    assert way(APPEND, replaces=True)[0] == "rewrite"
    assert way(DEDUP, files=False)[0] == "spark"


def test_the_columns_of_a_query_are_known_at_the_load() -> None:
    assert way(DEDUP, queried=True) == (None, "the result of the query decides the columns")
