"""``penstock import``: files are written once, and what is not in them is said."""

from pathlib import Path

import pytest
from cli_harness import Cli

PROJECT = """
plugins:
  extractors: [{name: tap-csv, config: {files: [], note: $NOTE}}]
  loaders: [{name: target-jsonl}]
  transformers: [{name: dbt}]
"""
PROGRAM = """
import airbyte as ab
ab.get_source("source-faker", config={"count": 10})
ab.get_source("source-faker", config={"count": 20})
"""


@pytest.fixture
def cli(tmp_path: Path) -> Cli:
    (tmp_path / "meltano.yml").write_text(PROJECT)
    (tmp_path / "sync.py").write_text(PROGRAM)
    return Cli(tmp_path / "home", tmp_path)


def test_a_project_becomes_files_and_none_is_overwritten(cli: Cli, tmp_path: Path) -> None:
    done = cli("import", ".", "--json")
    assert done.code == 0, done.err
    (made,) = done.json["files"]
    assert made["file"] == "pipelines/tap-csv-to-target-jsonl.yaml"
    assert any("singer_state" in note for note in made["notes"])
    assert done.json["notes"] == ["plugins that move no rows: transformers"]
    text = (tmp_path / made["file"]).read_text()
    assert 'note: "${NOTE}"' in text
    again = cli("import", "meltano.yml", "--json")
    assert (again.code, again.error["code"]) == (2, "config.exists")
    other = cli("import", "meltano.yml", "--out", "other")
    assert other.code == 0 and "not carried over: plugins" in other.out
    assert "next: penstock plan other/tap-csv-to-target-jsonl.yaml" in other.out


TAP = """#!/usr/bin/env python3
import json, sys
if "--discover" in sys.argv:
    names = ("id", "email", "secret")
    schema = {"type": "object", "properties": {n: {"type": "string"} for n in names}}
    stream = {"tap_stream_id": "users", "stream": "users", "schema": schema}
    print(json.dumps({"streams": [stream]}))
else:
    sys.exit(2)
"""


def test_the_projects_own_executable_is_planned_with_its_selection(
    cli: Cli, tmp_path: Path
) -> None:
    """From the project's folder and from another one; nothing is looked up in an index."""
    tap = tmp_path / "bin" / "tap-own"
    tap.parent.mkdir()
    tap.write_text(TAP)
    tap.chmod(0o755)
    extractor = (
        "{name: tap-own, namespace: t, executable: bin/tap-own, select: [users.id, users.e.*]}"
    )
    loader = "{name: target-own, namespace: t, executable: bin/tap-own}"
    project = f"plugins:\n  extractors: [{extractor}]\n  loaders: [{loader}]\n"
    (tmp_path / "meltano.yml").write_text(project)
    assert cli("import", ".").code == 0
    file = tmp_path / "pipelines" / "tap-own-to-target-own.yaml"
    text = file.read_text().replace("- e\n", "- email\n")  # this tap has no object
    file.write_text(text)
    for cwd in (tmp_path, tmp_path / "bin"):
        planned = Cli(cli.home, cwd)("plan", str(file), "--json")
        (stream,) = planned.json["streams"]
        assert [column["name"] for column in stream["columns"]] == ["id", "email"]


def test_sources_of_one_name_have_files_of_their_own(cli: Cli, tmp_path: Path) -> None:
    done = cli("import", "sync.py", "--json")
    files = [made["file"] for made in done.json["files"]]
    assert files == ["pipelines/faker.yaml", "pipelines/faker-2.yaml"]
    assert "pipeline: faker-2" in (tmp_path / files[1]).read_text()


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["no.yml"], "import.file"),
        (["meltano.txt"], "import.file"),
        (["home"], "import.file"),
        (["meltano.yml", "--out", "sync.py/x"], "config.file"),
    ],
)
def test_what_is_refused(cli: Cli, words: list[str], code: str) -> None:
    done = cli("import", *words, "--json")
    assert (done.code, done.error["code"]) == (2, code)
