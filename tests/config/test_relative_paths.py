"""Where relative paths start: in a file at its folder, on the command line at the folder."""

import json
from pathlib import Path

import pytest

from penstock.config.command_line import Options, with_options
from penstock.config.load import load_pipeline
from penstock.config.place import working_folder
from penstock.config.relative_paths import as_written_in


@pytest.mark.parametrize(
    ("given", "in_file"),
    [
        ("parquet:./lake", "parquet:../lake"),
        ("parquet:lake", "parquet:../lake"),
        ("delta:p/lake", "delta:./lake"),
        ("delta:/lake", "delta:/lake"),
        ("delta:s3a://lake/x", "delta:s3a://lake/x"),
        ("delta:catalog:main.shop", "delta:catalog:main.shop"),
        ("airbyte:./source-shop", "airbyte:../source-shop"),
        ("airbyte:python3 ./shop.py --fast", "airbyte:python3 ../shop.py --fast"),
        ("airbyte:source-faker@7.2.1", "airbyte:source-faker@7.2.1"),
        ({"file": "./a.csv", "n": [1, "../b"]}, {"file": "../a.csv", "n": [1, "../../b"]}),
        ({"url": "https://x/./y"}, {"url": "https://x/./y"}),
        ({"file": "there.csv", "b": "absent.csv"}, {"file": "../there.csv", "b": "absent.csv"}),
        ("airbyte:python3 there.py --x=there.csv", "airbyte:python3 ../there.py --x=../there.csv"),
        ("spark:there.csv", "spark:../there.csv"),
    ],
)
def test_what_the_command_line_says_means_the_same_in_a_file(
    given: object, in_file: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "p").mkdir()
    for name in ("there.csv", "there.py"):
        (tmp_path / name).write_text("")
    monkeypatch.chdir(tmp_path)
    assert as_written_in(Path("p"), given) == in_file
    assert as_written_in(Path(), given) == given


def test_an_option_over_a_file_starts_at_the_working_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "p").mkdir()
    document = {
        "pipeline": "shop",
        "source": {"use": "airbyte:source-faker"},
        "destination": {"use": "parquet:./lake"},
    }
    (tmp_path / "p" / "shop.yaml").write_text(json.dumps(document))
    monkeypatch.chdir(tmp_path)
    found = load_pipeline("p/shop.yaml")
    assert found.destination.config == {"path": f"{tmp_path}/p/lake"}
    over = with_options(found, Options(destination_config='{"path": "./other"}'))
    assert over.destination.config == {"path": "./other"}
    assert over.place is not None
    assert (over.place.folder, over.place.lake) == (f"{tmp_path}/p", f"{tmp_path}/other")


def test_the_working_folder_is_the_shells(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    monkeypatch.chdir(tmp_path / "link")
    monkeypatch.setenv("PWD", str(tmp_path / "link"))
    assert working_folder() == str(tmp_path / "link")
    monkeypatch.setenv("PWD", str(tmp_path))  # of another folder
    assert working_folder() == str(tmp_path / "real")
