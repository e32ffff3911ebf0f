"""Local Delta tables in folders whose names deltalake takes for a URL: no other folder's table is
read in their place."""

import shutil
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from penstock.api.table_rows import first_rows
from penstock.errors import ConfigError
from penstock.tables.delta.files import columns_in, is_misread, last_number_in


def test_a_folder_is_not_taken_for_another(tmp_path: Path) -> None:
    write_deltalake(str(tmp_path / "a b"), pa.table({"other": [1, 2]}))
    odd = tmp_path / "a%20b"
    write_deltalake(str(tmp_path / "plain"), pa.table({"mine": [1]}))
    shutil.copytree(tmp_path / "plain", odd)
    assert [f.name for f in DeltaTable(str(odd)).schema().fields] == ["other"]  # deltalake's fault
    assert columns_in(odd) is None and last_number_in(odd, "key") is None
    with pytest.raises(ConfigError) as refused:
        first_rows("delta", str(odd), 5)
    assert refused.value.code == "table.unreadable"


@pytest.mark.parametrize("name", ["a b", "a#b", "a*?{b}", "a'\"`b", "\u00fc", "a%", "a%zz", "a:b"])
def test_other_names_are_deltalakes(tmp_path: Path, name: str) -> None:
    folder = tmp_path / name
    write_deltalake(str(folder), pa.table({"mine": [1]}))
    assert not is_misread(folder)
    assert [f.name for f in columns_in(folder) or ()] == ["mine"]
    assert first_rows("delta", str(folder), 5)["rows"] == [["1"]]


@pytest.mark.parametrize("name", ["a\\b", "a%2Fb", "a\tb"])
def test_what_deltalake_cannot_name_is_sparks(tmp_path: Path, name: str) -> None:
    assert is_misread(tmp_path / name / "table")
