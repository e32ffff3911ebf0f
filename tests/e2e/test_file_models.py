"""CSV, TSV and JSON files as models (issue 35, B3; L8, L9): RFC 4180, broken lines are rejects, a
value that does not fit is an entry, and a column keeps the type that an earlier run gave it."""

import bz2
import datetime
import gzip
import json
import re
import sqlite3
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pipelines import Ran, Site

from penstock.errors import ConfigError, SourceError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

UTC = datetime.UTC


class FileSite(Site):
    """A pipeline from a file that tests rewrite."""

    def give(self, name: str, text: str | bytes) -> None:
        data = text.encode() if isinstance(text, str) else text
        (self.folder / name).write_bytes(data)

    def read(self, name: str, **parts: Any) -> Ran:
        return self.run(use=f"spark:{self.folder / name}", **parts)

    def found(self, table: str, *order: str) -> list[tuple[Any, ...]]:
        """The rows of a table, without the metadata columns."""
        rows = self.rows(table, *order)
        return [tuple(v for k, v in row.items() if not k.startswith("_")) for row in rows]

    def entries(self, table: str, order: str) -> list[list[tuple[str, str]]]:
        """The change lists of the rows: (field, change)."""
        lists: list[list[tuple[str, str]]] = []
        for row in self.rows(table, order):
            meta = next(v for k, v in row.items() if k.startswith("_") and k.endswith("meta"))
            lists.append([(c["field"], c["change"]) for c in meta["changes"]])
        return lists


Make = Callable[..., FileSite]


@pytest.fixture
def files(tmp_path: Path, shared_spark: "SparkSession") -> Make:
    del shared_spark
    made: list[FileSite] = []

    def make(format: str = "parquet") -> FileSite:
        made.append(FileSite(tmp_path / f"files-{len(made)}", format))
        return made[-1]

    return make


RFC = (
    'id,text,zip,n,day,at,flag,price,big\r\n'
    '1,"he said ""no"", twice",01234,7,2026-01-02,2026-01-02T03:04:05Z,true,1.50,'
    "12345678901234567890\r\n"
    '2,"ends with \\",00007,,2026-01-03,2026-01-02 03:04:05.000001,FALSE,2,1\r\n'
    '3,"two\r\nlines",12345,8,,,,,\r\n'
    '4,"",12345,9,,,true,,\r\n'
    "5,,12345,10,,,true,,\r\n"
)  # fmt: skip


def test_B3_rfc_4180_every_value_is_the_files(files: Make) -> None:
    here = files()
    here.give("people.csv", RFC)
    ran = here.read("people.csv")
    assert ran.counts("people") == ("complete", 5, 5, 0), ran.error
    rows = here.rows("people", "id")
    assert [r["text"] for r in rows] == [
        'he said "no", twice', "ends with \\", "two\r\nlines", "", None,
    ]  # fmt: skip
    assert [r["zip"] for r in rows] == ["01234", "00007", "12345", "12345", "12345"]
    assert [r["n"] for r in rows] == [7, None, 8, 9, 10]
    assert rows[0]["day"] == datetime.date(2026, 1, 2)
    assert rows[1]["at"].astimezone(UTC) == datetime.datetime(2026, 1, 2, 3, 4, 5, 1, UTC)
    assert [r["flag"] for r in rows[:3]] == [True, False, None]
    assert (rows[0]["price"], int(rows[0]["big"])) == (1.5, 12345678901234567890)
    assert not here.rejects() and here.entries("people", "id") == [[]] * 5


def test_B3_a_line_break_in_a_quoted_field_of_tsv_is_one_row(files: Make) -> None:
    here = files()
    here.give("people.tsv", 'id\tname\n1\t"Ann\nBo\tCy"\n2\tsays: \\t\n')
    assert here.read("people.tsv").counts("people") == ("complete", 2, 2, 0)
    assert here.found("people", "id") == [(1, "Ann\nBo\tCy"), (2, "says: \\t")]


def test_B3_broken_lines_are_rejects_with_the_line(files: Make) -> None:
    """L8: an extra field, a missing one, text after a quote, a quote that stays open, no UTF-8."""
    here = files()
    lines = [b"1,a", b"2,b,extra", b"3", b'4,"d"x', b'5,"open', b"6,f", b"7,\xff", b"8,h"]
    here.give("people.csv", b"id,name\n" + b"\n".join(lines) + b"\n")
    ran = here.read("people.csv")
    assert ran.counts("people") == ("complete", 8, 3, 5), ran.error
    assert here.found("people", "id") == [(1, "a"), (6, "f"), (8, "h")]
    rejects = {r["bytes"] if isinstance(r["bytes"], str) else bytes(r["bytes"]).decode("latin-1"):
               r["reason"] for r in here.rejects()}  # fmt: skip
    assert len(rejects) == 5
    assert rejects["2,b,extra"].startswith("people.csv: 3 fields") and "1 field" in rejects["3"]
    assert "quote" in rejects['4,"d"x'] and "quote" in rejects['5,"open']


def test_B3_a_broken_json_line_is_a_reject_and_no_row(files: Make) -> None:
    here = files()
    here.give("people.jsonl", '{"id": 1, "v": {"a": 1}}\n{"id": 2,\n[{"id": 3}]\n\n"text"\n')
    ran = here.read("people.jsonl")
    assert ran.counts("people") == ("complete", 4, 2, 2), ran.error
    assert here.found("people", "id") == [(1, {"a": 1}), (3, None)]
    assert sorted(r["bytes"] for r in here.rejects()) == ['"text"', '{"id": 2,']


def test_L6_files_without_a_header_replace_no_row(files: Make) -> None:
    """A file of no byte is one that is being written, and not one without rows: its header says
    that there are none. Where it replaces nothing, it is read as one."""
    here = files("delta")
    here.give("a.csv", "id,name\n1,Ann\n")
    assert here.read("a.csv").exit_code == 0
    here.give("a.csv", "")
    refused = here.read("a.csv")
    assert refused.exit_code != 0 and refused.error["code"] == "source.empty_model"
    assert here.found("a", "id") == [(1, "Ann")]
    assert here.read("a.csv", defaults={"mode": "append"}).exit_code == 0
    assert here.found("a", "id") == [(1, "Ann")]
    here.give("a.csv", "id,name\n")
    assert here.read("a.csv", defaults={"mode": "overwrite"}).exit_code == 0
    assert here.found("a", "id") == []
    here.give("a.csv", "id,name\n2,Bo\n")
    assert here.read("a.csv").exit_code == 0
    here.give("a.csv", "")
    assert here.read("a.csv", config={"allow_empty": True}).exit_code == 0
    assert here.found("a", "id") == []


def test_B3_L9_a_column_keeps_the_type_of_an_earlier_run(files: Make) -> None:
    here, name = files(), "parts.csv"

    def give(*rows: tuple[int, Any]) -> None:
        here.give(name, "id,v\n" + "".join(f"{i},{v}\n" for i, v in rows))

    give((1, 17), (2, 18))
    assert here.read(name).counts("parts") == ("complete", 2, 2, 0)
    give((1, 17), (2, "A-17"), (3, 19))
    ran = here.read(name)
    assert ran.counts("parts") == ("complete", 3, 3, 0), ran.error
    assert here.found("parts", "id") == [(1, 17), (2, None), (3, 19)]
    assert here.entries("parts", "id") == [[], [("v", "NULLED")], []]
    assert ran.noted("types: { v: string }"), ran.notes
    kept = here.read(name, streams=[{"name": "parts", "types": {"v": "string"}}])
    assert kept.counts("parts") == ("complete", 3, 3, 0), kept.error
    assert here.found("parts", "id") == [(1, "17"), (2, "A-17"), (3, "19")]


def test_B3_a_key_that_does_not_fit_is_a_reject(files: Make) -> None:
    here = files("delta")
    keyed = {"defaults": {"mode": "upsert", "primary_key": [["id"]]}}
    here.give("parts.csv", "id,v\n1,a\n2,b\n")
    assert here.read("parts.csv", **keyed).counts("parts") == ("complete", 2, 2, 0)
    here.give("parts.csv", "id,v\n1,a\nA-17,x\n007,y\n3,c\n")
    ran = here.read("parts.csv", **keyed)
    assert ran.stream("parts").rejected == 2, ran.error
    assert here.found("parts", "id") == [(1, "a"), (2, "b"), (3, "c")]
    assert {json.loads(r["bytes"])["id"] for r in here.rejects()} == {"A-17", "007"}
    assert ran.noted("types: { id: string }")


def test_B3_a_mirror_removes_nothing_while_lines_are_broken(files: Make) -> None:
    """L8: a row whose line is broken is not gone."""
    here = files("delta")
    mirror = {"defaults": {"mode": "mirror", "primary_key": [["id"]]}}
    here.give("parts.csv", "id,v\n1,a\n2,b\n3,c\n")
    here.read("parts.csv", **mirror)
    here.give("parts.csv", 'id,v\n1,a\n2,"b"x\n')
    ran = here.read("parts.csv", **mirror)
    assert ran.stream("parts").rejected == 1
    assert ran.noted("rows that are gone are not removed")
    assert left_in(here) == {1: "a", 2: "b", 3: "c"}
    here.give("parts.csv", "id,v\n1,a\n2,z\n")
    here.read("parts.csv", **mirror)
    assert left_in(here) == {1: "a", 2: "z"}


def left_in(here: FileSite) -> dict[int, str]:
    rows = here.rows("parts", "id")
    return {r["id"]: r["v"] for r in rows if r["_ab_cdc_deleted_at"] is None}


def test_B3_a_file_of_many_pieces_is_read_in_all_of_them(
    files: Make, shared_spark: "SparkSession", monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pieces of files, several files with their columns in another order, and one without rows."""
    here = files()
    name = "spark.sql.files.maxPartitionBytes"
    before = shared_spark.conf.get(name)
    here.give("day-1.csv", "id,text,n\n" + "".join(f"{i},t{i},{i}\n" for i in range(5000)))
    here.give("day-2.csv", "n,id\n" + "".join(f"{i},{i}\n" for i in range(5000, 5100)))
    here.give("day-3.csv", "id,n,text\n")
    here.give("day-4.csv", "")
    parts = {"config": {"stream": "days"}, "spark": {"conf": {name: "4096"}}}
    try:
        ran = here.read("day-*.csv", **parts)
        assert ran.counts("days") == ("complete", 5100, 5100, 0), ran.error
        here.give("day-3.csv", 'id,n,text\n5100,5100,"two\nlines"\n5101,5101,"x\n')
        again = here.read("day-*.csv", **parts)
        assert again.counts("days") == ("complete", 5102, 5101, 1), again.error
    finally:
        shared_spark.conf.set(name, str(before))
    rows = here.rows("days", "id")
    assert [(r["id"], r["n"]) for r in rows] == [(i, i) for i in range(5101)]
    assert rows[7]["text"] == "t7" and rows[5050]["text"] is None
    assert rows[5100]["text"] == "two\nlines"
    assert [r["bytes"] for r in here.rejects()] == ['5101,5101,"x']


def test_B3_tables_of_an_earlier_version_keep_their_types(files: Make) -> None:
    """That version kept no types of columns apart from the table's: 01234 was an integer to it."""
    here = files()
    here.give("parts.csv", "id,zip\n1,1234\n")
    here.read("parts.csv")
    with here.store() as store:
        forgotten = store.remembered("e2e")
    assert [kind for kinds in forgotten.types.values() for kind in kinds] == ["id", "zip"]
    forget_types(here)
    here.give("parts.csv", "id,zip\n1,01234\n2,99\n")
    ran = here.read("parts.csv")
    assert ran.counts("parts") == ("complete", 2, 2, 0), ran.error
    assert here.found("parts", "id") == [(1, None), (2, 99)]
    assert here.entries("parts", "id") == [[("zip", "NULLED")], []]


def test_B3_snapshots_of_an_earlier_version_hold(files: Make) -> None:
    """To that version small integers were INT: a mirror goes on, and sends what changed alone."""
    here = files("delta")
    mirror = {"defaults": {"mode": "mirror", "primary_key": [["id"]]}}
    here.give("parts.csv", "id,v\n1,a\n2,b\n3,c\n")
    here.read("parts.csv", **mirror)
    (columns,) = here.home.path.rglob("snapshots/**/changes.json")
    columns.write_text(columns.read_text().replace("bigint", "int"))
    forget_types(here)
    here.give("parts.csv", "id,v\n1,a\n2,z\n")
    ran = here.read("parts.csv", **mirror)
    assert ran.noted("rows 0 added, 1 changed, 1 removed, 1 as before"), ran.notes


def test_B3_an_entry_of_a_compared_row(files: Make) -> None:
    """Of JSON lines, whose column keeps its type as that of CSV does."""
    here, name = files("delta"), "parts.jsonl"
    upsert = {"defaults": {"mode": "upsert", "primary_key": [["id"]]}}

    def give(*rows: tuple[int, Any]) -> None:
        here.give(name, "\n".join(json.dumps({"id": i, "v": v}) for i, v in rows))

    give((1, 1), (2, 2))
    here.read(name, **upsert)
    give((1, 1), (2, "A"), (3, 3), (3, 4))
    ran = here.read(name, **upsert)
    assert ran.counts("parts") == ("complete", 3, 1, 2), ran.error
    assert here.found("parts", "id") == [(1, 1), (2, None)]
    assert here.entries("parts", "id") == [[], [("v", "NULLED")]]
    assert {str(json.loads(r["bytes"])["v"]) for r in here.rejects()} == {"3", "4"}


def test_B3_other_separators_and_columns_that_are_new(files: Make) -> None:
    here = files()
    config = {"config": {"separator": ";", "escape": "\\"}}
    here.give("parts.csv", 'id;v\n1;"a\\"b"\n')
    assert here.read("parts.csv", **config).counts("parts") == ("complete", 1, 1, 0)
    here.give("parts.csv", 'id;v;zip\n1;"a\\"b";007\n2;c\\;d;\n')
    assert here.read("parts.csv", **config).counts("parts") == ("complete", 2, 2, 0)
    assert here.found("parts", "id") == [(1, 'a"b', "007"), (2, "c;d", None)]


def test_a_file_with_another_separator_says_how_to_name_it(files: Make) -> None:
    """Decimal commas make every record longer than the header; without them there are no rejects,
    and one column."""
    here = files()
    here.give("shop.csv", "id;price\n1;2,50\n2;3,50\n")
    ran = here.read("shop.csv")
    advice = 'give the source `config: {separator: ";"}`'
    assert ran.error["code"] == "source.rejected"
    assert advice in ran.error["hint"] and "--max-rejected" in ran.error["hint"]
    here.give("shop.csv", "id;price\n1;2\n")
    ran = here.read("shop.csv")
    assert ran.counts("shop") == ("complete", 1, 1, 0)
    assert any(advice in note for note in ran.notes)
    ran = here.read("shop.csv", config={"separator": ";"})
    assert not any("separator" in note for note in ran.notes)


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("a.csv", 'id,"na\n', "the header of"),
        ("b.csv", "", "it has no columns"),
        ("c.jsonl", "[\n", "it has no columns"),
    ],
)
def test_B3_files_without_columns_are_refused(files: Make, name: str, text: str, says: str) -> None:
    here = files()
    here.give(name, text)
    with pytest.raises(ConfigError) as refused:
        here.read(name)
    assert refused.value.code == "source.query" and says in refused.value.message


@pytest.mark.parametrize("ending", ["csv", "json"])
def test_C_gzip_files_are_read_as_they_are_when_unpacked(files: Make, ending: str) -> None:
    here = files()
    text = "id,v\r\n1,01\r\n" if ending == "csv" else '{"id": 1, "v": "01"}\n'
    more = "2,02\r\nbroken\r\n" if ending == "csv" else '{"id": 2, "v": "02"}\nbroken\n'
    packed = gzip.compress(text.encode()) + gzip.compress(more.encode())  # two members
    here.give(f"people.{ending}.gz", packed)
    ran = here.read(f"people.{ending}.gz")
    assert ran.counts("people") == ("complete", 3, 2, 1), ran.error
    assert here.found("people", "id") == [(1, "01"), (2, "02")]
    here.give(f"people.{ending}.gz", packed[:-12])  # cut off
    with pytest.raises(SourceError) as failed:
        here.read(f"people.{ending}.gz")
    assert failed.value.code == "source.query_failed" and "people" in failed.value.message
    assert here.found("people", "id") == [(1, "01"), (2, "02")]


def test_C_other_compressed_files_are_refused_with_a_command(files: Make) -> None:
    here = files()
    text = b"id,v\n1,01\n"
    here.give("people.csv.bz2", bz2.compress(text))
    with pytest.raises(ConfigError) as refused:
        here.read("people.csv.bz2")
    (command,) = re.findall("`(.*?)`", refused.value.message)
    subprocess.run(command, shell=True, check=True)
    model = refused.value.message.rpartition("spark:")[2]
    assert here.run(use=f"spark:{model}").counts("people") == ("complete", 1, 1, 0)
    here.give("people.csv.GZ", gzip.compress(text))
    with pytest.raises(ConfigError) as refused:
        here.read("people.csv.GZ")
    assert "must end with .gz" in refused.value.message


def test_D_names_that_differ_by_case_are_read_by_the_query_of_the_hint(files: Make) -> None:
    here = files()
    here.give("a.jsonl", '{"id": 1, "ID": "x"}\n{"id": 2}\n')
    with pytest.raises(ConfigError) as refused:
        here.read("a.jsonl")
    assert "differ by case alone" in refused.value.message and refused.value.hint
    query = "SELECT " + refused.value.hint.partition("SELECT ")[2]
    ran = here.run(use=f"spark:{query}")
    assert ran.status == "succeeded", ran.error
    assert here.found("query", "id_2") == [("x", "1"), (None, "2")]  # ID_1, id_2


@pytest.mark.parametrize("name", ["docs.json", "docs.json.gz", "one.jsonl"])
def test_E_a_document_over_several_lines_is_read_after_the_command_of_the_hint(
    files: Make, name: str
) -> None:
    here = files()
    rows = [{"id": 1, "n": 0.1, "t": "a b"}, {"id": 2, "n": 12.5, "t": "two\nlines"}]
    text = json.dumps(rows[0] if name == "one.jsonl" else rows, indent=2).replace("\n", "\r\n")
    here.give(name, gzip.compress(text.encode()) if name.endswith("gz") else text)
    with pytest.raises(ConfigError) as refused:
        here.read(name)
    assert refused.value.hint is not None
    (command,) = re.findall("`(.*?)`", refused.value.hint)
    subprocess.run(command, shell=True, check=True)
    model = refused.value.hint.rpartition("spark:")[2]
    ran = here.run(use=f"spark:{model}")
    assert ran.status == "succeeded", ran.error
    (table,) = here.tables()
    wanted = [tuple(row.values()) for row in rows]
    assert here.found(table, "id") == (wanted[:1] if name == "one.jsonl" else wanted)


def forget_types(here: FileSite) -> None:
    """Makes the store one of a version that kept no types of columns."""
    with sqlite3.connect(here.home.path / "state.db") as store:
        done = store.execute("DELETE FROM penstock_names WHERE kind LIKE 'types:%'")
        assert done.rowcount > 0
