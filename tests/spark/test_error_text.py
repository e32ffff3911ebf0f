"""What a failure of a table's write is called, and that its words are plain."""

from pathlib import Path

import deltalake
import pyarrow as pa
import pytest
from py4j.protocol import Py4JNetworkError

from penstock.spark.error_text import table_failure


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


def test_a_hard_link_that_cannot_be_made_is_no_failure_of_spark(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="not permitted") as caught:
        (tmp_path / "link").hardlink_to(tmp_path)  # a folder: no file system links one
    error = table_failure(caught.value, "orders")
    assert error.code == "destination.write_failed" and "hard links" in str(error.hint)
    assert "Spark" not in error.message and str(tmp_path) in error.message


@pytest.mark.parametrize(
    "failure", [Py4JNetworkError("Answer from Java side is empty"), ConnectionRefusedError(111)]
)
def test_the_death_of_java_stays_one_of_spark(failure: Exception) -> None:
    assert table_failure(failure, "orders").code == "destination.spark_failed"
