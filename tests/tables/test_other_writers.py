"""Files that other writers left in a table: a load into one that delta-rs rewrote makes the same
rows as into one that it did not. It leaves views of texts and bytes in its files, which most
functions of Arrow do not take."""

import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake
from merge_cases import CASES, dedup, wide, with_cursor
from tasks_here import LOCAL
from test_history_tables import numbered as of_history
from test_tables_merge_tasks import put

from penstock.tables.contract import TableName
from penstock.tables.delta.tables import DeltaTables
from penstock.tables.files.old_files import opened

T = TableName(None, "t")


def made(place: Path, loads: Any, case: str, *, rewritten: bool, seed: int) -> list[str]:
    """Loads random rows twice; between, delta-rs may write all files again. Returns the rows."""
    tables, chance = DeltaTables(str(place)), random.Random(seed)
    columns, _, how = CASES["soft" if case == "soft" else "cursor"]
    how = {**how, "cursor": ("t",)} if case == "times" else how
    row = with_cursor if case == "soft" else wide
    for number in (1, 2, 3):
        rows = [{**row(chance), "gone": None, "k": n % 7} for n in range(12)]
        load = dedup(loads, number, rows, columns, **how)
        put(tables, of_history(load) if case == "history" else load, LOCAL)
        if rewritten and number < 3:
            table = DeltaTable(tables.location(T))
            table.update(updates={"name": "name"})
            kinds = [f.type for f in pq.read_schema(table.file_uris()[0])]
            assert pa.string_view() in kinds, "delta-rs writes plain texts now: is this needed?"
    found = DeltaTable(tables.location(T)).to_pyarrow_table()
    shown = found.drop_columns(
        [n for n in found.column_names if n.startswith("_") and not n.endswith("_AT")]
    )
    return sorted(map(repr, shown.to_pylist()))


@pytest.mark.parametrize("case", ["upsert", "times", "soft", "history"])
@pytest.mark.parametrize("seed", [1, 2])
def test_l9_a_table_that_delta_rs_rewrote_is_merged_as_before(
    tmp_path: Path, loads: Any, case: str, seed: int
) -> None:
    plain = made(tmp_path / "plain", loads, case, rewritten=False, seed=seed)
    assert made(tmp_path / "touched", loads, case, rewritten=True, seed=seed) == plain
    assert len(plain) > 7


def test_dictionaries_and_views_are_read_as_plain_columns(tmp_path: Path) -> None:
    rows = pa.table({
        "d": pa.array(["x", "y", None]).dictionary_encode(),
        "n": pa.array([["x"], None, []], pa.list_(pa.string())),
    })  # fmt: skip
    pq.write_table(rows, tmp_path / "f.parquet")
    assert pa.types.is_dictionary(pq.read_schema(tmp_path / "f.parquet").field("d").type)
    with opened(tmp_path / "f.parquet") as file:
        assert file.schema_arrow.field("d").type == pa.string()
        found = file.read()
        assert found.to_pylist() == rows.to_pylist() and found["d"].type == pa.string()
        (batch,) = file.iter_batches()
        assert batch.to_pylist() == rows.to_pylist() and batch["d"].type == pa.string()
    # of delta-rs, also inside lists and structs
    place = str(tmp_path / "t")
    deep = pa.table({"id": [1, 2], "n": [[{"a": "q", "b": [b"1"]}], None]})
    write_deltalake(place, deep)
    DeltaTable(place).delete("id = 2")
    (path,) = DeltaTable(place).file_uris()
    assert "view" in str(pq.read_schema(path))
    with opened(path) as file:
        assert "view" not in str(file.schema_arrow)
        assert file.read().to_pylist() == deep.to_pylist()[:1]
