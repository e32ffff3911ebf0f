"""``penstock.read``: rows without a table, exactly as a sync would have put them into one, read
from files that no connector stands behind (docs/python.md)."""

import gc
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import penstock
from penstock.api.reading import joined
from penstock.errors import ConfigError, Locked, SourceError

if TYPE_CHECKING:
    from conftest import Api

pytestmark = pytest.mark.spark
ONE = {"streams": 1, "records": 20}


def read(api: "Api", config: dict[str, Any] | None = None, **given: Any) -> penstock.Read:
    told: dict[str, Any] = {"config": config or ONE, "home": api.home, **given}
    return penstock.read(api.source, "s0", **told)


def news(api: "Api", records: int, **given: Any) -> penstock.Read:
    config = {"streams": 1, "records": records}
    return read(api, config, incremental=True, name="news", **given)


def seqs(found: penstock.Read) -> list[int]:
    return sorted(found.arrow()["seq"].to_pylist())


def left(api: "Api") -> list[Path]:
    return sorted((api.home / "reads" / "once").glob("*"))


def test_every_form_has_the_rows_of_a_sync(spark_api: "Api") -> None:
    with read(spark_api) as users:
        arrow = users.arrow()
        assert arrow.num_rows == 20 and users.report.streams[0].committed == 20
        assert users.pandas()["seq"].tolist() == arrow["seq"].to_pylist()
        assert users.polars().to_arrow()["name"].to_pylist() == arrow["name"].to_pylist()
        frame = users.spark()
        assert frame.columns == arrow.column_names and frame.count() == 20
        assert frame.union(frame).count() == 40  # files: no connector is asked again
        assert users.rejects() == []
        spark_api.run(ONE, mode=None, destination_sync_mode="overwrite", sync_mode="full_refresh")
        table = frame.sparkSession.read.parquet(str(spark_api.folder / "lake" / "s0"))
        assert table.schema == frame.schema
        names = [n for n in frame.columns if not n.startswith("_airbyte")]
        assert table.select(names).exceptAll(frame.select(names)).isEmpty()
    assert left(spark_api) == []


def test_files_whose_columns_have_another_order_are_one_table(tmp_path: Path) -> None:
    first, second = pa.table({"a": [1], "b": ["x"]}), pa.table({"b": ["y"], "a": [2]})
    files = [str(tmp_path / name) for name in ("1.parquet", "2.parquet")]
    for table, file in zip((first, second), files, strict=True):
        pq.write_table(table, file)
    assert joined(files).to_pydict() == {"a": [1, 2], "b": ["x", "y"]}


def test_a_library_that_is_missing_is_named(
    spark_api: "Api", monkeypatch: pytest.MonkeyPatch
) -> None:
    with read(spark_api) as users:
        monkeypatch.setattr("penstock.api.reading.find_spec", lambda name: None)
        for form in (users.pandas, users.polars):
            with pytest.raises(ConfigError) as missing:
                form()
            assert missing.value.code == "read.library"


def test_a_stream_without_rows_has_its_columns(spark_api: "Api") -> None:
    with read(spark_api, {"streams": 1, "records": 0}) as users:
        assert users.arrow().num_rows == 0 and "updated_at" in users.arrow().column_names
        assert users.spark().columns == users.arrow().column_names


def test_a_closed_object_says_so_and_its_files_are_gone(spark_api: "Api") -> None:
    users = read(spark_api)
    assert len(left(spark_api)) == 1 and not users.closed
    users.close()
    users.close()
    assert users.closed and left(spark_api) == [] and "closed" in repr(users)
    forms = (users.arrow, users.pandas, users.polars, users.spark, users.rejects, users.__enter__)
    for form in forms:
        with pytest.raises(ConfigError) as closed:
            form()
        assert closed.value.code == "read.closed"
        assert any("use the rows before close()" in note for note in closed.value.__notes__)


def test_an_object_that_nobody_has_leaves_nothing(spark_api: "Api") -> None:
    users = read(spark_api)
    del users
    gc.collect()
    assert left(spark_api) == []


def test_a_stream_that_is_not_there(spark_api: "Api") -> None:
    with pytest.raises(ConfigError) as unknown:
        penstock.read(spark_api.source, "s00", config=ONE, home=spark_api.home)
    assert "s00" in unknown.value.problems[0]
    assert "s00" in str(unknown.value)
    folder = left(spark_api)[0]  # its log stays for a while
    os.utime(folder, (time.time() - 100,) * 2)
    read(spark_api).close()
    assert left(spark_api) == []


def test_a_source_that_fails_gives_no_rows(spark_api: "Api") -> None:
    with pytest.raises(SourceError) as failed:
        read(spark_api, {**ONE, "crash_after": 10, "crash_trace": True})
    assert failed.value.report.status == "failed"


def test_an_incremental_read_brings_what_is_new(spark_api: "Api") -> None:
    with news(spark_api, 20) as first:
        assert seqs(first) == list(range(1, 21))
        with pytest.raises(Locked):
            news(spark_api, 20)
    with news(spark_api, 25) as second:
        assert seqs(second) == list(range(21, 26))
    with news(spark_api, 25) as third:
        assert seqs(third) == []
    with pytest.raises(ConfigError) as nameless:
        penstock.read(spark_api.source, "s0", incremental=True, home=spark_api.home)
    assert nameless.value.code == "read.name"


def test_rows_that_were_not_taken_come_again(spark_api: "Api") -> None:
    """The state is saved with the rows; they stay until the program says that it has them."""
    with pytest.raises(ZeroDivisionError), news(spark_api, 20) as first:
        _ = 1 / (len(seqs(first)) - 20)
    dropped = news(spark_api, 22)
    assert seqs(dropped) == list(range(1, 23))
    del dropped
    gc.collect()
    kept = news(spark_api, 24)
    kept.close(keep=True)
    with news(spark_api, 25) as last:
        assert seqs(last) == list(range(1, 26))
    with news(spark_api, 26) as after:
        assert seqs(after) == [26]


def test_a_killed_program_loses_no_row(spark_api: "Api") -> None:
    """SIGKILL while the object is open: the state is saved, and the rows come with the next."""
    code = (
        "import json, os, signal, sys, penstock\n"
        "source, home = sys.argv[1:]\n"
        "found = penstock.read(source, 's0', config={'streams': 1, 'records': 20}, home=home,\n"
        "                      incremental=True, name='news')\n"
        "print(found.arrow().num_rows, flush=True)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    command = [sys.executable, "-c", code, spark_api.source, str(spark_api.home)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert (done.stdout, done.returncode) == ("20\n", -9), done.stderr
    with news(spark_api, 23) as found:
        assert seqs(found) == list(range(1, 24))
    assert found.report.streams[0].read == 3
