"""Everything that Penstock makes durable without Spark, once, in one process that a test traces:
``python durable_writes.py FOLDER``. After each step it writes a line to ``FOLDER/promises``, as the
ledger would say that the step is done."""

import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pyarrow as pa
from shaped import shaped
from tasks_here import LOCAL

from conftest import Loads
from penstock.connectors.environments import Environment, Installed, mark_ready
from penstock.engine.channel.mailbox import Mailbox
from penstock.engine.log.kept_rejects import RejectsKeeper
from penstock.engine.log.log import FileLog
from penstock.engine.specs.lane import NewConfig
from penstock.model.catalog import StreamId
from penstock.model.segments import Segment, SegmentId
from penstock.store.lock_holder import this_holder
from penstock.store.open import open_store
from penstock.store.remembered import Remembered, TableNames
from penstock.tables.contract import LoadResult
from penstock.tables.delta.tables import DeltaTables
from penstock.tables.parquet.tables import ParquetTables

NO_SPARK: Any = SimpleNamespace(conf=SimpleNamespace(getAll={}))
MANY = 12  # more than are synced one by one


def main(folder: Path) -> None:
    def promised(what: str) -> None:
        with (folder / "promises").open("a") as file:
            file.write(f"{what}\n")

    log: list[Callable[[Path], None]] = [owner, mark, claim, seal, seal_many, unmark, rejects]
    for step in (home, *log, configuration, environment):
        step(folder)
        promised(step.__name__)
    parts = folder / "parts"
    parts.mkdir()
    tables(folder, Loads(parts), promised)


def home(folder: Path) -> None:
    store = open_store(folder / "home" / "below" / "state.db")
    lease = store.acquire("shop", this_holder("r"), 60)
    names = TableNames(tables={StreamId(None, "t").key: "t"})
    store.remember(lease, Remembered(tables=names))
    store.close()


def log_of(folder: Path) -> FileLog:
    return FileLog(folder / "home" / "log" / "shop")


def owner(folder: Path) -> None:
    log_of(folder).belong_to("birth")


def mark(folder: Path) -> None:
    log_of(folder).mark_unconfirmed(1, "given")


def claim(folder: Path) -> None:
    log_of(folder).claim(1, "me")


def seal(folder: Path, seq: int = 1, parts: int = 2) -> None:
    log, rows = log_of(folder), pa.table({"id": [1, 2]})
    for number in range(parts):
        log.write_part(1, f"{seq:06d}-{number}", rows, raw_bytes=10)
    log.write_part(1, f"{seq:06d}-large", rows, raw_bytes=2 << 20)
    file = log.write_rejects(1, f"{seq:06d}", b'{"reason": "no"}\n')
    at = SegmentId(1, seq)
    segment = Segment(id=at, lane=0, scope=None, slices=(), state="{}", rejects=(file,))
    log.seal(1, [segment])


def seal_many(folder: Path) -> None:
    seal(folder, 2, MANY)


def unmark(folder: Path) -> None:
    log_of(folder).unmark([1])


def rejects(folder: Path) -> None:
    root = log_of(folder).root
    kept = RejectsKeeper(root, folder / "home" / "kept", lambda _: None)
    sealed = log_of(folder).segments()
    for segment in sealed:
        kept.keep(segment)
    log_of(folder).discard(sealed)


def configuration(folder: Path) -> None:
    box = Mailbox(log_of(folder).root, "run", b"k" * 32)
    box.create()
    box.put_config(1, 1, NewConfig(base_hash="hash", config={"token": "new"}))


def environment(folder: Path) -> None:
    place = folder / "home" / "connectors" / "airbyte" / "package" / "1"
    (place / "venv" / "bin").mkdir(parents=True)
    for name in ("python", "source"):
        (place / "venv" / "bin" / name).write_text("#!")
    about = Environment(
        protocol="airbyte", package="package", version="1", key="k", lock="", python="3.11",
        script="source", folder="",
    )  # fmt: skip
    mark_ready(Installed(name="package", environment=about, path=str(place), built_at="now"))


def tables(folder: Path, loads: Loads, promised: Callable[[str], None]) -> None:
    parquet, delta = ParquetTables(str(folder / "lake")), DeltaTables(str(folder / "delta"))

    def load(number: int, table: str = "t", **more: Any) -> Any:
        made = loads.load(number, [{"id": number}, {"id": 0}], table=table, **more)
        made = made if more.get("mode") == "append_dedup" else shaped(made)
        inner = msgspec.structs.replace(made.load, follows=number - 1, token=f"t{number}")
        return msgspec.structs.replace(made, load=inner)

    dedup, overwrite = {"mode": "append_dedup"}, {"mode": "overwrite", "replaces": True}
    batches: dict[str, list[Any]] = {
        "new": [load(1)],
        "appended": [load(2)],
        "many new": [load(1, f"m{n}") for n in range(MANY)],
        "many appended": [load(2, f"m{n}") for n in range(MANY)],
        "merged": [load(1, "d", **dedup)],
        "merged again": [load(2, "d", **dedup)],
        "replaced": [load(3, **overwrite)],
    }
    for name, batch in batches.items():
        for kind in (parquet, delta):
            done = kind.commit(NO_SPARK, LOCAL, batch)
            assert all(isinstance(outcome, LoadResult) for outcome in done), done
            promised(f"{kind.name}: {name}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
