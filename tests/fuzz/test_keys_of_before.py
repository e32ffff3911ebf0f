"""A home whose earlier code wrote a key by the type that its source declared at the time, as text
and as JSON: today's code goes on with one row a key (L9), files and all but for Spark."""

from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from fuzz_columns import INTEGER, STRING, UNION, Column
from fuzz_tables import FileTables
from fuzz_values import NAME, ValueCase, ValueRun, _script
from fuzz_world import World, run_once
from value_takeouts import VALUES_TAKEN_OUT

BEFORE = VALUES_TAKEN_OUT["38.2 types of keys"].take_out


def run(world: World, tables: Any, case: ValueCase, key: Any, *records: tuple[str, int]) -> Any:
    """Sends records: the key as JSON text, and the cursor, which is the value too."""
    rows = [{"id": i, "at": str(at), "v": f'"{at}"'} for i, at in records]
    case.runs.append(ValueRun({"id": key, "at": INTEGER, "v": STRING}, rows))
    number = len(case.runs) - 1
    outcome = run_once(
        world, "airbyte:./shop", {"destination_sync_mode": "append_dedup"},
        lambda arguments: _script(case, number, arguments), full_refresh=False,
    )  # fmt: skip
    assert outcome.good and not tables.needed_spark, outcome.told()
    return sorted((row["id"], row["at"]) for row in tables.rows_of(NAME))


@pytest.fixture(params=["parquet", "delta"])
def home(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    """A table that has A1 as JSON, A2 as text, A3 in both forms, and numbers."""
    world = World(decodes=True)
    world.tables = tables = FileTables(request.param, tmp_path, world.home.log)
    case = ValueCase(0, "airbyte", request.param, "hard", {"id": Column("text")})
    with ExitStack() as stack:
        BEFORE(stack)
        run(world, tables, case, STRING, ('"A2"', 1), ('"A3"', 1), ('"5"', 1))
        left = run(world, tables, case, UNION, ('"A1"', 2), ('"A3"', 2), ("6", 2))
        assert left == [('"A1"', 2), ('"A3"', 2), ("5", 1), ("6", 2), ("A2", 1), ("A3", 1)]
    return world, tables, case


SENT = (('"A1"', 3), ('"A2"', 3), ('"A3"', 3))


def test_L9_text_again(home: Any) -> None:
    found = run(*home, STRING, *SENT, ('"5"', 3), ('"6"', 3))
    assert found == [("5", 3), ("6", 3), ("A1", 3), ("A2", 3), ("A3", 3)]
    assert run(*home, STRING, *SENT, ('"6"', 4)) == [*found[:1], ("6", 4), *found[2:]]


def test_L9_a_union_still(home: Any) -> None:
    """The number 5 is the text 5, as both stand in the table."""
    found = run(*home, UNION, *SENT, ("5", 3), ("6", 3))
    assert found == [('"A1"', 3), ('"A2"', 3), ('"A3"', 3), ("5", 3), ("6", 3)]
