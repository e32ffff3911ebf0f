"""Power cuts at every system call of real commits: whatever the disk may hold then, the loads that
the ledger has open are repeated, and the table has each row exactly once (L3)."""

import os
import re
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import commits
import duckdb
import pytest
from deltalake import DeltaTable
from tasks_here import LOCAL

from penstock.tables.contract import LoadResult
from penstock.tables.delta import repair as delta_repair
from power_cut_states import Keeps, Replay, keeps
from system_calls import calls, traced

HERE = Path(__file__).parent

pytestmark = [
    pytest.mark.dear,
    pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed"),
]


def rows(kind: str, lake: Path) -> list[int]:
    folder = lake / "t"
    if kind == "delta":
        table = DeltaTable(str(folder)).to_pyarrow_table(columns=["id"])
        return sorted(table["id"].to_pylist())
    found = duckdb.connect().execute(f"SELECT id FROM read_parquet('{folder}/*.parquet')")
    return sorted(row[0] for row in found.fetchall())


WANTED = ([0, 1], [0, 0, 1, 2], [0, 3], [0, 3, 4])  # after each load: appended, replaced, merged


class Cuts:
    """The states that power cuts leave of a traced run, each once."""

    def __init__(self, kind: str, folder: Path) -> None:
        self.kind, self.folder, self.place = kind, folder, folder / "traced" / "place"
        self.place.mkdir(parents=True)
        file = folder / "trace"
        words = [*traced(file), str(HERE / "commits.py"), kind, str(self.place)]
        words[words.index("-s") + 1] = "1000000"
        at = words.index(str(HERE / "commits.py"))
        subprocess.run(
            [*words[:1], "-xx", *words[1:at], sys.executable, *words[at:]],
            check=True,
            timeout=120,
            env={**os.environ, "PYTHONPATH": f"{HERE}:{HERE.parent}"},
        )
        self.trace = list(calls(file))

    def states(self) -> Iterator[tuple[str, int, Path]]:
        """(what it is, the loads that the ledger has marked, the folder)."""
        replay, committed, seen = Replay(self.place), 0, set[Any]()
        for index, call in enumerate(self.trace):
            if not replay.take(call):
                continue
            for path in call.paths:
                if found := re.search(r"/committed-(\d+)$", path):
                    committed = int(found[1])
            for kept in keeps(index):
                state = self.folder / f"{index}-{kept.name}"
                state.mkdir()
                replay.write_state(state, kept)
                content = (committed, *_content(state / "lake"))
                if content not in seen:
                    seen.add(content)
                    yield (
                        f"{kept.name} after call {index} ({call.name} {call.paths})",
                        committed,
                        state,
                    )
                shutil.rmtree(state)
        whole = self.folder / "whole"
        whole.mkdir()
        replay.write_state(whole, Keeps("all", lambda _: True, lambda _, data: data))
        assert _content(whole / "lake") == _content(self.place / "lake"), "the replay went wrong"


def _content(folder: Path) -> tuple[tuple[str, bytes], ...]:
    files = (p for p in sorted(folder.rglob("*")) if p.is_file() and p.parent.name != ".penstock")
    return tuple((str(p.relative_to(folder)), p.read_bytes()) for p in files)


@pytest.mark.parametrize("kind", ["parquet", "delta"])
def test_l3_no_power_cut_loses_or_doubles_a_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setattr(delta_repair, "boot", lambda: "the next")
    monkeypatch.setattr(delta_repair, "older_than_boot", lambda _: True)
    cuts = Cuts(kind, tmp_path / "cuts")
    loads = commits.loads_in(tmp_path / "parts")
    met = Counter[str]()
    for what, committed, state in cuts.states():
        tables = commits.FORMATS[kind](str(state / "lake"))
        for load in loads[committed : committed + 2]:
            (outcome,) = tables.commit(commits.NO_SPARK, LOCAL, [load])
            assert isinstance(outcome, LoadResult), (what, load.load.number, outcome, outcome.hint)
            met.update(["repeated"] if outcome.repeated else [])
            met.update(outcome.notes)
            assert rows(kind, state / "lake") == WANTED[load.load.number - 1], what
        met.update(["states"])
    assert met["states"] > 25 and met["repeated"] >= 3, met
    assert kind == "parquet" or any("power cut" in words for words in met), met
