"""A table format is one folder: a third one is put into an installed tree, nothing else is edited,
and the command line, the pipeline file and ``doctor`` know it. The folder is written from
``tables.contract`` alone."""

import json
from pathlib import Path

import pytest

from installed_copy import InstalledCopy

SPEC = """
from penstock.config.table_formats import TableFormatSpec

SPEC = TableFormatSpec(name="list", label="List", mark=".list", merges_at_end=True)
"""

TABLES = """
import json
from pathlib import Path

from penstock.tables.contract import LastLoad, LoadResult, SessionNeeds, already_committed


class ListTables:
    name = "list"
    takes_parts = False
    rewrite_note = host_note = None

    def __init__(self, path, options=None):
        self.path = Path(path)

    def needs(self):
        return SessionNeeds()

    def check(self):
        pass

    def location(self, table):
        return str(self.path / table.name)

    def single_load_reason(self, mode):
        return None

    def unsupported_reason(self, stream, schema):
        return None

    def nested(self, tables):
        return {}

    def planned_on(self, table):
        return None

    def last_number(self, table, key):
        return None

    def columns_of(self, table):
        return None

    def commit(self, spark, tasks, loads):
        return [self._commit(load) for load in loads]

    def _commit(self, load):
        import pyarrow.parquet as pq

        folder = self.path / load.table.name
        folder.mkdir(parents=True, exist_ok=True)
        have = folder / ".list"
        last = LastLoad(*json.loads(have.read_text())) if have.exists() else None
        done = already_committed(load.load, last)
        if done is not None:
            return done
        rows = [row for part in load.parts for row in pq.read_table(part).to_pylist()]
        names = [field.name for field in load.schema.fields]
        with (folder / "rows.jsonl").open("a") as file:
            file.writelines(json.dumps({n: r[n] for n in names}) + "\\n" for r in rows)
        have.write_text(json.dumps([load.load.number, load.load.token]))
        return LoadResult(len(rows))


TABLES = ListTables
"""

TAP = """#!/usr/bin/env python3
import json, sys

SCHEMA = {"type": "object", "properties": {"id": {"type": "integer"}}}
if "--discover" in sys.argv:
    print(json.dumps({"streams": [{"tap_stream_id": "a", "stream": "a", "schema": SCHEMA}]}))
else:
    print(json.dumps({"type": "SCHEMA", "stream": "a", "schema": SCHEMA, "key_properties": []}))
    for number in range(3):
        print(json.dumps({"type": "RECORD", "stream": "a", "record": {"id": number}}))
"""

PIPELINE = """pipeline: shop
source:
  use: "singer:./tap.py"
destination:
  use: list:./lake
"""


class Installed(InstalledCopy):
    """``penstock`` of a copy of the package, with the folder ``tables/list`` in it."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        added = self.tree / "tables" / "list"
        added.mkdir()
        for name, text in {"__init__": "", "spec": SPEC, "tables": TABLES}.items():
            (added / f"{name}.py").write_text(text)
        (folder / "tap.py").write_text(TAP)
        (folder / "tap.py").chmod(0o755)
        (folder / "shop.yml").write_text(PIPELINE)


@pytest.fixture(scope="module")
def with_lists(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    return Installed(tmp_path_factory.mktemp("list"))


def test_a_pipeline_names_a_new_format(with_lists: Installed) -> None:
    planned = with_lists("plan", "shop.yml", "--json")
    assert planned["streams"][0]["table"].endswith("lake/a")
    planned = with_lists("plan", "singer:./tap.py", "list:./lake", "--json")
    assert [stream["name"] for stream in planned["streams"]] == ["a"]


def test_hints_know_its_name(with_lists: Installed) -> None:
    refused = with_lists("plan", "singer:./tap.py", "lizt:./lake", "--json", code=2)["error"]
    assert "list:./lake" in refused["hint"]
    refused = with_lists("plan", "singer:./tap.py", "list", "--json", code=2)["error"]
    assert "list needs a place" in refused["message"], refused


def test_doctor_asks_for_no_jars_of_it(with_lists: Installed) -> None:
    names = [check["name"] for check in with_lists("doctor", "--json")["checks"]]
    assert "delta" in names and "list" not in names


@pytest.mark.spark
def test_a_run_loads_into_a_new_format(with_lists: Installed) -> None:
    report = with_lists("run", "shop.yml", "--json", "--no-daemon")
    assert report["status"] == "succeeded" and report["streams"][0]["written"] == 3
    rows = (with_lists.folder / "lake" / "a" / "rows.jsonl").read_text().splitlines()
    assert [json.loads(row)["id"] for row in rows] == [0, 1, 2]
