"""Commits loads into one Parquet or Delta table, in a process that a test traces: ``python
commits.py FORMAT FOLDER``. Before each commit it says so in ``FOLDER/ledger``, and after it."""

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
from shaped import shaped
from tasks_here import LOCAL

from conftest import Loads
from penstock.model.segments import PlannedOn
from penstock.tables.contract import LoadResult
from penstock.tables.delta.tables import DeltaTables
from penstock.tables.parquet.tables import ParquetTables

NO_SPARK: Any = SimpleNamespace(conf=SimpleNamespace(getAll={}))
FORMATS = {"parquet": ParquetTables, "delta": DeltaTables}
MODES = ("append", "append", "append_dedup", "append_dedup")


def loads_in(folder: Path) -> list[Any]:
    """The loads; the parts of each are written again, the same ones."""
    folder.mkdir(parents=True)
    made: list[Any] = []
    loads = Loads(folder)
    for number, mode in enumerate(MODES, 1):
        replaces = mode == "append_dedup" and MODES[number - 2] != mode
        load = loads.load(number, [{"id": number}, {"id": 0}], mode=mode, replaces=replaces)
        load = load if mode == "append_dedup" else shaped(load)
        inner = msgspec.structs.replace(
            load.load,
            follows=number - 1,
            token=f"t{number}",
            planned=PlannedOn(number - 2, "before"),
        )
        made.append(msgspec.structs.replace(load, load=inner))
    return made


def main(kind: str, folder: Path) -> None:
    tables = FORMATS[kind](str(folder / "lake"))
    for number, load in enumerate(loads_in(folder.parent / "parts"), 1):
        (outcome,) = tables.commit(NO_SPARK, LOCAL, [load])
        assert isinstance(outcome, LoadResult), outcome
        (folder / f"committed-{number}").touch()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
