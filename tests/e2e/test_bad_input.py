"""Bad input, as a user meets it: the message on stderr, the ``--json`` error, the exit code.

Whatever can be known before the first record is told before Spark starts.
"""

import json
import os
import shutil
import sqlite3
import stat
import subprocess
import sys
import threading
from collections.abc import Callable, Generator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from pipelines import NAME, Answer, Site

from penstock.model.catalog import StreamId
from penstock.model.state import StateScope, StateType, StoredState
from penstock.store.lock_holder import this_holder
from penstock.store.remembered import Remembered, TableNames

pytestmark = pytest.mark.timeout(300)

MakeSite = Callable[..., Site]


def refused(
    site: Site, *words: str, code: str, exit_code: int, says: list[str], hint: str = "", **env: str
) -> dict[str, Any]:
    """Run ``penstock WORDS`` as text and as JSON; the error of the latter."""
    told = site.cli(*words, **env)
    assert told.code == exit_code, told.err
    assert told.out == ""
    assert "Traceback" not in told.err
    assert "Error: " in told.err
    for text in says:
        assert text in told.err, told.err
    if hint:
        assert hint in told.err, told.err
        assert "  try " in told.err
    answer = site.cli(*words, "--json", **env)
    error = answer.error
    assert (answer.code, error["code"], error["exit_code"]) == (exit_code, code, exit_code), error
    shown = "\n".join([error["message"], *error.get("problems", [])])
    assert says[0] in shown
    assert hint in (error["hint"] or "")
    return error


# -- the pipeline file


def test_missing_file(quiet: Site) -> None:
    quiet.write()
    wanted = str(quiet.folder / "pipelin.yaml")
    error = refused(
        quiet,
        "run",
        wanted,
        code="config.not_found",
        exit_code=2,
        says=["there is no pipeline file"],
        hint="did you mean",
    )
    assert "pipeline.yaml" in error["hint"]


def test_invalid_yaml(quiet: Site) -> None:
    file = quiet.folder / "bad.yaml"
    file.write_text("pipeline: shop\nsource: {use: airbyte:x\ndestination: [\n")
    error = refused(quiet, "run", str(file), code="config.yaml", exit_code=2, says=["bad.yaml:"])
    assert error["where"].startswith(f"{file}:")


def test_unknown_key_and_missing_variable_are_told_together(quiet: Site) -> None:
    file = quiet.folder / "bad.yaml"
    file.write_text(
        "pipeline: shop\n"
        "source:\n"
        "  use: airbyte:source-faker\n"
        "  confg: {}\n"
        "  config: {password: '${E2E_NOT_SET}'}\n"
        "destination: {use: parquet, config: {path: ./lake}}\n"
    )
    error = refused(
        quiet,
        "run",
        str(file),
        code="config.invalid",
        exit_code=2,
        says=["bad.yaml:4", "confg", "did you mean", "bad.yaml:5", "E2E_NOT_SET", "is not set"],
        hint="--env-file",
    )
    assert len(error["problems"]) == 2


# -- what the source refuses before it is read


def test_config_that_fails_its_schema(quiet: Site) -> None:
    config = {"records": -1, "credentials": {"auth_type": "key", "port": "x"}}
    error = refused(
        quiet,
        "run",
        str(quiet.write(config=config)),
        code="config.connector",
        exit_code=2,
        says=["records", "credentials"],
    )
    assert error["problems"]
    assert quiet.journal("read") == quiet.journal("discover") == []


def test_unknown_stream(quiet: Site) -> None:
    stub = {"streams": [{"name": "customers"}, {"name": "orders"}]}
    file = quiet.write(stub, streams=[{"name": "custmers"}])
    refused(
        quiet,
        "run",
        str(file),
        code="config.streams",
        exit_code=2,
        says=["unknown stream 'custmers'; did you mean 'customers'?"],
        hint="penstock discover",
    )


def test_incremental_without_a_cursor_and_dedup_without_a_key(quiet: Site) -> None:
    bare = {
        "source_defined_cursor": False,
        "default_cursor_field": None,
        "source_defined_primary_key": None,
    }
    file = quiet.write(
        {"streams": [{"name": "a", **bare}, {"name": "b", **bare}]},
        streams=[
            {"name": "a", "sync_mode": "incremental"},
            {"name": "b", "destination_sync_mode": "append_dedup"},
        ],
    )
    error = refused(
        quiet,
        "run",
        str(file),
        code="config.streams",
        exit_code=2,
        says=["stream a: incremental needs a cursor", "append_dedup needs a primary key"],
    )
    assert len(error["problems"]) == 2


def test_unwritable_destination(quiet: Site) -> None:
    file = quiet.write(destination={"config": {"path": "/dev/null/lake"}})
    refused(
        quiet,
        "run",
        str(file),
        code="destination.not_writable",
        exit_code=5,
        says=["/dev/null/lake is not writable"],
        hint="choose a folder",
    )


def test_what_cannot_be_enforced_is_refused(quiet: Site) -> None:
    """L10."""
    document = quiet.document()
    document["source"]["permissions"] = {"network": {"allowed_hosts": ["db.internal"]}}
    file = quiet.folder / "narrow.yaml"
    file.write_text(json.dumps(document))
    refused(
        quiet,
        "run",
        str(file),
        code="config.unsupported",
        exit_code=2,
        says=["network.allowed_hosts cannot be enforced"],
        hint="refused, never ignored",
    )


# -- connectors that are none


@pytest.mark.parametrize(
    ("stub", "code", "says"),
    [
        ({"scenario": "nothing"}, "source.no_answer", "exited with code 0 and printed no SPEC"),
        ({"scenario": "exit_3"}, "source.exited", "exited with code 3"),
        ({"mute": ["discover"]}, "source.no_answer", "printed no CATALOG message"),
        ({"exit_3": ["discover"]}, "source.exited", "the stub exits 3 as asked"),
    ],
)
def test_connector_that_prints_nothing_or_exits_3(
    quiet: Site, stub: dict[str, Any], code: str, says: str
) -> None:
    file = quiet.write(stub)
    refused(
        quiet,
        "run",
        str(file),
        code=code,
        exit_code=4,
        says=[says],
        hint="run its command by hand",
    )


def test_connector_that_exits_3_while_it_is_read(quiet: Site) -> None:
    file = quiet.write({"exit_3": ["read"]})
    told = quiet.cli("run", str(file), "--dry-run")
    assert told.code == 4, told.err
    assert "exit code 3" in told.err
    assert "the stub exits 3 as asked" in told.err
    report = quiet.cli("run", str(file), "--dry-run", "--json").json
    assert (report["status"], report["error"]["code"]) == ("failed", "source.exited")
    assert report["error"]["hint"]


def test_connector_that_is_not_executable_not_there_or_no_program(quiet: Site) -> None:
    plain = quiet.folder / "source.py"
    plain.write_text("print('hello')\n")
    says = "it lacks the permission to be executed"
    lake = f"parquet:{quiet.lake}"
    refused(
        quiet,
        "run",
        "airbyte:./source.py",
        lake,
        code="connector.not_executable",
        exit_code=4,
        says=[says],
        hint="chmod +x",
    )
    plain.chmod(plain.stat().st_mode | stat.S_IXUSR)
    refused(
        quiet,
        "run",
        "airbyte:./source.py",
        lake,
        code="connector.not_executable",
        exit_code=4,
        says=["cannot be executed"],
        hint="#!/usr/bin/env python3",
    )
    refused(
        quiet,
        "run",
        "airbyte:./nowhere",
        lake,
        code="connector.not_found",
        exit_code=4,
        says=["no such file"],
        hint="check the path",
    )


@pytest.mark.network
def test_unknown_connector_name_says_what_was_tried(quiet: Site) -> None:
    refused(
        quiet,
        "run",
        "airbyte:source-no-such-thing-4711",
        f"parquet:{quiet.lake}",
        code="connector.not_found",
        exit_code=4,
        says=["not found: the index of packages has no package airbyte-source-no-such-thing-4711"],
    )


# -- the state store


def test_locked_pipeline_names_its_holder(quiet: Site) -> None:
    file = quiet.write()
    with quiet.store() as store:
        lease = store.acquire(NAME, this_holder("01HOLDER", "2026-11-20T10:00:00Z"), 300)
        try:
            refused(
                quiet,
                "run",
                str(file),
                code="state.locked",
                exit_code=6,
                says=["2026-11-20T10:00:00Z", "01HOLDER"],
            )
        finally:
            store.release(lease)
    assert quiet.journal("read") == []


def test_L12_a_holder_that_cannot_be_checked_and_renews_is_named_after_a_wait(quiet: Site) -> None:
    """In another container: the run sees the lock renewed, and says for what it waited."""
    file, ended = quiet.write(), threading.Event()
    holder = msgspec.structs.replace(this_holder("01FAR"), boot="elsewhere")
    with quiet.store() as store:
        lease = store.acquire(NAME, holder, 3)

        def renew() -> None:
            while not ended.wait(0.2):
                store.renew(lease, 3)

        renewing = threading.Thread(target=renew)
        renewing.start()
        try:
            refused(
                quiet, "run", str(file), code="state.locked", exit_code=6,
                says=["01FAR", "cannot be checked from here"], hint="penstock state unlock",
            )  # fmt: skip
        finally:
            ended.set()
            renewing.join(30)
            store.release(lease)
    assert quiet.journal("read") == []


def test_L1_a_changed_digit_of_a_state_stops_the_run_before_anything_is_asked(quiet: Site) -> None:
    file = quiet.write()
    with quiet.store() as store:
        lease = store.acquire(NAME, this_holder("01RUN"), 60)
        s0 = StreamId(None, "s0")
        state = {"type": "STREAM", "stream": {
            "stream_descriptor": {"name": "s0"}, "stream_state": {"seq": 100},
        }}  # fmt: skip
        scope = StateScope(StateType.stream, s0)
        store.replace_states(lease, [StoredState(scope, json.dumps(state))])
        store.release(lease)
    with closing(sqlite3.connect(quiet.home.path / "state.db")) as raw, raw:
        raw.execute("UPDATE penstock_states SET blob = replace(blob, '100', '300')")
    refused(
        quiet, "run", str(file), code="state.damaged", exit_code=6, says=["s0"],
        hint=f"penstock state reset {NAME} --stream s0",
    )  # fmt: skip
    assert not quiet.journal_path.exists(), "the source was asked"


def test_state_of_another_pipeline(quiet: Site) -> None:
    with quiet.store() as store:
        lease = store.acquire(NAME, this_holder("01RUN"), 60)
        names = TableNames(tables={StreamId(None, "s0").key: '[null, "s0"]'})
        store.remember(lease, Remembered(tables=names))
        store.schema_versions(lease, {})
        store.release(lease)
    foreign = quiet.folder / "state.json"
    descriptor = {"name": "invoices"}
    state = [{"type": "STREAM", "stream": {"stream_descriptor": descriptor, "stream_state": {}}}]
    foreign.write_text(json.dumps(state))
    file = quiet.write(streams=[{"name": "s0"}])
    refused(
        quiet,
        "state",
        "import",
        str(file),
        str(foreign),
        code="state.foreign",
        exit_code=6,
        says=["never had the streams invoices"],
        hint="--force",
    )
    foreign.write_text('{"not": "closed"')
    refused(
        quiet,
        "state",
        "import",
        str(file),
        str(foreign),
        code="state.not_json",
        exit_code=6,
        says=["state.json:1:17: not JSON"],
        hint="nothing was changed",
    )


# -- the log


@pytest.mark.spark
def test_l2_corrupt_part_is_refused_and_named_and_nothing_is_lost(site: MakeSite) -> None:
    """A run is killed after it sealed; a byte of its part is changed, then put back."""
    here = site(streams=1, records=50)
    file = here.write()
    killed = here.cli("run", str(file), "--json", PENSTOCK_FAILPOINT="after-seal@program")
    assert killed.code == -9, killed.err
    (part,) = here.home.path.glob("log/*/epochs/*/parts/*.parquet")
    whole = part.read_bytes()
    changed = bytearray(whole)
    changed[len(changed) // 2] ^= 0xFF
    part.write_bytes(changed)
    ran = here.run({"records": 60})
    assert (ran.status, ran.exit_code) == ("failed", 6), ran.error
    assert ran.error["code"] == "log.corrupt"
    assert ran.error["where"] == str(part)
    assert str(part) in ran.error["message"]
    assert ran.error["stream"] == "s0"
    assert "Restore the file" in ran.error["hint"]
    assert (here.rows("s0"), here.saved()) == ([], {})
    part.write_bytes(whole)
    ran = here.run({"records": 60})
    assert (ran.status, ran.exit_code) == ("succeeded", 0)
    assert here.seqs("s0") == list(range(1, 61))
    assert here.saved() == {"s0": {"seq": 60}}
    assert not part.exists()


@pytest.mark.spark
def test_damaged_manifest_is_refused_and_named(site: MakeSite) -> None:
    here = site(streams=1, records=5)
    here.run()
    epoch = next(iter(here.home.path.glob("log/*")), None)
    assert epoch is not None
    manifest = epoch / "epochs" / "00000099" / "seg-00000001.json"
    manifest.parent.mkdir(parents=True)
    manifest.write_text("00000000\n{}")
    ran = here.run()
    assert (ran.status, ran.exit_code, ran.error["code"]) == ("failed", 6, "log.corrupt")
    assert str(manifest) in ran.error["message"]
    shutil.rmtree(manifest.parent)
    assert here.run({"records": 7}).counts("s0") == ("complete", 2, 2, 0)


@contextmanager
def _tmpfs(folder: Path, size: str) -> Generator[Path]:
    folder.mkdir()
    options = ["-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)]
    mounted = subprocess.run(["mount", *options], capture_output=True, text=True)
    if mounted.returncode != 0:
        pytest.skip(f"this place refuses to mount a tmpfs: {mounted.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


@pytest.mark.spark
@pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount a small file system")
def test_full_disk_while_sealing_loses_nothing(site: MakeSite) -> None:
    here = site(streams=1, records=300, pad=40_000)
    schema = {
        "type": "object",
        "properties": {n: {"type": "integer"} for n in ("id", "seq")} | {"pad": {"type": "string"}},
    }
    here.stub["streams"] = [{"name": "s0", "json_schema": schema}]
    with _tmpfs(here.folder / "small", "3m") as small:
        ran = here.run(log={"path": str(small)})
        assert (ran.status, ran.exit_code) == ("failed", 6), ran.error
        assert ran.error["code"] == "log.full"
        assert "the disk is full" in ran.error["message"]
        assert str(small) in ran.error["message"]
        assert "free some space" in ran.error["hint"]
        assert (here.rows("s0"), here.saved()) == ([], {})
        subprocess.run(["mount", "-o", "remount,size=200m", str(small)], check=True)
        ran = here.run(log={"path": str(small)})
        assert (ran.status, ran.exit_code) == ("succeeded", 0), ran.error
        assert here.seqs("s0") == list(range(1, 301))
        assert here.saved() == {"s0": {"seq": 300}}


def test_error_of_a_run_on_stderr_names_the_full_log(quiet: Site) -> None:
    told: Answer = quiet.cli("run", str(quiet.write({"exit_3": ["read"]})), "--dry-run")
    log = next(line for line in told.err.splitlines() if line.strip().startswith("log "))
    assert Path(log.split()[-1]).is_file()
    assert sys.executable not in told.out
