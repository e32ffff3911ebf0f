"""The commands in hints and notes name the pipeline and the home that they are for."""

import json
from pathlib import Path

import pytest

from penstock.config.command_line import Options, pipeline_from_arguments, with_options
from penstock.config.home import Home
from penstock.config.load import load_pipeline
from penstock.config.pipeline import Pipeline
from penstock.engine.channel.named_pipeline import (
    CompleteCommands,
    run_command,
    sealed_command,
    state_command,
)
from penstock.errors import ConfigError


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    monkeypatch.setenv("PENSTOCK_HOME", str(tmp_path / "usual"))
    return Home(tmp_path / "a home")


def of_file(folder: Path, name: str = "shop", **keys: object) -> Pipeline:
    document = {
        "pipeline": name,
        "source": {"use": "airbyte:source-faker"},
        "destination": {"use": "parquet:./lake"},
        "profiles": {"prod": {"lanes": 2}},
        **keys,
    }
    (folder / "shop.yaml").write_text(json.dumps(document))
    return load_pipeline(folder / "shop.yaml")


def test_a_command_without_a_home_gets_it(tmp_path: Path, home: Home) -> None:
    complete = CompleteCommands(of_file(tmp_path), home).text
    at, file = f"--home '{home.path}'", f"{tmp_path}/shop.yaml"
    assert complete("`penstock state adopt shop` goes on") == (
        f"`penstock state adopt shop {at}` goes on"
    )
    assert complete("`penstock state reset shop --cancel-refresh a`, x") == (
        f"`penstock state reset shop {at} --cancel-refresh a`, x"
    )
    assert complete("`penstock run --recreate`") == f"`penstock run {file} --recreate {at}`"
    assert complete("`penstock state reset`") == f"`penstock state reset shop {at}`"
    assert complete("`penstock runs shop`") == f"`penstock runs shop {at}`"
    assert complete(complete("`penstock state reset`")) == complete("`penstock state reset`")
    assert complete("write `path: ./lake`") == "write `path: ./lake`"
    assert complete("no command") == "no command"


def test_the_usual_home_is_not_named(tmp_path: Path, home: Home) -> None:
    complete = CompleteCommands(of_file(tmp_path), Home()).text
    assert complete("`penstock state adopt shop`") == "`penstock state adopt shop`"


def test_a_store_or_a_name_that_needs_the_file_has_it(tmp_path: Path, home: Home) -> None:
    file = f"{tmp_path}/shop.yaml"
    own = of_file(tmp_path, state={"path": str(tmp_path / "own.db")})
    assert state_command("adopt", own, Home()) == f"penstock state adopt {file}"
    spaced = of_file(tmp_path, name="my shop")
    hint = CompleteCommands(spaced, Home()).text("`penstock state adopt my shop`")
    assert hint == f"`penstock state adopt {file}`"


def test_options_of_the_command_line_stay(tmp_path: Path) -> None:
    of_file(tmp_path)
    file = f"{tmp_path}/shop.yaml"
    prod = load_pipeline(file, profile="prod")
    assert run_command(prod, Home(), "--recreate") == (
        f"penstock run {file} --recreate --with prod"
    )
    renamed = with_options(load_pipeline(file), Options(name="other"))
    assert run_command(renamed, Home(), "--recreate") == (
        f"penstock run {file} --recreate --name other"
    )


def test_a_pipeline_without_a_file_is_run_as_it_was(home: Home) -> None:
    named = pipeline_from_arguments("airbyte:source-faker", "parquet:./lake", name="shop")
    complete = CompleteCommands(named, Home()).text
    assert complete("`penstock run --recreate` reads") == "the same run with `--recreate` reads"


def test_an_error_is_completed_whole(tmp_path: Path, home: Home) -> None:
    error = ConfigError(
        "do `penstock state reset shop`", problems=["`penstock state reset shop`"],
        hint="or `penstock state show shop`",
    )  # fmt: skip
    CompleteCommands(of_file(tmp_path), home).error(error)
    texts = (error.message, *str(error).splitlines(), error.problems[0], str(error.hint))
    assert all(text.count("--home") == 1 for text in texts), texts


def test_a_name_of_the_command_line_is_in_each_command(tmp_path: Path) -> None:
    file = f"{tmp_path}/shop.yaml"
    own = of_file(tmp_path, state={"path": str(tmp_path / "own.db")})
    renamed = with_options(own, Options(name="other"))
    complete = CompleteCommands(renamed, Home()).text
    for text in ("`penstock state reset other`", "`penstock state reset`"):
        assert complete(text) == f"`penstock state reset {file} --name other`"
    assert complete("`penstock state export other > s.json`") == (
        f"`penstock state export {file} --name other > s.json`"
    )
    assert complete("`penstock rejects`") == f"`penstock rejects {file} --name other`"
    assert complete("`penstock runs other`") == f"`penstock runs {file} --name other`"
    assert complete("`penstock plan`") == f"`penstock plan {file} --name other`"
    spaced = with_options(of_file(tmp_path), Options(name="my shop"))
    hint = CompleteCommands(spaced, Home()).text("`penstock state export 'my shop' > s.json`")
    assert hint == f"`penstock state export {file} --name 'my shop' > s.json`"


def test_verbs_that_need_a_pipeline_have_it(tmp_path: Path) -> None:
    complete = CompleteCommands(of_file(tmp_path), Home()).text
    assert complete("`penstock rejects` shows them") == "`penstock rejects shop` shows them"
    assert complete("`penstock state export`") == "`penstock state export shop`"
    assert complete("`penstock check`") == f"`penstock check {tmp_path}/shop.yaml`"
    assert complete("`penstock doctor`") == "`penstock doctor`"
    assert CompleteCommands("shop", Home()).text("`penstock rejects`") == "`penstock rejects shop`"


def test_what_waits_is_given_up_by_the_words_that_name_the_destination(tmp_path: Path) -> None:
    """By its file; without one by its connectors, which may hold a password."""
    home, file = Home(), of_file(tmp_path)
    by_file = f"penstock state reset {tmp_path}/shop.yaml --sealed"
    text = CompleteCommands(file, home).text("else `penstock state reset --sealed` does")
    assert text == f"else `{by_file}` does" and sealed_command(file, home) == by_file
    bare = with_options(
        pipeline_from_arguments("airbyte:source-x", "singer:target-y"), Options(name="a b")
    )
    words = "penstock state reset airbyte:source-x singer:target-y --name 'a b' --sealed"
    assert sealed_command(bare, home) == words
    hidden = with_options(
        pipeline_from_arguments("airbyte:source-x", "postgres://me:hush@host/db"), Options(name="a")
    )
    words = "penstock state reset SOURCE DESTINATION --name a --sealed"
    assert sealed_command(hidden, home) == words
