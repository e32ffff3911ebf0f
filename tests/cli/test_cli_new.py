"""``penstock new``: with words, on a terminal, and what it refuses."""

import json
import os
import pty
import select
import subprocess
import sys
from pathlib import Path

import pytest
from cli_harness import Cli

from forked_cli import SCRIPT

CONNECTOR = """
import json, sys
SPEC = {"documentationUrl": "https://docs.example.com", "connectionSpecification": {
    "type": "object", "required": ["shop", "rows", "token"], "properties": {
        "rows": {"type": "integer", "title": "Rows", "description": "How many."},
        "shop": {"type": "string", "enum": ["eu", "us"]},
        "token": {"type": "string", "airbyte_secret": True},
        "auth": {"type": "object", "properties": {"key": {"airbyte_secret": True}}}}}}
if sys.argv[1] == "spec":
    print(json.dumps({"type": "SPEC", "spec": SPEC}))
else:
    config = json.load(open(sys.argv[sys.argv.index("--config") + 1]))
    good = config["token"] == "right"
    status = {"status": "SUCCEEDED" if good else "FAILED", "message": "" if good else "no entry"}
    print(json.dumps({"type": "CONNECTION_STATUS", "connectionStatus": status}))
"""


@pytest.fixture
def source(tmp_path: Path) -> str:
    (tmp_path / "source_shop.py").write_text(CONNECTOR)
    return f"airbyte:{sys.executable} {tmp_path / 'source_shop.py'}"


@pytest.fixture
def cli(tmp_path: Path) -> Cli:
    return Cli(tmp_path / "home", tmp_path)


def test_the_file_is_written_and_says_which_variables_it_needs(
    cli: Cli, source: str, tmp_path: Path
) -> None:
    done = cli("new", source, "parquet:./lake", "--name", "shop", "--json")
    assert done.code == 0, done.err
    assert done.json["file"] == "shop.yaml" and done.json["check"] is None
    names = {v["property"]: v["name"] for v in done.json["variables"]}
    assert [(v["secret"], v["set"]) for v in done.json["variables"]] == [
        (False, False), (False, False), (True, False)
    ]  # fmt: skip
    token = names["config.token"]
    assert f'token: "${{{token}}}"' in (tmp_path / "shop.yaml").read_text()
    filled = {names["config.shop"]: "eu", names["config.rows"]: "3", token: "right"}
    checked = cli("check", "shop.yaml", "--json", **filled)
    assert checked.json["status"] == "succeeded", checked.out


def test_with_its_variables_set_the_pipeline_is_checked(
    cli: Cli, source: str, tmp_path: Path
) -> None:
    first = cli("new", source, "parquet:./lake", "--name", "a", "--json").json
    token = first["variables"][-1]["name"]
    config = '{"shop": "eu", "rows": 3}'
    done = cli(
        "new", source, "parquet:./lake", "--name", "b", "--config", config, **{token: "right"}
    )
    assert done.code == 0 and "check: succeeded" in done.out and "penstock run b.yaml" in done.out
    failed = cli(
        "new", source, "parquet:./lake", "--name", "c", "--config", config, **{token: "wrong"}
    )
    assert failed.code == 4 and "check: failed: no entry" in failed.out
    assert (tmp_path / "c.yaml").exists()


def test_the_file_names_the_pipeline_as_a_run_s_name_does(
    cli: Cli, source: str, tmp_path: Path
) -> None:
    """``new --file people.yaml`` and ``run --name people`` are one pipeline, with one state."""
    for words, file, pipeline in (
        (["--file", "people.yaml"], "people.yaml", "people"),
        (["--file", "sub/my shop.v2.yaml"], "sub/my shop.v2.yaml", "my shop.v2"),
        (["--file", "caf\u00e9.yaml"], "caf\u00e9.yaml", "caf\u00e9"),
        (["--file", "\u65e5\u672c.yaml"], "\u65e5\u672c.yaml", "\u65e5\u672c"),
        (["--name", "na\u00efve x"], "na\u00efve-x.yaml", "na\u00efve x"),
        (["--file", "b.yaml", "--name", "people"], "b.yaml", "people"),
        (["--name", "c d"], "c-d.yaml", "c d"),
    ):
        (tmp_path / "sub").mkdir(exist_ok=True)
        said = cli("new", source, "parquet:./lake", *words, "--json").json
        assert (said["file"], said["pipeline"]) == (file, pipeline)
        assert f"pipeline: {pipeline}" in (tmp_path / file).read_text().replace('"', "")


def test_no_file_is_overwritten(cli: Cli, source: str, tmp_path: Path) -> None:
    (tmp_path / "shop.yaml").write_text("mine")
    done = cli("new", source, "parquet:./lake", "--name", "shop", "--json")
    assert (done.code, done.error["code"]) == (2, "config.exists")
    assert (tmp_path / "shop.yaml").read_text() == "mine"


@pytest.mark.parametrize(
    ("words", "code"),
    [
        ([], "usage"),
        (["singer:target-jsonl", "parquet:./lake"], "connector.not_a_source"),
        (["airbite:source-faker", "parquet:./lake"], "connector.reference"),
        (["SOURCE", "parquet:./lake", "--file", "no/such/folder.yaml"], "config.file"),
        (["SOURCE", "parquet:./lake", "--config", "{"], None),
        (["SOURCE", "parquet:./lake", "--destination-config", '{"a": "b"}'], "usage"),
        (["SOURCE", "parquet:./lake", "--config", '{"auth": {"key": "hush"}}'], "config.secret"),
    ],
)
def test_what_is_refused_writes_nothing(
    cli: Cli, source: str, tmp_path: Path, words: list[str], code: str | None
) -> None:
    before = sorted(tmp_path.glob("*.yaml"))
    done = cli("new", *(source if w == "SOURCE" else w for w in words), "--json")
    assert done.code == 2 and code in (None, done.error["code"]), done.out
    assert "hush" not in done.out + done.err  # L10
    assert sorted(tmp_path.glob("*.yaml")) == before


def test_a_secret_that_is_given_becomes_a_variable(cli: Cli, source: str, tmp_path: Path) -> None:
    config = json.dumps({"shop": "eu", "rows": 1, "token": "hush-hush"})
    done = cli("new", source, "parquet:./lake", "--name", "s", "--config", config)
    assert done.code == 0, done.err
    assert "hush-hush" not in (tmp_path / "s.yaml").read_text() + done.out + done.err


def test_a_secret_of_a_tap_that_publishes_nothing_becomes_a_variable(
    cli: Cli, tmp_path: Path
) -> None:
    """A tap without ``--about``: what is a secret is known by its name alone."""
    (tmp_path / "tap_old.py").write_text("import sys; sys.exit(2)")
    config = json.dumps({"api_token": "hush-hush", "start": "2024-01-01"})
    done = cli("new", f"singer:{sys.executable} tap_old.py", "parquet:./lake", "--name", "s",
               "--config", config)  # fmt: skip
    assert done.code == 0, done.err
    text = (tmp_path / "s.yaml").read_text()
    assert "hush-hush" not in text + done.out + done.err
    assert 'api_token: "${' in text and "2024-01-01" in text


def test_a_connector_that_publishes_nothing_gets_the_settings_of_the_index(
    cli: Cli, tmp_path: Path
) -> None:
    """Its secrets and required settings are variables; a default, perhaps of another version, is no
    value."""
    tap = tmp_path / "tap-gitlab"
    tap.write_text(f"#!{sys.executable}\nimport sys; sys.exit(2)")
    tap.chmod(0o755)
    config = json.dumps({"private_token": "hush-hush", "mine": 1})
    done = cli("new", "singer:./tap-gitlab", "parquet:./lake", "--name", "s", "--config", config)
    assert done.code == 0, done.err
    text = (tmp_path / "s.yaml").read_text()
    assert "hush-hush" not in text and 'private_token: "${' in text and "mine: 1" in text
    assert "The index lists these" in text
    assert "\n    # ultimate_license: false" in text and "\n    ultimate_license:" not in text


def test_on_a_terminal_it_asks(cli: Cli, source: str, tmp_path: Path) -> None:
    """Source, destination, name, and what is required and no secret: a wrong answer is asked for
    again, an empty one takes what is offered or leaves a variable."""
    here, there = pty.openpty()
    child = subprocess.Popen(
        [SCRIPT, "new"],
        stdin=there,
        stdout=subprocess.PIPE,
        stderr=there,
        env={**cli.environ, "TERM": "xterm", "NO_COLOR": "1"},
        cwd=tmp_path,
    )
    os.close(there)
    said = ""
    answers = [
        ("Source", "github"),
        ("  1  airbyte:source-github", source),
        ("Destination [parquet:./lake]", ""),
        ("Name of the pipeline", "asked"),
        ("rows, empty", "many"),
        ("that is not of type integer", ""),
        ("rows, empty", "12"),
        ("shop (eu, us), empty", ""),
    ]
    try:
        for prompt, answer in answers:
            while prompt not in said:
                assert select.select([here], [], [], 30)[0], f"{prompt} was not asked: {said}"
                said += os.read(here, 4096).decode()
            said = said.partition(prompt)[2]
            if prompt != "that is not of type integer":
                os.write(here, f"{answer}\n".encode())
        out, _ = child.communicate(timeout=60)
    finally:
        child.kill()
        os.close(here)
    assert child.returncode == 0 and b"wrote asked.yaml" in out
    text = (tmp_path / "asked.yaml").read_text()
    assert "rows: 12" in text and 'shop: "${' in text and "use: parquet:./lake" in text
