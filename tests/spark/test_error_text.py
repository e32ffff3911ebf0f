"""What a failure of a table's write is called, and that its words are plain."""

import os
from pathlib import Path

import deltalake
import pyarrow as pa
import pytest
from py4j.protocol import Py4JNetworkError

from penstock.spark.error_text import silent, table_failure


def test_the_words_of_delta_rs_have_no_colours_and_are_not_sparks(tmp_path: Path) -> None:
    deltalake.write_deltalake(str(tmp_path), pa.table({"id": [1]}))
    table = deltalake.DeltaTable(str(tmp_path))
    for file in tmp_path.glob("*.parquet"):
        file.unlink()
    with pytest.raises(Exception, match="\x1b") as caught:
        table.to_pyarrow_table()
    error = table_failure(caught.value, "orders")
    assert error.code == "destination.write_failed"
    assert "\x1b" not in error.message and "\n" not in error.message
    assert "Spark" not in error.message and "No such file" in error.message


def test_a_data_file_that_is_gone_is_named_with_the_ways_out(tmp_path: Path) -> None:
    """The hint spoke of storage without hard links, and that nothing is lost."""
    with pytest.raises(FileNotFoundError) as caught:
        pa.memory_map(str(tmp_path / "gone.parquet"))
    error = table_failure(caught.value, "orders")
    assert error.code == "destination.write_failed" and "gone.parquet" in error.message
    assert "--recreate" in str(error.hint) and "hard links" not in str(error.hint)


def test_a_hard_link_that_cannot_be_made_is_no_failure_of_spark(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="not permitted") as caught:
        (tmp_path / "link").hardlink_to(tmp_path)  # a folder: no file system links one
    error = table_failure(caught.value, "orders")
    assert error.code == "destination.write_failed" and "hard links" in str(error.hint)
    assert "Spark" not in error.message and str(tmp_path) in error.message


def test_a_tables_folder_on_another_file_system_is_named_as_the_cause(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(OSError, match="cross-device") as caught:
        os.rename(tmp_path / "file", "/proc/file")
    hint = str(table_failure(caught.value, "orders").hint)
    assert "another file system" in hint and "one file system" in hint
    assert "nothing is lost" in hint


@pytest.mark.parametrize(
    "failure",
    [
        ConnectionRefusedError(111, "Connection refused"),
        ConnectionResetError(104, "Connection reset by peer"),
        Py4JNetworkError("Answer from Java side is empty"),
    ],
)
def test_a_call_that_java_did_not_take_is_its_death(failure: Exception) -> None:
    error = table_failure(failure, "t")
    assert (error.code, error.exit_code) == ("spark.java_died", 5)
    assert error.message.startswith("Spark's Java process does not answer: ")


def test_another_failure_is_not() -> None:
    assert silent(OSError(28, "No space left on device")) is None
    assert silent(ValueError("x")) is None
    assert table_failure(ValueError("x"), "t").code == "destination.write_failed"
