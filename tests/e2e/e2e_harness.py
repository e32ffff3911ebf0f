"""A place for one pipeline's real runs: starts them, watches them die, and looks at what they left
with another implementation's eyes (DuckDB, delta-rs).

Every process of a run is known by a tag: in its environment, which Spark hands on, or in the
connector's command line, whose environment is clean.
"""

import json
import os
import shlex
import signal
import subprocess
import sys
import time
import uuid
from collections import Counter
from collections.abc import Hashable, Iterable
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import deltalake
import duckdb
import msgspec

from penstock.config.home import Home
from penstock.config.sections import StateSettings
from penstock.store.contract import Store
from penstock.store.open import open_store

HERE = Path(__file__).parent
sys.path.append(str(HERE.parent))

import forked_cli  # noqa: E402
import warm_spark  # noqa: E402

STUB = HERE.parent / "stubs" / "stub_source.py"
TAG = "PENSTOCK_E2E_TAG"
RUN_SECONDS = 240.0
STATE: ContextVar[dict[str, str] | None] = ContextVar("STATE", default=None)
"""The section ``state`` of the places that are made; None: the home's SQLite file."""
FEW_PARTITIONS = {"spark.sql.shuffle.partitions": "2"}


@dataclass
class Ended:
    """``report``: what the run printed; None where it was killed before."""

    code: int
    report: dict[str, Any] | None
    told: str

    @property
    def error(self) -> dict[str, Any]:
        assert self.report is not None, self.told[-3000:]
        return self.report["error"] or {}

    def stream(self, name: str) -> dict[str, Any]:
        assert self.report is not None, self.told[-3000:]
        return next(s for s in self.report["streams"] if s["name"] == name)


class Running:
    """A run that goes on."""

    def __init__(
        self, process: "subprocess.Popen[str] | forked_cli.Started", told: Path, out: Path
    ) -> None:
        self.process, self._told, self._out = process, told, out

    def told(self) -> str:
        return self._told.read_text(errors="replace")

    def wait(self, seconds: float = RUN_SECONDS) -> Ended:
        """Its end; a run that does not end in time is killed and has the code 124."""
        try:
            code = self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait(30)
            code = 124
        out = self._out.read_text()
        return Ended(code, json.loads(out) if out else None, self.told())


@dataclass
class Place:
    """``config``: the stub's options; ``told``: further keys of ``one_run``'s argument; ``to``: a
    destination that is no table. Runs have the Spark that stays for these tests, or in ``cache``
    one of the test's own; ``cold``: each run starts one, which ends with it. ``script``: what is
    run, ``one_run.py`` or ``one_api.py``; ``under``: the words before it."""

    folder: Path
    destination: str
    config: dict[str, Any]
    options: dict[str, str] = field(default_factory=dict)
    told: dict[str, Any] = field(default_factory=dict)
    source: str | None = None
    to: str | None = None
    cache: Path | None = None
    cold: bool = False
    script: str = "one_run.py"
    under: list[str] = field(default_factory=list)

    made: ClassVar[list["Place"]] = []

    def __post_init__(self) -> None:
        Place.made.append(self)
        self.tag = f"e2e-{uuid.uuid4().hex}"
        self.lake = self.folder / "lake"
        self.home = self.folder / "home"
        self._runs = 0
        self.state = STATE.get()
        self.folder.mkdir(parents=True, exist_ok=True)

    # -- runs

    def start(self, environ: dict[str, str] | None = None, **config: Any) -> Running:
        """A run in a process of its own; ``config`` goes over the place's, for this run."""
        self._runs += 1
        told = self.argument(**config)
        stays = {}  # lanes have the tag with their jobs
        if self.cold:
            told["conf"] = {**told["conf"], f"spark.executorEnv.{TAG}": self.tag}
            stays = {"PENSTOCK_DAEMON": "0"}
        elif self.cache is not None:
            stays = {"XDG_CACHE_HOME": str(self.cache)}
        told_path = self.folder / f"run-{self._runs}.log"
        out_path = self.folder / f"run-{self._runs}.json"
        stays |= {TAG: self.tag, **(environ or {})}
        with told_path.open("w") as log, out_path.open("w") as out:
            program = [str(HERE / self.script), json.dumps(told)]
            env = warm_spark.as_environment(**stays)
            if forked_cli.takes(program, env) and not (self.under or self.cold):
                process = forked_cli.Started(program, cwd=self.folder, env=env, files=(out, log))
            else:
                process = subprocess.Popen(
                    [*self.under, sys.executable, *program],
                    stdin=subprocess.DEVNULL,
                    stdout=out,
                    stderr=log,
                    env=env,
                    cwd=self.folder,
                )
        return Running(process, told_path, out_path)

    def argument(self, **config: Any) -> dict[str, Any]:
        """What ``one_run`` is told of a run."""
        return {
            "source": self.source_reference,
            "destination": self.to or f"{self.destination}:{self.lake}",
            "home": str(self.home),
            "options": {
                "name": "e2e",
                "config": json.dumps({**self.config, **config}),
                **self.options,
            },
            "master": "local[2]",
            "conf": FEW_PARTITIONS,
            "state": self.state,
            **self.told,
        }

    def run(self, environ: dict[str, str] | None = None, **config: Any) -> Ended:
        return self.start(environ, **config).wait()

    @property
    def source_reference(self) -> str:
        mark = shlex.quote(json.dumps({"tag": self.tag}))
        return self.source or f"airbyte:{sys.executable} {STUB} --with {mark}"

    # -- processes

    def processes(self) -> dict[int, str]:
        """pid -> command of every process of this place's runs."""
        found: dict[int, str] = {}
        for entry in Path("/proc").iterdir():
            if not entry.name.isdigit():
                continue
            try:
                command = (entry / "cmdline").read_bytes()
                marked = command + (entry / "environ").read_bytes()
                zombie = (entry / "stat").read_text().rpartition(")")[2].split()[0] == "Z"
            except OSError:
                continue
            if self.tag.encode() in marked and not zombie:
                found[int(entry.name)] = command.replace(b"\0", b" ").decode()
        return found

    def process(self, *words: str, seconds: float = 60.0) -> int:
        """The first process whose command has all the words, once it is there."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            for pid, command in sorted(self.processes().items()):
                if all(word in command for word in words):
                    return pid
            time.sleep(0.1)
        raise AssertionError(f"no process {words} within {seconds} s")

    def left_after(self, seconds: float) -> dict[int, str]:
        """What is still alive when everything should have ended; it is then ended."""
        deadline = time.monotonic() + seconds
        while (left := self.processes()) and time.monotonic() < deadline:
            time.sleep(0.1)
        for pid in left:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        return left

    def assert_nothing_left(self, seconds: float) -> None:
        left = self.left_after(seconds)
        assert not left, f"left running: {left}"

    # -- what is there

    def rows(self, stream: str) -> list[tuple[int, int]]:
        """(id, seq) of every row of a table, sorted; empty where there is no table."""
        folder = self.lake / stream
        if self.destination == "delta":
            if not (folder / "_delta_log").is_dir():
                return []
            table = deltalake.DeltaTable(str(folder)).to_pyarrow_table(columns=["id", "seq"])
            return sorted(zip(table["id"].to_pylist(), table["seq"].to_pylist(), strict=True))
        if not any(folder.glob("*.parquet")):
            return []
        query = f"SELECT id, seq FROM read_parquet('{folder}/*.parquet') ORDER BY id, seq"
        return duckdb.connect().execute(query).fetchall()

    def open_store(self) -> Store:
        settings = None if self.state is None else msgspec.convert(self.state, StateSettings)
        return open_store(Home(self.home).state_url(settings))

    def saved(self) -> dict[str, int]:
        """stream -> the ``seq`` of its saved state (STREAM states)."""
        store = self.open_store()
        try:
            states = [json.loads(s.blob) for s in store.states("e2e")]
        finally:
            store.close()
        return {
            s["stream"]["stream_descriptor"]["name"]: s["stream"]["stream_state"].get("seq", 0)
            for s in states
        }

    def journal(self) -> list[dict[str, Any]]:
        """The stub's calls, where its ``journal`` is ``self.journal_path``."""
        lines = self.journal_path.read_text().splitlines() if self.journal_path.exists() else []
        return [json.loads(line) for line in lines]

    @property
    def journal_path(self) -> Path:
        return self.folder / "journal.jsonl"


def end_all() -> None:
    """Whatever a test that failed has left running."""
    while Place.made:
        Place.made.pop().left_after(0)


def assert_adds_up(ended: Ended) -> None:
    """L8: ``read = committed + rejected + filtered`` for every complete stream."""
    assert ended.report is not None
    for stream in ended.report["streams"]:
        if stream["status"] == "complete":
            assert stream["read"] == (
                stream["committed"] + stream["rejected"] + stream["filtered"]
            ), stream


def assert_same_rows(found: Iterable[Hashable], wanted: Iterable[Hashable], where: str) -> None:
    """Each row that is wanted once, and no other."""
    there, needed = Counter(found), Counter(wanted)
    missing, more = needed - there, there - needed
    assert not missing, f"{where}: rows are lost: {[*missing][:10]}"
    assert not more, f"{where}: rows twice: {[*more][:10]}"
