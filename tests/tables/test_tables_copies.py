"""L3 on real tables: a load that finds its number taken by another home's, or its predecessor gone,
is an error and changes nothing; a repeated load is known by its token. One scenario a format."""

import shutil
import threading
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tasks_here import LOCAL, by_spark

from penstock.errors import PenstockError
from penstock.tables import conflicts
from penstock.tables.contract import LoadResult, TableAhead, TableBehind, TableLoad, TableName
from penstock.tables.delta import tables as delta
from penstock.tables.formats import open_table

pytestmark = pytest.mark.spark


@pytest.fixture(params=["parquet", "delta"])
def tables(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    return open_table(request.param, str(tmp_path / "lake é [x] +"))


def given(load: TableLoad, token: str, follows: int | None) -> TableLoad:
    """As the ledger of this version writes it down."""
    inner = msgspec.structs.replace(load.load, token=token, follows=follows)
    return msgspec.structs.replace(load, load=inner)


def ids(tables: Any, spark: Any, table: str = "t") -> list[int]:
    found = spark.read.format(tables.name)
    if tables.name == "parquet":
        from penstock.tables.frame.load_frame import literal_path

        rows = found.load(literal_path(tables.location(TableName(None, table))))
    else:
        rows = found.load(tables.location(TableName(None, table)))
    return sorted(row.id for row in rows.select("id").collect())


def test_L3_copies_and_lost_tables_are_told(tables: Any, spark: Any, loads: Any) -> None:
    def one(number: int, token: str, follows: int | None, mode: str = "append") -> Any:
        rows = [{"id": number, "v": token}]
        load = given(loads.load(number, rows, mode=mode), token, follows)
        return tables.commit(spark, LOCAL, [load])[0]

    assert one(1, "a", 0) == LoadResult(1)
    assert one(2, "b", 1) == LoadResult(1)
    assert one(2, "b", 1) == LoadResult(0, repeated=True)
    for number, token, follows in ((2, "x", 1), (1, "a", 0), (4, "x", 1), (2, "x", None)):
        outcome = one(number, token, follows)
        assert isinstance(outcome, TableAhead) and outcome.number == 2, (
            number,
            token,
            follows,
            outcome,
        )
        outcome = one(number, token, follows, "append_dedup")
        assert isinstance(outcome, TableAhead), (number, token, follows, outcome)
    outcome = one(5, "x", 4)
    assert isinstance(outcome, TableBehind) and outcome.number == 2
    assert ids(tables, spark) == [1, 2]
    adopted = one(5, "c", None, "append_dedup")
    if tables.name == "parquet":
        adopted = by_spark(adopted, "several rows of a key")
    assert adopted == LoadResult(1)
    assert one(6, "d", 5) == LoadResult(1)
    if tables.name == "delta":  # a table of an earlier version, or one whose history was cleaned up
        log = Path(tables.location(TableName(None, "t")), "_delta_log")
        for entry in log.glob("*.json"):
            lines = entry.read_text().splitlines()
            kept = [x for x in lines if '"commitInfo"' not in x]
            entry.write_text("\n".join(kept))
        for checksum in log.glob("*.crc"):
            checksum.unlink()
        assert isinstance(one(8, "x", 7), TableBehind)
        assert one(7, "e", 6) == LoadResult(1)
        spark.sql(f"RESTORE TABLE delta.`{log.parent}` TO VERSION AS OF 1").collect()
        outcome = one(8, "f", 7)
        assert isinstance(outcome, TableBehind) and "rolled back" in outcome.message
    shutil.rmtree(tables.location(TableName(None, "t")))
    assert isinstance(one(9, "f", 7), TableBehind)
    assert one(9, "g", None) == LoadResult(1)
    assert ids(tables, spark) == [9]


def test_L3_writers_of_one_delta_table_wait_for_each_other(
    spark: Any, loads: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two pipelines create one table and go on in it at the same time: what got in the way of each
    other is tried again under the same number."""
    monkeypatch.setattr(delta, "_write_lock", nullcontext())  # which other processes do not know
    tables = open_table("delta", str(tmp_path / "lake"))
    together = threading.Barrier(2)
    outcomes: dict[str, list[Any]] = {"a": [], "b": []}
    work = {
        key: [
            given(loads.load(n, [{"id": n, "v": key}], key=key, mode=mode), f"{key}{n}", n - 1)
            for n in range(1, 4)
        ]
        for key, mode in (("a", "append"), ("b", "append_dedup"))
    }

    def write(key: str) -> None:
        session = spark.newSession()  # settings of its own
        for load in work[key]:
            together.wait(60)
            outcomes[key] += tables.commit(session, LOCAL, [load])

    threads = [threading.Thread(target=write, args=(key,)) for key in work]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert all(
        isinstance(x, LoadResult) and not x.repeated for its in outcomes.values() for x in its
    )
    assert len(outcomes["a"]) == len(outcomes["b"]) == 3
    again = [tables.commit(spark, LOCAL, [its[-1]])[0] for its in work.values()]
    assert again == [LoadResult(0, repeated=True)] * 2


def test_L3_a_conflict_is_told_in_a_line(
    spark: Any, loads: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tables = open_table("delta", str(tmp_path / "lake"))
    real, tries = delta._LoadCommit._write, []

    def held_up(self: Any, *args: Any, **more: Any) -> Any:
        tries.append(1)
        if len(tries) == 1:
            raise RuntimeError(
                "io.delta.exceptions.ProtocolChangedException: ...\n\tat x.y(Z.java)"
            )
        return real(self, *args, **more)

    monkeypatch.setattr(delta._LoadCommit, "_write", held_up)
    load = given(loads.load(1, [{"id": 1, "v": "a"}]), "a", 0)
    (outcome,) = tables.commit(spark, LOCAL, [load])
    assert isinstance(outcome, LoadResult) and outcome.written == 1
    assert len(outcome.notes) == 1 and "try 2" in outcome.notes[0]

    def never(self: Any, *args: Any, **more: Any) -> Any:
        raise RuntimeError("[DELTA_CONCURRENT_APPEND.WITHOUT_HINT] ConcurrentAppendException ...")

    monkeypatch.setattr(delta._LoadCommit, "_write", never)
    monkeypatch.setattr(conflicts.time, "sleep", lambda seconds: None)
    (failed,) = tables.commit(spark, LOCAL, [given(loads.load(2, [{"id": 2}]), "b", 1)])
    assert isinstance(failed, PenstockError) and failed.code == "destination.conflict"
    assert "\n" not in failed.message and "Exception" not in failed.message
