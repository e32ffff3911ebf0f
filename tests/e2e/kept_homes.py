"""Keeps homes, state stores and tables that earlier code made, for the tests that today's code goes
on with them (``test_kept_homes.py``): makes them, and unpacks them.

    python tests/e2e/kept_homes.py CHECKOUT [CASE ...]

CHECKOUT: a checkout of the earlier code whose ``.venv`` is set up; only its command line is used.
The result is ``tests/fixtures/kept_homes/homes-COMMIT.tar.xz``: one folder per case with
``pipeline.yaml``, ``home``, ``lake``, the source's journal and what a destination was sent. Make
another archive with the code as it is before an issue that changes what a home or a table holds;
archives that are there stay, and every one is tested.

A case is a list of runs. A run that names a failpoint (``engine.specs.failpoints``) is killed
there. The connectors are the stubs, behind a program beside the pipeline file, so that the
reference that the home stores stays the same. Absolute paths are kept as ``@ROOT@``, in the store
too, and put in again where the archive is unpacked.
"""

import json
import os
import shutil
import sqlite3
import subprocess
import sys
import tarfile
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import kept_newest

KEPT = Path(__file__).parents[1] / "fixtures" / "kept_homes"
STUBS = Path(__file__).parents[1] / "stubs"
ROOT = "@ROOT@"
KILLED = -9
RUN_SECONDS = 300

UPSERT = {"sync_mode": "incremental", "destination_sync_mode": "append_dedup"}
APPEND = {"sync_mode": "incremental", "destination_sync_mode": "append"}
OVERWRITE = {"sync_mode": "full_refresh", "destination_sync_mode": "overwrite"}
THREE = [{"name": "users", **UPSERT}, {"name": "events", **APPEND}, {"name": "plans", **OVERWRITE}]
LEAVES_OUT = "SELECT * FROM input WHERE name <> 'Bea' AND name <> 'Cid'"
MODELS = {"query": "spark:SELECT * FROM parquet.`{}/users.parquet`", "csv": "spark:{}/parts.csv"}
KNOWS_REMOVALS = {"type": "object", "properties": {"_ab_cdc_deleted_at": {"type": "string"}}}
KEYS = 30  # the key comes again every 30 records
SLOW = {"delay": 0.12, "interleave": True}  # longer than the 10 s after which a state is sealed


@dataclass
class Run:
    """``options``: of the stub; of a model, its file (``give``). ``failpoint``: where the program
    is killed."""

    options: dict[str, Any]
    failpoint: str | None = None
    sink: dict[str, Any] = field(default_factory=dict)


@dataclass
class Case:
    """``sink``: the protocol of a destination that is no table. ``model``: of ``MODELS``, in place
    of a source that is a connector."""

    name: str
    runs: list[Run]
    streams: list[dict[str, Any]] | None = None
    stub: str = "stub_source.py"
    options: dict[str, Any] = field(default_factory=dict)
    format: str = "parquet"
    sink: str | None = None
    model: str | None = None
    defaults: dict[str, Any] = field(default_factory=dict)
    transforms: list[dict[str, Any]] = field(default_factory=list)
    deletes: str = "hard"


def airbyte(name: str, format: str, *runs: Run, **options: Any) -> Case:
    """Three streams, one of each mode."""
    streams = [{"name": s["name"], "is_resumable": False} for s in THREE]
    return Case(
        f"{name}-{format}",
        list(runs),
        THREE,
        options={"streams": streams, "key_space": KEYS, "state_every": 20, **options},
        format=format,
    )


def cases() -> list[Case]:
    found: list[Case] = []
    for format in ("parquet", "delta"):
        done = Run({"records": 50})
        found += [
            airbyte("stream", format, done),
            airbyte("intent", format, done, Run({"records": 80}, "after-intent:1@program")),
            airbyte("commit", format, done, Run({"records": 80}, "after-commit:1@program")),
            airbyte(
                "sealed", format, done,
                Run({"records": 100, "hang_after": 200, **SLOW}, "after-seal:1@program"),
            ),
            Case(
                f"generation-{format}",
                [
                    Run({"records": 40}),
                    Run({"records": 200, "hang_after": 160, **SLOW}, "after-seal:1@program"),
                ],
                [{"name": "plans", **OVERWRITE}],
                options={
                    "streams": [{"name": "plans", "is_resumable": True}],
                    "resumes": True, "state_every": 20,
                },
                format=format,
            ),
            Case(
                f"mirror-{format}", [Run({"rows": FIRST}), Run({"rows": SECOND})], model="query",
                format=format, defaults=keyed("mirror"),
            ),
            filtered(f"mirror-filter-{format}", "mirror", format=format),
            filtered(f"insert-filter-{format}", "insert", format=format),
            Case(
                f"undeclared-{format}", [Run({"steps": undeclared(1, 2)})], THREE[:2],
                "stub_tap.py", options={"streams": [{"name": s["name"]} for s in THREE[:2]]},
                format=format,
            ),
            Case(
                f"newest-{format}",
                [Run({"steps": kept_newest.steps(rows, number)})
                 for number, rows in enumerate((kept_newest.FIRST, kept_newest.SECOND), 1)],
                options={"streams": kept_newest.streams()}, format=format, defaults=UPSERT,
                deletes="soft",
            ),
            Case(
                f"csv-{format}", [Run({"csv": PARTS})], model="csv", format=format,
                defaults=keyed("mirror" if format == "delta" else "upsert"),
            ),
        ]  # fmt: skip
    shared = [{"name": "users", **UPSERT}, {"name": "events", **APPEND}]
    plain = [{"name": s["name"]} for s in shared]
    found += [
        Case(
            "global", [Run({"records": 50})], shared,
            options={"streams": plain, "key_space": KEYS, "state_type": "GLOBAL"},
        ),
        Case(
            "global-sealed",
            [
                Run({"records": 50}),
                Run({"records": 130, "hang_after": 130, **SLOW}, "after-seal:1@program"),
            ],
            shared,
            options={"streams": plain, "key_space": KEYS, "state_type": "GLOBAL"},
        ),
        Case(
            "singer", [Run({"records": 50})], shared, "stub_tap.py",
            options={"streams": plain, "key_space": KEYS},
        ),
        Case(
            "singer-sealed",
            [
                Run({"records": 50}),
                Run({"records": 130, "hang_after": 130, **SLOW}, "after-seal:1@program"),
            ],
            shared, "stub_tap.py",
            options={"streams": plain, "key_space": KEYS},
        ),
        Case(
            "push-airbyte",
            [Run({"records": 50}), Run({"records": 90}, "before-settle:1@program")],
            [{"name": s["name"], **APPEND} for s in shared],
            options={"streams": plain, "interleave": True},
            sink="airbyte",
        ),
        Case(
            "push-singer",
            [Run({"records": 50}), Run({"records": 90}, "after-order:1@program")],
            [{"name": s["name"], **APPEND} for s in shared], "stub_tap.py",
            options={"streams": plain, "interleave": True},
            sink="singer",
        ),
        filtered("mirror-filter-push", "mirror", sink="syncmaven"),
        Case(
            "namespaces-both", [Run({"steps": spelled((1, 10, None), (101, 110, ""))})],
            options={"streams": [{"name": "users"}, {"name": "users", "namespace": ""}]},
            defaults=UPSERT,
        ),
        Case(
            "namespace-empty", [Run({"steps": spelled((1, 10, ""))})],
            options={"streams": [{"name": "users", "namespace": ""}]}, defaults=UPSERT,
        ),
    ]  # fmt: skip
    return found


def keyed(mode: str) -> dict[str, Any]:
    return {"mode": mode, "primary_key": [["id"]]}


def filtered(name: str, mode: str, **parts: Any) -> Case:
    """A model whose query leaves rows out: Cid of the first run, Bea of the second."""
    runs = [Run({"rows": FIRST}), Run({"rows": SECOND})]
    query = {"use": "transform-sql", "config": {"query": LEAVES_OUT}}
    return Case(name, runs, model="query", defaults=keyed(mode), transforms=[query], **parts)


def undeclared(first: int, last: int) -> list[dict[str, Any]]:
    """Steps of a tap: records of both streams with a property that their SCHEMA does not declare.
    Every record says which it is."""
    steps: list[dict[str, Any]] = []
    for stream in ("users", "events"):
        steps.append({"schema": stream})
        for seq in range(first, last + 1):
            record = {"id": seq, "seq": seq, "name": f"n{seq}", "nick": f"x{seq}"}
            steps.append({"record": {"stream": stream, "record": record}})
    mark = {"replication_key": "seq", "replication_key_value": last}
    return [*steps, {"state": {"bookmarks": {"users": mark, "events": mark}}}]


def spelled(*parts: tuple[int, int, str | None]) -> list[dict[str, Any]]:
    """Steps of a source: records (first, last, namespace) of the stream ``users``. The first part's
    state comes last."""
    records = [
        {"records": {"stream": "users", "namespace": n, "from": first, "to": last}}
        for first, last, n in parts
    ]
    states = [
        {"state": {"stream": "users", "namespace": n, "state": {"seq": last}}}
        for _, last, n in reversed(parts)
    ]
    return [*records, *states]


def document(case: Case, folder: Path) -> dict[str, Any]:
    protocol = "singer" if case.stub == "stub_tap.py" else "airbyte"
    source: dict[str, Any] = {"use": f"{protocol}:{folder / 'source'}"}
    if case.model:
        source["use"] = MODELS[case.model].format(folder)
    if case.streams is not None:
        source["streams"] = case.streams
    if case.defaults:
        source["defaults"] = case.defaults
    to: dict[str, Any] = {"use": case.format, "config": {"path": str(folder / "lake")}}
    if case.sink:
        to = {"use": f"{case.sink}:{folder / 'destination'}", "config": {}}
    if case.deletes != "hard":
        to["deletes"] = case.deletes
    transforms = {"transforms": case.transforms} if case.transforms else {}
    return {
        "pipeline": "kept",
        "source": source,
        "destination": to,
        **transforms,
        "spark": {"master": "local[2]", "conf": {"spark.sql.shuffle.partitions": "2"}},
    }


def put_connectors(folder: Path) -> None:
    """The connectors' programs; ``stubs`` are those of the checkout that this file is in."""
    for name in ("source", "destination"):
        shutil.copy(KEPT / "connector", folder / name)
        (folder / name).chmod(0o755)
    (folder / "stubs").mkdir(exist_ok=True)
    for stub in STUBS.glob("stub_*.py"):
        shutil.copy(stub, folder / "stubs")


def ask(folder: Path, stub: str, options: dict[str, Any], sink: str | None = None) -> None:
    """Says what the source does in the next run. ``sink``: the protocol of a destination that is
    no table."""
    told = {"journal": "@HERE@/journal.jsonl", **options}
    _say(folder, "source", stub, "--with", json.dumps(told))
    if sink == "airbyte":
        _say(
            folder, "destination", "stub_destination.py", "--with", '{"sink": "@HERE@/sink.jsonl"}'
        )
    elif sink == "singer":
        _say(
            folder, "destination", "stub_target.py", '{"save": "@HERE@/sink.jsonl", "ack": "each"}'
        )
    elif sink == "syncmaven":
        told = {"sink": "@HERE@/sink.jsonl", "row_type": KNOWS_REMOVALS}
        _say(folder, "destination", "stub_syncmaven.py", json.dumps(told))


def _say(folder: Path, connector: str, stub: str, *words: str) -> None:
    text = json.dumps({"stub": stub, "words": words})
    (folder / f"{connector}.json").write_text(text)


def give(folder: Path, python: str | Path, options: dict[str, Any]) -> None:
    """Writes a model's file: ``rows`` (id, name) of a query, or the text of a ``csv``."""
    if "csv" in options:
        (folder / "parts.csv").write_text(options["csv"])
    else:
        program = (
            "import sys, pyarrow as pa, pyarrow.parquet as pq; pq.write_table(pa.Table.from_pylist("
            f"[dict(id=i, name=n) for i, n in {list(options['rows'])!r}]), sys.argv[1])"
        )
        subprocess.run([python, "-c", program, folder / "users.parquet"], check=True)


FIRST = ((1, "Ann"), (2, "Bob"), (3, "Cid"))
SECOND = ((1, "Ann"), (2, "Bea"), (4, "Dan"))
PARTS = """\
id,n,big,price,day,at,flag,text
1,7,12345678901,1.50,2026-01-02,2026-01-02T03:04:05Z,true,a
2,,2,2.25,2026-01-03,2026-01-02T03:04:06.5Z,false,
"""


def make(case: Case, checkout: Path, folder: Path) -> None:
    bin = checkout / ".venv" / "bin"
    folder.mkdir(parents=True)
    put_connectors(folder)
    (folder / "pipeline.yaml").write_text(json.dumps(document(case, folder), indent=1))
    for number, run in enumerate(case.runs):
        if case.model:
            give(folder, bin / "python", run.options)
        ask(folder, case.stub, {**case.options, **run.options}, case.sink)
        kept = {k: v for k, v in os.environ.items() if not k.startswith("PENSTOCK_")}
        environ = {**kept, "PENSTOCK_HOME": str(folder / "home"), "PENSTOCK_DAEMON": "0"}
        if run.failpoint:
            environ |= {"PENSTOCK_FAILPOINT": run.failpoint}
        done = subprocess.run(
            [bin / "penstock", "run", folder / "pipeline.yaml", "--json"],
            env=environ, cwd=folder, capture_output=True, text=True, timeout=RUN_SECONDS,
        )  # fmt: skip
        expected = KILLED if run.failpoint else 0
        assert done.returncode == expected, (
            case.name,
            number,
            done.returncode,
            done.stdout[-3000:],
        )


def settle(folder: Path) -> None:
    """Takes away what no later run reads, and puts ``@ROOT@`` for the folder's path."""
    shutil.rmtree(folder / "stubs")
    for name in ("source", "destination"):
        (folder / name).unlink()
    for noise in folder.rglob("spark.log"):
        noise.unlink()
    move(folder, str(folder), ROOT)


def unpack(archive: Path, case: str, place: Path) -> Path:
    """Unpacks a case's folder below ``place``, with today's connectors; returns it."""
    with tarfile.open(archive) as tar:
        members = [m for m in tar if m.name == case or m.name.startswith(f"{case}/")]
        safe = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}  # not before 3.11.4
        tar.extractall(place, members, **safe)
    folder = place / case
    move(folder, ROOT, str(folder))
    put_connectors(folder)
    return folder


def names(archive: Path) -> list[str]:
    """The cases of an archive."""
    with tarfile.open(archive) as tar:
        return sorted({name.partition("/")[0] for name in tar.getnames()})


def move(folder: Path, old: str, new: str) -> None:
    """Replaces a path in every text file and in the store. Manifests, whose text has a checksum,
    hold no absolute path; this fails where that is no longer so."""
    database = folder / "home" / "state.db"
    _replace_in_store(database, old, new)
    for path in folder.rglob("*"):
        if path.is_file() and path != database and old.encode() in (data := path.read_bytes()):
            assert path.suffix in (".yaml", ".json", ".jsonl") and "seg-" not in path.name, path
            path.write_bytes(data.replace(old.encode(), new.encode()))


def _replace_in_store(database: Path, old: str, new: str) -> None:
    store = sqlite3.connect(database)
    store.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    tables = store.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
    for (table,) in tables:
        for _, column, kind, *_ in store.execute(f"PRAGMA table_info({table})").fetchall():
            if kind == "TEXT":
                # a checksum at the end (``store.checksums``) is of the text before
                store.execute(
                    f"UPDATE {table} SET {column} = "
                    f"replace(rtrim({column}, char(32, 9, 10)), ?, ?) WHERE instr({column}, ?)",
                    (old, new, old),
                )
    store.commit()
    store.execute("VACUUM")
    store.execute("PRAGMA journal_mode = DELETE")
    store.close()


def main() -> None:
    checkout, only = Path(sys.argv[1]).absolute(), sys.argv[2:]
    commit = subprocess.run(
        ["git", "-C", checkout, "rev-parse", "--short=7", "HEAD"],
        check=True, capture_output=True, text=True,
    ).stdout.strip()  # fmt: skip
    with tempfile.TemporaryDirectory(prefix="penstock-kept-") as temporary:
        place = Path(temporary)
        for case in cases():
            if not only or case.name in only:
                print(case.name, flush=True)
                make(case, checkout, place / case.name)
                settle(place / case.name)
        archive = KEPT / f"homes-{commit}.tar.xz"
        with tarfile.open(archive, "w:xz", preset=9) as tar:
            for folder in sorted(place.iterdir()):
                tar.add(folder, folder.name)
    print(archive.name, archive.stat().st_size, "bytes")


if __name__ == "__main__":
    main()
