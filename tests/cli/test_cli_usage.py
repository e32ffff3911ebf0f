"""Bad usage: exit 2, our own words, what was probably meant; never a traceback, never a secret."""

import json
from pathlib import Path

import pytest
from cli_harness import SOURCE, Cli

from penstock.cli import main

USAGE = [
    (["rnu"], "no verb 'rnu'", "penstock run"),
    (["shop.yaml"], "'shop.yaml' is not a verb", "penstock run shop.yaml"),
    (["airbyte:source-faker"], "is not a verb", "penstock run airbyte:source-faker"),
    (["--json", "list"], "options come after the verb", "penstock VERB --json"),
    (["run"], "missing argument 'PIPELINE'", "penstock run --help"),
    (["run", "a.yaml", "--strems", "x"], "no option --strems", "--streams"),
    (["run", "a.yaml", "--limit", "many"], "--limit", "penstock run --help"),
    (["run", "a.yaml", "--limit", "0"], "--limit", "penstock run --help"),
    (["run", "a.yaml", "--limit"], "--limit", "penstock run --help"),
    (["run", "no.yaml"], "there is no pipeline file no.yaml", "pipeline file"),
    (["run", "airbyte:source-faker"], "no destination is named", "parquet:./lake"),
    (["run", "airbyte:./manifest.yaml"], "no destination is named", "parquet:./lake"),
    (["run", "singer:tap-x --file a.yml"], "no destination is named", "parquet:./lake"),
    (["run", "no.yaml", "parquet:./lake"], "parquet:./lake is not", "give pipeline files"),
    (["run", "airbyte:source-faker", "parquet:"], "parquet", None),
    (["run", "airbite:source-faker", "parquet:./x"], "airbite", "airbyte"),
    (["run", "airbyte:s", "parquet:./x", "--mode", "upsrt"], "upsrt", "upsert"),
    (["run", "airbyte:s", "parquet:./x", "--lanes", "none"], "--lanes", "run --help"),
    (["run", "airbyte:s", "parquet:./x", "--primary-key", "a,,b"], "--primary-key", None),
    (["run", "airbyte:s", "parquet:./x", "--config", "@no.json"], "no.json", "@FILE"),
    (["state"], "missing command", "show, export"),
    (["state", "shw", "x"], "'shw'", "show"),
    (["state", "show"], "missing argument", "state show --help"),
    (["state", "show", "a", "b", "c"], "more arguments", "SOURCE DESTINATION"),
    (["state", "show", "nobody"], "pipeline 'nobody' has never run", "--home"),
    (["state", "import", "shop", "no.json"], "no.json", "state export"),
    (["state", "import", "-", "-"], "stdin", "file"),
    (["runs", "nobody"], "pipeline 'nobody' has never run", "--home"),
    (["rejects"], "missing argument", "rejects --help"),
    (["remove", "airbyte:source-faker"], "no environment of airbyte:source-faker", None),
    (["remove", "parquet:./lake"], "has no environment", "penstock list"),
    (["spec", "parquet:./lake"], "is a table", "PROTOCOL:NAME"),
    (["preview", "airbyte:x", "--limit", "0"], "--limit", None),
    (["discover", "parquet:./lake"], "is a table, not a source", "name a connector"),
    (["new", "parquet:./lake"], "is a table, not a source", "name a connector"),
    (["list", "more"], "more arguments than it takes", "list --help"),
]


@pytest.mark.parametrize(("arguments", "said", "meant"), USAGE, ids=lambda v: None)
def test_bad_usage_exits_2_and_says_what_was_meant(
    arguments: list[str],
    said: str,
    meant: str | None,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PENSTOCK_HOME", str(tmp_path / "home"))
    assert main(arguments) == 2
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err.startswith("Error: ")
    assert said in told.err
    if meant is not None:
        assert meant in told.err
    assert "Traceback" not in told.err
    assert main([*arguments, "--json"]) == 2
    error = json.loads(capsys.readouterr().out)["error"]
    assert said in f"{error['message']} {error['where']}"
    assert error["exit_code"] == 2


def test_a_profile_of_the_file_is_not_taken_for_the_file_of_a_timeline(
    cli: Cli, tmp_path: Path
) -> None:
    """Else ``--profile prod`` would run what the file says without any profile."""
    (tmp_path / "shop.yaml").write_text(
        "pipeline: shop\nsource: { use: airbyte:x }\ndestination: { use: delta }\n"
        "profiles: { prod: { lanes: 2 } }\n"
    )
    refused = cli("run", "shop.yaml", "--profile", "prod")
    assert refused.code == 2 and "--with prod" in refused.err
    assert not (tmp_path / "prod").exists()


def test_usage_through_the_process(cli: Cli) -> None:
    told = cli("run", "--confg", "{}")
    assert (told.code, told.out) == (2, "")
    assert "--config" in told.err


def test_all_faults_of_a_pipeline_file_are_shown_at_once(cli: Cli) -> None:
    file = "pipeline: shop\nsorce: {}\ndestination: {use: 'parquet:./lake', confg: {}}\n"
    told = cli("plan", "-", stdin=file)
    assert (told.code, told.out) == (2, "")
    assert "stdin:2" in told.err
    assert "stdin:3" in told.err
    assert "did you mean 'source'" in told.err
    as_json = cli("plan", "-", "--json", stdin=file)
    assert len(as_json.error["problems"]) >= 2
    assert as_json.err == ""


def test_lenient_makes_unknown_keys_warnings(cli: Cli) -> None:
    file = (
        f"pipeline: shop\nsource: {{use: '{SOURCE}', config: {{scenario: empty}}}}\n"
        "destination: {use: 'parquet:./lake'}\nextra: 1\n"
    )
    assert cli("plan", "-", stdin=file).code == 2
    lenient = cli("plan", "-", "--lenient", "--json", stdin=file)
    assert (lenient.code, lenient.json["pipeline"]) == (0, "shop")
    assert "extra" in lenient.err


SECRET = "hunter2-is-secret"


@pytest.mark.parametrize(
    "arguments",
    [
        ["check", SOURCE, "--config", f'{{"password": "{SECRET}"'],
        ["check", SOURCE, f'{{"password": "{SECRET}"}}'],
        ["spec", SOURCE, f'{{"password": "{SECRET}"}}'],
        ["spec", SOURCE, f'--config={{"password": "{SECRET}"}}'],
        ["spec", SOURCE, "--confg", f'{{"password": "{SECRET}"}}'],
        ["state", "show", "a", "b", f'{{"password": "{SECRET}"}}'],
        ["run", SOURCE, "parquet:./x", "--config", f'["{SECRET}"]'],
        ["run", SOURCE, "parquet:./x", "--lanes", "0", "--config", f'{{"p": "{SECRET}"}}'],
    ],
    ids=lambda v: None,
)
def test_no_configuration_is_ever_echoed(
    arguments: list[str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """L10, whatever is wrong with the words around it."""
    monkeypatch.setenv("PENSTOCK_HOME", str(tmp_path / "home"))
    assert main(arguments) == 2
    told = capsys.readouterr()
    assert SECRET not in told.out + told.err
