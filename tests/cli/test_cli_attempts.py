"""Every attempt is in `runs` with a log, also one that failed before it began, and no secret of it
(issue 40 part 3; L10)."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from cli_harness import SOURCE, Cli

SECRET = "hunter2-of-the-shop"


def attempts(cli: Cli, *name: str) -> list[dict[str, Any]]:
    return cli("runs", *name, "--json").json


def written(cli: Cli, **changes: Any) -> Path:
    document = {
        "pipeline": "shop",
        "source": {"use": SOURCE, "config": {"password": SECRET}, **changes.pop("source", {})},
        "destination": {"use": "parquet", "config": {"path": "./lake"}},
        **changes,
    }
    path = cli.cwd / "shop.yaml"
    path.write_text(json.dumps(document))
    return path


def no_secret(cli: Cli) -> None:
    for file in (p for p in cli.home.rglob("*") if p.is_file()):
        assert SECRET.encode() not in file.read_bytes(), file
        if "runs" in file.parts:
            assert file.stat().st_mode & 0o077 == 0, file


@pytest.mark.parametrize(
    ("changes", "code", "says"),
    [
        ({"sorce": 1}, "config.invalid", "unknown key"),
        ({"source": {"use": "airbyte:./not-there"}}, "connector", "not-there"),
        ({"source": {"streams": [{"name": "nosuch"}]}}, "config.streams", "nosuch"),
        ({"source": {"config": {"password": "${NOT_SET}"}}}, "config", "NOT_SET"),
    ],
    ids=["bad file", "no connector", "refused plan", "variable not set"],
)
def test_an_attempt_that_failed_before_it_began_is_in_runs(
    cli: Cli, changes: dict[str, Any], code: str, says: str
) -> None:
    path = written(cli, **changes)
    failed = cli("run", str(path))
    assert failed.code != 0
    assert cli("run", str(path), "--dry-run").code != 0  # keeps nothing

    (found,) = attempts(cli)
    assert (found["pipeline"], found["status"], found["exit_code"]) == (
        "shop",
        "failed",
        failed.code,
    )
    assert found["error"]["code"].startswith(code)
    (named,) = attempts(cli, "shop")
    assert named == found
    (one,) = cli("runs", "shop", found["run"], "--json").json
    assert says in " ".join(line["message"] for line in one["log_lines"])
    text = cli("runs", "shop").out
    assert found["run"] in text and "failed" in text
    assert says in cli("runs", "shop", found["run"]).out
    no_secret(cli)


def test_what_a_connector_logged_before_is_in_the_log_and_masked(cli: Cli) -> None:
    connector = cli.cwd / "connector.py"
    connector.write_text(
        "import json, sys\n"
        "def say(m): print(json.dumps(m), flush=True)\n"
        "if 'spec' in sys.argv:\n"
        "    say({'type': 'SPEC', 'spec': {'connectionSpecification': {'properties': "
        "{'password': {'type': 'string', 'airbyte_secret': True}}}}})\n"
        "else:\n"
        "    word = json.load(open(sys.argv[sys.argv.index('--config') + 1]))['password']\n"
        "    say({'type': 'LOG', 'log': {'level': 'INFO', 'message': 'logging in with ' + word}})\n"
        "    say({'type': 'TRACE', 'trace': {'type': 'ERROR', 'emitted_at': 1.0, 'error': "
        "{'message': 'no entry for ' + word}}})\n"
        "    sys.exit(1)\n"
    )
    path = written(cli, source={"use": f"airbyte:{sys.executable} {connector}"})
    assert cli("run", str(path)).code == 4
    (found,) = attempts(cli, "shop")
    (one,) = cli("runs", "shop", found["run"], "--json").json
    lines = [line["message"] for line in one["log_lines"]]
    assert any("logging in with ****" in line for line in lines), lines
    assert any("no entry for ****" in line for line in lines), lines
    no_secret(cli)


def test_a_broken_file_has_its_own_name(cli: Cli) -> None:
    path = cli.cwd / "crm.yaml"
    path.write_text("source: [")
    assert cli("run", str(path)).code == 2
    assert [r["pipeline"] for r in attempts(cli)] == ["crm"]
    path.write_text("pipeline: 'sales'  # ours\nsource: [")
    assert cli("run", str(path)).code == 2
    assert [r["pipeline"] for r in attempts(cli)] == ["sales", "crm"]
    assert [r["pipeline"] for r in attempts(cli, "sales")] == ["sales"]
    assert cli("run", "sales.yml").code == 2  # there is none, and it is not the pipeline sales
    assert [r["pipeline"] for r in attempts(cli)] == ["sales.yml", "sales", "crm"]
    assert cli("runs", "nobody").code == 2


def test_python_keeps_them_too(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    import penstock
    from penstock.errors import PenstockError

    monkeypatch.chdir(cli.cwd)
    with pytest.raises(PenstockError) as failed:
        penstock.run(str(written(cli, sorce=1)), home=cli.home)
    (found,) = penstock.runs(home=cli.home)
    assert (found.run, found.status) == (failed.value.attempt, "failed")
    assert penstock.runs("shop", home=cli.home) == [found] or found.pipeline == "shop"
