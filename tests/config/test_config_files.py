"""Several pipeline files as one project (issue 14, part 5)."""

from pathlib import Path

import pytest

from penstock.config.pipeline_files import files_of, read_files
from penstock.config.project import ProjectSelection
from penstock.errors import ConfigError

ENDS = "source: {use: 'airbyte:source-faker'}\ndestination: {use: 'parquet:./lake'}\n"


def write(folder: Path, file: str, name: str, more: str = "") -> str:
    (folder / file).write_text(f"pipeline: {name}\n{ENDS}{more}")
    return str(folder / file)


def wanted(folder: Path, *select: str) -> ProjectSelection:
    return ProjectSelection(folder=folder, environ={"LANES": "3"}, select=select)


def test_the_files_of_a_folder_are_those_that_are_no_others(tmp_path: Path) -> None:
    for name in ("b.yaml", "a.yml", ".hidden.yaml", "notes.md", "state.db"):
        (tmp_path / name).touch()
    (tmp_path / "c.yaml").mkdir()
    assert files_of(tmp_path) == [str(tmp_path / "a.yml"), str(tmp_path / "b.yaml")]
    with pytest.raises(ConfigError) as refused:
        files_of(tmp_path / "nowhere")
    assert refused.value.code == "config.unreadable"


def test_pipelines_have_their_own_names_and_the_order_of_the_files(tmp_path: Path) -> None:
    files = [write(tmp_path, "z.yaml", "first"), write(tmp_path, "a.yaml", "second", "lanes: 2\n")]
    found = read_files(files, wanted(tmp_path))
    assert (found.name, list(found.pipelines)) == (None, ["first", "second"])
    assert found.pipelines["second"].lanes == 2
    assert list(read_files(files, wanted(tmp_path, "second")).pipelines) == ["second"]
    with pytest.raises(ConfigError, match="there is no 'secnod'; did you mean 'second'") as refused:
        read_files(files, wanted(tmp_path, "secnod"))
    assert refused.value.hint == "there is: first, second"


def test_the_faults_of_all_files_are_one_error(tmp_path: Path) -> None:
    files = [
        write(tmp_path, "a.yaml", "a", "lnaes: 2\n"),
        write(tmp_path, "b.yaml", "b"),
        str(tmp_path / "c.yaml"),
        write(tmp_path, "d.yaml", "b"),
    ]
    with pytest.raises(ConfigError) as refused:
        read_files(files, wanted(tmp_path))
    text = "\n".join(refused.value.problems)
    assert refused.value.message == "3 of 4 pipeline files have faults"
    assert "a.yaml:4" in text and "lnaes" in text and "there is no pipeline file" in text
    assert f"{files[3]}: {files[1]} is called b too" in text


def test_two_pipelines_of_one_name_would_share_a_state(tmp_path: Path) -> None:
    files = [write(tmp_path, "a.yaml", "shop"), write(tmp_path, "b.yaml", "shop")]
    with pytest.raises(ConfigError) as refused:
        read_files(files, wanted(tmp_path))
    assert refused.value.code == "config.same_name"
    with pytest.raises(ConfigError, match="is named twice"):
        read_files([files[0], files[0]], wanted(tmp_path))
