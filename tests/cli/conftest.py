"""A command line with a home of its own; and one in whose home a pipeline ran."""

from pathlib import Path

import msgspec
import pytest
from cli_harness import RUN, SOURCE, STATES, Cli, report

from penstock.config.home import Home
from penstock.engine.channel.connector_log import LogLine
from penstock.engine.log.rejects import RejectLine, encode_rejects
from penstock.model.catalog import StreamId
from penstock.protocols import load
from penstock.store.lock_holder import this_holder
from penstock.store.open import open_store


@pytest.fixture
def cli(tmp_path: Path) -> Cli:
    return Cli(tmp_path / "home", tmp_path)


@pytest.fixture
def shop(cli: Cli) -> Cli:
    """A home in which the pipeline ``shop`` ran once: two states, a report, a log, two rejects."""
    home = Home(cli.home)
    store = open_store(home.state_url())
    lease = store.acquire("shop", this_holder(RUN), 60)
    store.remember_source(lease, "airbyte", SOURCE)
    store.replace_states(lease, load("airbyte").state.parse(STATES))
    store.start_run(lease, RUN, "2026-11-20T10:00:00Z")
    told = report(log=str(home.run(RUN) / "log.jsonl"))
    store.finish_run(lease, RUN, msgspec.to_builtins(told))
    store.release(lease)
    store.close()
    folder = home.run(RUN)
    lines = [LogLine("2026-11-20T10:00:01Z", "INFO", "source", f"line {n}") for n in range(60)]
    (folder / "log.jsonl").write_bytes(b"".join(msgspec.json.encode(x) + b"\n" for x in lines))
    (folder / "rejects").mkdir()
    users = StreamId("shop", "users")
    rejects = [
        RejectLine.of(users, "the key is null", "id", b'{"id": null}', "2026-11-20T10:00:02Z"),
        RejectLine.of(None, "not a message", None, b"\xff\xfe", "2026-11-20T10:00:03Z"),
    ]
    (folder / "rejects" / "1.jsonl").write_bytes(encode_rejects(rejects))
    return cli
