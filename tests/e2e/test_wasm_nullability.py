"""Nullability that frames declare and that holds is kept to a destination that compares it with its
table, as v4's Postgres destination does (L9)."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pipelines import NAME
from wasm_ends import APPEND, REPLACE, UPSERT, Ends, Heard, Peer, obedient
from wasm_sites import MANIFEST, StageEvent, component

from penstock.model.catalog import StreamId

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

FATAL = {"category": 7, "retryable": False, "safe": False}  # a schema error


class Tables:
    """What v4's Postgres destination makes of frames: a table with NOT NULL where the first frame
    says so, its primary key, and for a column that arrives nullable later DROP NOT NULL, which
    Postgres refuses for a column of the primary key."""

    def __init__(self) -> None:
        self.not_null: dict[str, set[str]] = {}
        self.key: dict[str, list[str]] = {}
        self.dropped: list[tuple[str, str]] = []
        self.refused: list[str] = []
        self.schemas: dict[str, list[pa.Schema]] = {}
        self._streams: dict[int, str] = {}

    def __call__(self, heard: Heard) -> str:
        if heard.kind == "B":
            context = json.loads(heard.body)
            stream = self._streams[heard.run] = context["stream_name"]
            mode = context["write_mode"]
            self.key.setdefault(stream, mode.get("primary_key") or [])
            if mode["mode"] == "replace":
                self.not_null.pop(stream, None)
        if heard.kind != "F":
            return "k"
        stream = self._streams[heard.run]
        frame = pa.ipc.open_stream(heard.body).read_all()
        frame.validate(full=True)
        self.schemas.setdefault(stream, []).append(frame.schema)
        key = self.key[stream]
        for field in frame.schema:
            assert field.nullable or frame.column(field.name).null_count == 0, field
        if stream not in self.not_null:
            told = {f.name for f in frame.schema if not f.nullable}
            self.not_null[stream] = told | {*key}
        for field in frame.schema:
            if not field.nullable or field.name not in self.not_null[stream]:
                continue
            if field.name in key:
                self.refused.append(f'column "{field.name}" is in a primary key')
                return "f"
            self.not_null[stream].remove(field.name)
            self.dropped.append((stream, field.name))
        return "c"

    def nullable(self, stream: str = "s0") -> list[set[str]]:
        """Of each frame, in order."""
        return [{f.name for f in s if f.nullable} for s in self.schemas.get(stream, [])]


def frame(first: int, last: int, *, holes: bool = False, declared: bool = True) -> pa.Table:
    """``seq``, ``name``, ``note``: the first two are declared non-null, where ``declared``.
    ``holes``: the last ``name`` is null all the same, and not declared otherwise."""
    seqs = list(range(first, last + 1))
    names: list[str | None] = [f"N{n}" for n in seqs]
    if holes:
        names[-1] = None
    fields = [
        pa.field("seq", pa.int64(), nullable=not declared),
        pa.field("name", pa.string(), nullable=not declared or holes),
        pa.field("note", pa.string()),
    ]
    return pa.table([seqs, names, ["x"] * len(seqs)], schema=pa.schema(fields))


COLUMNS = [("seq", "Int64"), ("name", "Utf8"), ("note", "Utf8")]


@pytest.fixture
def ends(tmp_path: Path, shared_spark: "SparkSession") -> Iterator[Ends]:
    del shared_spark
    yield Ends(tmp_path / "ends", binary=component(MANIFEST), to=obedient())


def script(*frames: pa.Table) -> dict[str, Any]:
    told = StageEvent()
    commands: list[str] = []
    for table in frames:
        commands += [told.frame(table), f"at {table.column('seq')[-1].as_py() or 0}"]
    return told.config({"s0": commands}, {"s0": COLUMNS})


@pytest.mark.parametrize("declared", [True, False], ids=["declared", "not declared"])
def test_l9_an_upsert_runs_twice_where_the_key_must_not_be_null(ends: Ends, declared: bool) -> None:
    """The first run makes the table, the second compares. A key is non-null whatever frames say."""
    tables = Tables()
    with Peer(tables) as peer:
        for first in (1, 11):
            ran = ends.sync(
                script(frame(first, first + 9, declared=declared)), {**peer.config, **FATAL}, UPSERT
            )
            assert ran.exit_code == 0, (ran.error, tables.refused)
            assert ran.counts("s0") == ("complete", 10, 10, 0)
    assert tables.refused == [] and tables.dropped == []
    wanted = {"note"} if declared else {"name", "note"}
    assert tables.nullable() == [wanted, wanted], "the same in every run"
    with ends.store() as store:
        versions = store.schemas(NAME, StreamId(None, "s0"))
    assert len(versions) <= 2, "the second run makes no new one"


def test_l9_a_column_that_may_be_null_from_now_on_is_told_once(ends: Ends) -> None:
    """A change that the source made: rows before it keep what was proved of them."""
    tables = Tables()
    with Peer(tables) as peer:
        ran = ends.sync(
            script(frame(1, 10), frame(11, 20, holes=True), frame(21, 30)),
            {**peer.config, **FATAL},
            UPSERT,
        )
        assert ran.exit_code == 0, (ran.error, tables.refused)
        assert ran.counts("s0") == ("complete", 30, 30, 0)
    assert tables.dropped == [("s0", "name")]
    told = tables.nullable()
    assert told[0] == {"note"} and told[-1] == {"name", "note"}
    assert told == sorted(told, key=len), "and it stays so for this run"


def test_l9_a_frame_that_denies_its_nulls_is_not_believed(ends: Ends) -> None:
    lie = frame(1, 4, holes=True)
    fields = [f.with_nullable(f.name == "note") for f in lie.schema]
    tables = Tables()
    with Peer(tables) as peer:
        lie = pa.Table.from_arrays(lie.columns, schema=pa.schema(fields))
        ran = ends.sync(script(lie), {**peer.config, **FATAL}, APPEND)
        assert ran.exit_code == 0, ran.error
        assert ran.counts("s0") == ("complete", 4, 4, 0), "no record is lost for it"
    assert tables.nullable() == [{"name", "note"}]


def test_l9_a_null_key_is_a_reject_and_the_rest_is_upserted(ends: Ends) -> None:
    rows = frame(1, 5, declared=False)
    seqs = pa.array([1, None, 3, 4, 5], pa.int64())
    tables = Tables()
    with Peer(tables) as peer:
        ran = ends.sync(script(rows.set_column(0, "seq", seqs)), {**peer.config, **FATAL}, UPSERT)
        assert ran.exit_code == 0, (ran.error, tables.refused)
        assert ran.counts("s0") == ("complete", 5, 4, 1)
    (reject,) = ends.rejects()
    assert (reject["reason"], reject["field"]) == ("primary key is null", "seq")
    assert json.loads(reject["bytes"]) == {"seq": None, "name": "N2", "note": "x"}


def test_l9_a_replaced_table_and_what_a_query_leaves_alone(ends: Ends) -> None:
    """What DataFusion takes over as it is keeps it, and what it knows of its own columns."""
    tables = Tables()
    query = "SELECT seq, upper(name) AS name, note, 1 AS one FROM input"
    with Peer(tables) as peer:
        ran = ends.sync(
            script(frame(1, 5)),
            {**peer.config, **FATAL},
            REPLACE,
            transforms=[{"use": "transform-sql", "config": {"query": query}}],
        )
        assert ran.exit_code == 0, ran.error
    assert tables.nullable() == [{"name", "note"}]
