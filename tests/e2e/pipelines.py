"""One pipeline in a folder of its own: written to a file, run in this process or by the command
line, and looked at with another implementation's eyes (DuckDB, delta-rs).

The stub's options stand in the connector's command line, so that a test can change what the source
does and leave the user's configuration as it was.
"""

import json
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import deltalake
import duckdb
import msgspec

import forked_cli
import warm_spark
from penstock.config.home import Home
from penstock.config.load import load_pipeline
from penstock.engine.inspect.runs import rejects
from penstock.engine.run.start import run_pipeline
from penstock.model.report import Report, StreamReport
from penstock.protocols import load as load_protocol
from penstock.store.contract import Store
from penstock.store.open import open_store

STUB = Path(__file__).parents[1] / "stubs" / "stub_source.py"
NAME = "e2e"
MASTER = "local[2]"  # the one that the process's shared session is on
CLI_SECONDS = 240.0

Row = dict[str, Any]


class Heard:
    """A run's observer that remembers."""

    def __init__(self) -> None:
        self.phases: list[tuple[str, str]] = []
        self.lines: list[tuple[str, str, str]] = []
        self.notes: list[str] = []

    def phase(self, name: str, detail: str) -> None:
        self.phases.append((name, detail))

    def stream(self, *about: object) -> None:
        del about

    def expected(self, *about: object) -> None:
        del about

    def log(self, level: str, origin: str, message: str) -> None:
        self.lines.append((level, origin, message))

    def note(self, text: str) -> None:
        self.notes.append(text)


class Ran:
    """A report, and how it was told."""

    def __init__(self, report: Report, heard: Heard) -> None:
        self.report, self.heard = report, heard
        self.status, self.exit_code = report.status, report.exit_code
        self.notes, self.guarantee = report.notes, report.guarantee
        self.error: dict[str, Any] = report.error or {}

    def stream(self, name: str, namespace: str | None = None) -> StreamReport:
        found = [s for s in self.report.streams if (s.namespace, s.name) == (namespace, name)]
        assert len(found) == 1, [(s.namespace, s.name) for s in self.report.streams]
        return found[0]

    def counts(self, name: str, namespace: str | None = None) -> tuple[str, int, int, int]:
        """(status, read, committed, rejected)."""
        s = self.stream(name, namespace)
        return s.status, s.read, s.committed, s.rejected

    def noted(self, *words: str) -> str:
        """The one note that has all the words."""
        found = [n for n in self.notes if all(w in n for w in words)]
        assert len(found) == 1, (words, self.notes)
        return found[0]


class Answer:
    """What a command left: its exit code, stdout and stderr."""

    def __init__(self, done: "subprocess.CompletedProcess[bytes]") -> None:
        self.code, self.out, self.err = done.returncode, done.stdout.decode(), done.stderr.decode()

    @property
    def json(self) -> Any:
        """All of stdout as one JSON document."""
        return json.loads(self.out)

    @property
    def error(self) -> dict[str, Any]:
        return self.json["error"]


class Site:
    """``format``: parquet or delta. ``stub``: options of the stub for every run."""

    def __init__(self, folder: Path, format: str = "parquet", **stub: Any) -> None:
        self.folder, self.format, self.stub = folder, format, stub
        self.lake = folder / "lake"
        self.home = Home(folder / "home")
        self.journal_path = folder / "journal.jsonl"
        folder.mkdir(parents=True, exist_ok=True)

    def with_connectors(self, environments: Path) -> "Site":
        """Itself, its home with these environments of connectors."""
        self.home.path.mkdir(parents=True, exist_ok=True)
        (self.home.path / "connectors").symlink_to(environments)
        return self

    # -- the pipeline

    def connector(self, **stub: Any) -> str:
        told = {"journal": str(self.journal_path), **self.stub, **stub}
        return f"airbyte:{sys.executable} {STUB} --with {shlex.quote(json.dumps(told))}"

    def document(
        self,
        stub: dict[str, Any] | None = None,
        *,
        use: str | None = None,
        config: dict[str, Any] | None = None,
        streams: list[dict[str, Any]] | None = None,
        defaults: dict[str, Any] | None = None,
        destination: dict[str, Any] | None = None,
        source_keys: dict[str, Any] | None = None,
        **sections: Any,
    ) -> dict[str, Any]:
        source: dict[str, Any] = {
            "use": use or self.connector(**(stub or {})),
            "config": config or {},
            **(source_keys or {}),
        }
        if streams is not None:
            source["streams"] = streams
        if defaults is not None:
            source["defaults"] = defaults
        return {
            "pipeline": NAME,
            "source": source,
            "destination": {
                "use": self.format,
                "config": {"path": str(self.lake)},
                **(destination or {}),
            },
            "spark": {"master": MASTER},
            **sections,
        }

    def write(self, stub: dict[str, Any] | None = None, **parts: Any) -> Path:
        """The pipeline's file: JSON, which is YAML."""
        path = self.folder / "pipeline.yaml"
        path.write_text(json.dumps(self.document(stub, **parts), indent=2))
        return path

    # -- runs

    def run(
        self,
        stub: dict[str, Any] | None = None,
        *,
        dry_run: bool = False,
        limit: int | None = None,
        full_refresh: bool = False,
        recreate: bool = False,
        ends_histories: bool = False,
        **parts: Any,
    ) -> Ran:
        """One run in this process. Holds L8 against its report, and the report against what the
        run's folder and the store keep of it."""
        pipeline = load_pipeline(self.write(stub, **parts), env={})
        heard = Heard()
        report = run_pipeline(
            pipeline,
            self.home,
            observer=heard,
            dry_run=dry_run,
            limit=limit,
            full_refresh=full_refresh,
            recreate=recreate,
            yes=ends_histories,
        )
        assert_adds_up(report)
        assert_all_time_is_named(report)
        if not dry_run and limit is None:
            self._assert_kept(report)
        return Ran(report, heard)

    def _assert_kept(self, report: Report) -> None:
        told = msgspec.to_builtins(report)
        folder = self.home.run(report.run)
        assert json.loads((folder / "report.json").read_text()) == told
        for file in ("report.json", "log.jsonl"):
            assert (folder / file).stat().st_mode & 0o077 == 0
        with self.store() as store:
            (stored,) = store.runs(NAME, 1)
        for each in (stored, told):  # the store is closed before these seconds have passed
            each["time"] = {k: v for k, v in each["time"].items() if k not in ("wall", "close")}
        assert stored == told

    def cli(
        self, *words: str, stdin: str = "", folder: Path | None = None, **environ: str
    ) -> Answer:
        """The console script, with this site's home and nothing else of ours. Runs have the Spark
        that stays for these tests."""
        told = {"PENSTOCK_HOME": str(self.home.path), "NO_COLOR": "1", **environ}
        done = forked_cli.run(
            words,
            stdin=stdin.encode(),
            cwd=folder or self.folder,
            env=warm_spark.as_environment(**told),
            timeout=CLI_SECONDS,
        )
        return Answer(done)

    # -- what is there

    def store(self) -> "_Opened":
        return _Opened(self.home)

    def tables(self) -> list[str]:
        """Tables in the lake, as ``name`` or ``namespace/name``."""
        files = {f.parent for f in self.lake.rglob("*.parquet")}
        found = (f.relative_to(self.lake) for f in files)
        return sorted(str(f) for f in found if not f.name.startswith(("_", ".")))

    def rows(self, table: str, order: str = "seq") -> list[Row]:
        """Every row of a table, by ``order``; empty where there is no table."""
        return list(self._rows(table, order))

    def _rows(self, table: str, order: str) -> Iterator[Row]:
        folder = self.lake / table
        if self.format == "delta":
            if not (folder / "_delta_log").is_dir():
                return
            arrow = deltalake.DeltaTable(str(folder)).to_pyarrow_table()
            yield from arrow.sort_by(order).to_pylist()
            return
        if not any(folder.glob("*.parquet")):
            return
        found = duckdb.connect().sql(
            f"SELECT * FROM read_parquet('{folder}/*.parquet') ORDER BY \"{order}\""
        )
        yield from found.to_arrow_table().to_pylist()

    def seqs(self, table: str) -> list[int]:
        return [row["seq"] for row in self.rows(table)]

    def ids(self, table: str) -> list[tuple[int, int]]:
        """(id, seq) of every row, sorted."""
        return sorted((row["id"], row["seq"]) for row in self.rows(table))

    def described(self) -> dict[str, Any]:
        """``{"type", "streams", "shared"}`` of the saved state."""
        with self.store() as store:
            return load_protocol("airbyte").state.describe(store.states(NAME))

    def saved(self) -> dict[str, Any]:
        """stream -> its saved state (STREAM and GLOBAL)."""
        return {e["name"]: e["state"] for e in self.described()["streams"]}

    def rejects(self) -> list[dict[str, Any]]:
        with self.store() as store:
            return list(rejects(store, self.home, NAME))

    def journal(self, command: str = "read") -> list[dict[str, Any]]:
        """The stub's calls of one command."""
        lines = self.journal_path.read_text().splitlines() if self.journal_path.exists() else []
        return [call for line in lines if (call := json.loads(line))["command"] == command]

    def files_with(self, text: str) -> list[str]:
        """Files of the home that hold ``text``, the store among them."""
        files = sorted(p for p in self.home.path.rglob("*") if p.is_file())
        return [
            str(p.relative_to(self.home.path)) for p in files if text.encode() in p.read_bytes()
        ]


class _Opened:
    def __init__(self, home: Home) -> None:
        self._store: Store = open_store(home.state_url())

    def __enter__(self) -> Store:
        return self._store

    def __exit__(self, *_: object) -> None:
        self._store.close()


def assert_all_time_is_named(report: Report) -> None:
    """The seconds of a report add up to the run's within 3 %."""
    it = report.time
    named = it.install + it.prepare + it.start + it.stage + it.lane + it.extract + it.load
    named += it.finish + it.discover - it.beside
    assert abs(named - report.seconds) <= 0.03 * report.seconds + 0.01, it


def assert_adds_up(report: Report) -> None:
    """L8: ``read = committed + rejected + filtered`` for every complete stream."""
    for stream in report.streams:
        if stream.status == "complete":
            assert stream.read == stream.committed + stream.rejected + stream.filtered, stream


def changes_of(row: Row) -> list[tuple[str, str, str]]:
    """(field, change, reason) of a row's ``_airbyte_meta``."""
    meta = row["_airbyte_meta"]
    return [(c["field"], c["change"], c["reason"]) for c in meta["changes"] or ()]
