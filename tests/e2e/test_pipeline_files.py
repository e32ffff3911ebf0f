"""Several pipeline files in one command (issue 14, part 5): one session, one table of results, one
fails without the others."""

import json
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest
from connector_sites import STUBS
from pipelines import MASTER

import penstock
from penstock.cli.app import dispatch

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark]


class Folder:
    def __init__(self, path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.path, self._capsys = path / "pipelines", capsys
        self.path.mkdir()
        self._home = path / "home"

    def write(self, name: str, *, script: str = "stub_source.py", **config: Any) -> str:
        command = shlex.join([sys.executable, str(STUBS / script)])
        pipeline = {
            "pipeline": name,
            "source": {"use": f"airbyte:{command}", "config": {"streams": 1, **config}},
            "destination": {"use": f"parquet:{self.path.parent / name}"},
        }
        file = self.path / f"{name}.yaml"
        file.write_text(json.dumps(pipeline))
        return str(file)

    def __call__(self, verb: str, *words: str) -> tuple[int, dict[str, Any]]:
        code = dispatch(verb, [*words, "--home", str(self._home), "--json"])
        return code, json.loads(self._capsys.readouterr().out)

    def rows(self, name: str) -> int:
        return pq.read_table(self.path.parent / name / "s0").num_rows


@pytest.fixture
def folder(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Folder:
    monkeypatch.setenv("PENSTOCK_SPARK_MASTER", MASTER)
    return Folder(tmp_path, capsys)


def test_a_folder_of_pipelines_runs_and_one_fails_without_the_others(
    folder: Folder, shared_spark: "SparkSession"
) -> None:
    del shared_spark
    folder.write("a", records=30)
    folder.write("b", records=30, exit_code=3, die_after=10)
    folder.write("c", records=50)
    (folder.path / "README.md").write_text("no pipeline")
    code, told = folder("run", str(folder.path))
    ended = [(each["pipeline"], each["status"], each["exit_code"]) for each in told["syncs"]]
    assert ended[0::2] == [("a", "succeeded", 0), ("c", "succeeded", 0)], told
    assert ended[1][2] == told["exit_code"] == code == 4
    assert told["project"] is None
    assert (folder.rows("a"), folder.rows("c")) == (30, 50)


def test_files_are_planned_checked_and_chosen_together(folder: Folder) -> None:
    files = [folder.write("a", records=30), folder.write("b", records=30)]
    code, told = folder("plan", *files)
    assert code == 0
    assert [(p["sync"], p["pipeline"], len(p["streams"])) for p in told["syncs"]] == [
        ("a", "a", 1),
        ("b", "b", 1),
    ]
    code, told = folder("check", *files, folder.write("c"))
    assert (code, [c["status"] for c in told["syncs"]]) == (0, ["succeeded"] * 3)
    code, told = folder("plan", str(folder.path), "--select", "b")
    assert [p["pipeline"] for p in told["syncs"]] == ["b"]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("a.yaml", "parquet:./lake"), "parquet:./lake is not"),
        (("a.yaml", "b.yaml", "parquet:./lake"), "parquet:./lake is not a pipeline file"),
        (("a.yaml", "a.yaml"), "a.yaml is named twice"),
        (("a.yaml", "b.yaml", "--name", "x"), "--name names one pipeline"),
        (("a.yaml", "b.yaml", "--profile", "p.json"), "--profile covers one run"),
        (("a.yaml", "--select", "a"), "--select chooses among several"),
        ((".", "--select", "c"), "there is no 'c'"),
        (("./empty",), "no pipeline files, and is not a project"),
    ],
)
def test_words_that_name_no_pipelines_are_refused_before_any_runs(
    folder: Folder, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], says: str
) -> None:
    monkeypatch.chdir(folder.path)
    (folder.path / "empty").mkdir()
    folder.write("a")
    folder.write("b")
    code, told = folder("run", *words)
    assert code == 2
    assert says in told["error"]["message"]
    made = {p.relative_to(folder.path.parent) for p in folder.path.parent.glob("*/runs/*/*")}
    assert {p.name for p in made} <= {"attempt.json", "log.jsonl"}  # tried, and nothing began
    assert not list(folder.path.parent.rglob("*.db")) + list(folder.path.rglob("lake"))


def test_from_python_one_fails_without_the_others(
    folder: Folder, shared_spark: "SparkSession", tmp_path: Path
) -> None:
    del shared_spark
    folder.write("a", records=30)
    folder.write("b", records=30, exit_code=3, die_after=10)
    folder.write("c", records=50)
    told = penstock.run_all(folder.path, select=["a", "b"], home=tmp_path / "home", progress=False)
    assert [(each.pipeline, each.exit_code) for each in told] == [("a", 0), ("b", 4)]
    assert told[0].report is not None and told[0].report.streams[0].committed == 30
    assert told[1].error is not None and told[1].error["code"].startswith("source.")
    (again,) = penstock.run_all(folder.path / "c.yaml", home=tmp_path / "home", progress=False)
    assert (again.status, folder.rows("c")) == ("succeeded", 50)


@pytest.mark.parametrize("places", [[], ["parquet:./lake"], ["singer:tap-x", "parquet:./lake"]])
def test_what_does_not_name_several_is_refused_from_python(places: list[str]) -> None:
    with pytest.raises(penstock.PenstockError) as refused:
        penstock.run_all(*places)
    assert refused.value.code == "usage"
