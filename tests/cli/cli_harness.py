"""The real console script in a process of its own, and what an earlier run left behind."""

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

import forked_cli
from penstock.config.home import Home
from penstock.model.report import PeakMemory, Report, StreamReport, TimeSpent
from penstock.protocols import load
from penstock.store.lock_holder import this_holder
from penstock.store.open import open_store

STUB = Path(__file__).parents[1] / "stubs" / "stub_source.py"
SOURCE = f"airbyte:{sys.executable} {STUB}"
RUN = "01JD3E9ZK0V2Q8W4R5T6Y7A8B9"


@dataclass
class Answer:
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """All of stdout as one JSON document: anything beside it fails here."""
        return json.loads(self.out)

    @property
    def error(self) -> dict[str, Any]:
        return self.json["error"]


KEPT = ("CI", "PATH", "LANG", "LC_ALL", "JAVA_HOME", "JDK_JAVA_OPTIONS")


class Cli:
    """The command with an environment of its own; what runs keep for later ones (jars, classes)
    is the user's."""

    def __init__(self, home: Path, cwd: Path) -> None:
        self.home, self.cwd = home, cwd
        kept = {k: v for k, v in os.environ.items() if k in KEPT}
        cache = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
        self.environ = {
            **kept,
            "HOME": str(cwd),
            "PENSTOCK_HOME": str(home),
            "PENSTOCK_DAEMON": "0",
            "XDG_CACHE_HOME": cache,
        }

    def __call__(
        self, *arguments: str, stdin: str = "", script: list[str] | None = None, **environ: str
    ) -> Answer:
        """``script``: a command whose start is what is tested, or that is another program."""
        given, env = stdin.encode(), self.environ | environ
        if script is None:
            done = forked_cli.run(arguments, stdin=given, cwd=self.cwd, env=env, timeout=120)
        else:
            command = [*script, *arguments]
            done = subprocess.run(
                command, input=given, capture_output=True, timeout=120, cwd=self.cwd, env=env
            )
        return Answer(done.returncode, done.stdout.decode(), done.stderr.decode())


def stream_state(name: str, state: Any, namespace: str | None = None) -> dict[str, Any]:
    described = {"name": name} | ({"namespace": namespace} if namespace else {})
    return {
        "type": "STREAM",
        "stream": {"stream_descriptor": described, "stream_state": state},
    }


def save_states(cli: Cli, states: Any, protocol: str = "airbyte") -> None:
    """Saves what a source of ``protocol`` sent, as the state of the pipeline ``shop``."""
    store = open_store(Home(cli.home).state_url())
    lease = store.acquire("shop", this_holder(RUN), 60)
    store.remember_source(lease, protocol, f"{protocol}:./source")
    store.replace_states(lease, load(protocol).state.parse(states))
    store.release(lease)
    store.close()


def report(run: str = RUN, **changes: Any) -> Report:
    users = StreamReport(
        namespace="shop", name="users", status="complete", read=3, committed=1, written=1,
        rejected=2, bytes=40, states=1, table="lake/shop/users",
    )  # fmt: skip
    told = Report(
        run=run, pipeline="shop", status="succeeded", exit_code=0,
        started_at="2026-11-20T10:00:00Z", seconds=12.3, guarantee="exactly-once",
        streams=[users], time=TimeSpent(
            start=3.0, extract=5.0, source_wait=4.0, load=2.0, beside=0.5, finish=0.4,
            tail=1.9,
        ),
        memory=PeakMemory(), notes=["a note"], error=None, log=f"runs/{run}/log.jsonl",
    )  # fmt: skip
    return msgspec.structs.replace(told, **changes)


STATES = [stream_state("users", {"at": 7}, "shop"), stream_state("orders", {"id": 12})]
