"""A pipeline under `--name` is one pipeline in every verb, and the name of one that ran finds its
file (issue 40 parts 2 and 3; L10)."""

import json
from pathlib import Path
from typing import Any

import pytest
from cli_harness import SOURCE, Cli

from penstock.store.lock_holder import this_holder
from penstock.store.open import open_store
from penstock.store.remembered import Remembered, UsedFile

SECRET = "hunter2-of-the-shop"


def written(cli: Cli, **keys: Any) -> Path:
    path = cli.cwd / "shop.yaml"
    document = {
        "pipeline": "shop",
        "source": {"use": SOURCE},
        "destination": {"use": "parquet", "config": {"path": "./lake"}},
        **keys,
    }
    path.write_text(json.dumps(document))
    return path


def ran(state: Path, name: str, file: UsedFile | None = None) -> None:
    """What a run of a pipeline left in a store."""
    store = open_store(f"sqlite:///{state}")
    lease = store.acquire(name, this_holder("run"), 60)
    if file is not None:
        store.remember(lease, Remembered(file=file))
    store.release(lease)
    store.close()


def test_a_renamed_pipeline_with_a_store_of_its_own_is_reached(cli: Cli) -> None:
    state = cli.cwd / "own.db"
    path = str(written(cli, state={"path": str(state)}))
    ran(state, "other")
    assert cli("state", "export", path, "--json").code == 2
    assert cli("state", "show", "other", "--name", "other", "--json").error["code"] == "usage"
    for verb in ("show", "export", "history", "reset", "adopt", "unlock"):
        assert cli("state", verb, path, "--name", "other", "--json").code == 0, verb
    for verb in ("runs", "rejects"):
        assert cli(verb, path, "--name", "other", "--json").code == 0, verb


def test_rejects_of_a_name_are_tried_by_the_file_of_its_last_run(cli: Cli) -> None:
    path = written(cli)
    state = cli.home / "state.db"
    cli.home.mkdir(exist_ok=True)
    ran(state, "shop", UsedFile(str(path), ()))
    ran(state, "other", UsedFile(str(path), ("--name", "other", "--lenient")))
    ran(state, "gone", UsedFile(str(cli.cwd / "gone.yaml")))
    ran(state, "moved", UsedFile(str(path)))
    ran(state, "none")
    for name in ("shop", "other"):
        done = cli("rejects", "retry", name, "--dry-run", "--json")
        assert (done.code, done.json["pipeline"]) == (0, name), done.out
        assert done.json["retried"] == {"tried": 0, "left": []}
    why = (("gone", "gone.yaml"), ("moved", "'shop' now"), ("none", "no pipeline file"))
    for name, words in why:
        refused = cli("rejects", "retry", name, "--json")
        assert (refused.code, refused.error["code"]) == (2, "config.not_found")
        assert words in refused.error["message"]
    assert cli("rejects", "retry", "nobody", "--json").error["code"] == "config.unknown_pipeline"
    assert cli("rejects", "retyr", name, "--json").error["hint"] == "did you mean `retry`?"


@pytest.mark.parametrize(
    "words",
    [
        ("singer:./no-tap --password " + SECRET, "parquet:./lake"),
        ("singer:./no-tap --password=" + SECRET,),
        ("./no-tap " + SECRET, "nosuch:" + SECRET),
        ("airbyte:./no-tap", "postgres:postgresql://shop:" + SECRET + "@nowhere.invalid/db"),
        ('{"password": "' + SECRET + '"}', "parquet:./lake"),
        ("postgresql://shop:" + SECRET + "@nowhere.invalid", "parquet:./lake"),
    ],
    ids=["option", "equals", "argument", "url", "configuration", "source url"],
)
def test_l10_no_secret_of_a_command_is_in_what_an_attempt_left(
    cli: Cli, words: tuple[str, ...]
) -> None:
    assert cli("run", *words, "--json").code != 0
    for file in (p for p in cli.home.rglob("*") if p.is_file()):
        assert SECRET.encode() not in file.read_bytes(), file
    assert SECRET not in cli("runs", "--json").out
