"""What a plan says of the columns that only the table has: kept, or gone with the rows."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from penstock.api.answers import Plan
from penstock.api.table_changes import table_changes
from penstock.config.load import parse_pipeline
from penstock.model.types import DataType, Field, Kind, RowSchema
from penstock.tables.history.columns import history_fields
from penstock.tables.parquet.folders import Marker, write_marker


def change(tmp_path: Path, **stream: Any) -> dict[str, str]:
    folder = tmp_path / "users"
    folder.mkdir()
    data = tuple(Field(n, n, DataType(Kind.integer)) for n in ("id", "old"))
    write_marker(folder, Marker((*data, *history_fields(RowSchema(data, 1), ("id",)))))
    given: dict[str, Any] = dict.fromkeys(f.name for f in msgspec.structs.fields(
        next(f.type for f in msgspec.structs.fields(Plan) if f.name == "streams").__args__[0]
    ))  # fmt: skip
    given |= {"name": "users", "table": str(folder), "sync_mode": "", "destination_sync_mode": ""}
    given |= {"mode_reason": "", "history": False, "replaces_table": False, "columns_known": True}
    given |= {"columns": [{"name": "id", "source": "id", "type": "integer"}], "loads": ""}
    given |= {"undeclared": "", "cursor_field": [], "primary_key": [], "hints": [], "lane": 0}
    answer: dict[str, Any] = {
        "pipeline": "p",
        "streams": [{**given, "retry_rejected": 0, **stream}],
    }
    answer |= {"permissions": {}, "limits": {}, "guarantee": "", "notes": [], "problems": []}
    pipeline = parse_pipeline(
        "pipeline: p\nsource: { use: airbyte:source-faker }\n"
        f"destination: {{ use: 'parquet:{tmp_path}' }}\n",
        {},
    )
    (found,) = table_changes(pipeline, msgspec.convert(answer, Plan))
    return {c.name: c.change for c in found.columns}


@pytest.mark.parametrize(("replaces", "word"), [(False, "absent"), (True, "dropped")])
def test_a_column_that_no_run_brings_is_kept_or_goes(
    tmp_path: Path, replaces: bool, word: str
) -> None:
    found = change(tmp_path, replaces_table=replaces)
    assert found["id"] == "same" and found["old"] == word


def test_the_columns_of_versions_are_penstock_s_own(tmp_path: Path) -> None:
    assert change(tmp_path, history=True) == {"id": "same", "old": "absent"}
