"""What a host hears of `serve` where nothing can be written: it sees our stdout and no more."""

import json
from pathlib import Path
from typing import Any

import pytest
from cli_harness import Cli

from penstock.store.lock_holder import this_holder
from penstock.store.open import open_store

SCHEMA = {"type": "object", "properties": {"id": {"type": "integer"}}}


def write(cli: Cli, config: dict[str, Any], *, mode: str = "append") -> tuple[int, dict[str, Any]]:
    """The exit code of a write of two streams without a key, and its one TRACE ERROR."""
    streams = [
        {
            "stream": {"name": name, "json_schema": SCHEMA, "supported_sync_modes": []},
            "sync_mode": "full_refresh",
            "destination_sync_mode": mode,
        }
        for name in ("a", "b")
    ]
    (cli.cwd / "config.json").write_text(json.dumps(config))
    (cli.cwd / "catalog.json").write_text(json.dumps({"streams": streams}))
    told = cli(
        "serve", "destination", "--as", "airbyte", "write", "--config", "config.json",
        "--catalog", "catalog.json",
    )  # fmt: skip
    (line,) = told.out.splitlines()
    assert json.loads(line)["trace"]["type"] == "ERROR"
    return told.code, json.loads(line)["trace"]["error"]


def test_a_host_hears_every_problem_and_no_hint_that_is_not_for_it(cli: Cli) -> None:
    code, error = write(cli, {"destination": "parquet:./lake"}, mode="append_dedup")
    assert (code, error["failure_type"]) == (1, "config_error")
    for stream in ("a", "b"):
        assert f"stream {stream}: append_dedup needs a primary key" in error["message"]
    assert "penstock discover" not in error["message"]


def test_a_configuration_that_cannot_be_read_is_the_hosts_to_mend(cli: Cli) -> None:
    code, error = write(cli, {"destinaton": "parquet:./lake"})
    assert (code, error["failure_type"]) == (1, "config_error")
    assert '{"destination": "delta:./lake"}' in error["message"]  # this hint is for it


def test_a_place_that_cannot_be_written_is_the_hosts_to_mend(cli: Cli) -> None:
    (cli.cwd / "file").write_text("")
    _, error = write(cli, {"destination": "parquet:./file/lake"})
    assert error["failure_type"] == "config_error" and "not writable" in error["message"]


def test_another_run_passes(cli: Cli) -> None:
    cli.home.mkdir()
    store = open_store(f"sqlite:///{cli.home / 'state.db'}")
    lease = store.acquire("served", this_holder("other"), 60)
    _, error = write(cli, {"destination": "parquet:./lake", "pipeline": "served"})
    store.release(lease)
    store.close()
    assert error["failure_type"] == "transient_error" and "served" in error["message"]


@pytest.mark.parametrize(
    ("place", "said"),
    [("parquet:./file/lake", "not writable"), ("parquet:s3://bucket/lake", "local file system")],
)
def test_a_failed_check_says_why(cli: Cli, tmp_path: Path, place: str, said: str) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "config.json").write_text(json.dumps({"destination": place}))
    told = cli("serve", "destination", "--as", "airbyte", "check", "--config", "config.json")
    status = told.json["connectionStatus"]
    assert (told.code, status["status"]) == (0, "FAILED") and said in status["message"]
