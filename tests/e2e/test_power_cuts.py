"""A power cut takes nothing that a promise stands on (L1 to L4), in whole runs.

By the system calls of real runs (driver, JVM, lanes, tasks, what serves a host): every rename and
link follows a sync of its file and precedes one of its folder, before the ledger says that it is
there. And what a power cut can still leave is mended by the next run.
"""

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pytest
from e2e_harness import Place, end_all
from pipelines import Site
from push_kills import _place as push_place
from push_kills import push_cell

import warm_spark
from forked_cli import SCRIPT
from penstock.tables import disks
from penstock.tables.delta import repair as delta_repair
from penstock.tables.delta import tables as delta
from system_calls import SYNCS, Call, Fault, calls, ordered, traced

pytestmark = [pytest.mark.spark, pytest.mark.slow]
with_strace = pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed")

HERE = Path(__file__).parent
APPEND = {"destination_sync_mode": "append"}
PROMISES_NOTHING = {
    r"/home/log/[^/]+/mailbox/(?!.*/config-)": "driver and lanes talk while they live",
    r"/home/runs/(?!.*/rejects/)": "the report is in the store, and logs are for reading",
    r"/home/state\.db(-wal|-shm|-journal)?$": "SQLite syncs its own files",
    r"/home/connectors/": "locks and caches; environments are in tests/tables",
    r"/lake/\.penstock/": "locks, and files before they have their names",
}
BY_ITSELF = re.compile(r"/lake/.*/_delta_log/[^/]*$")
"""Delta and deltalake give a commit its name before its content is synced: that is done before the
ledger says that it is there, and mended where it came to nothing (below)."""
BY_SPARK = re.compile(r"/lake/.*/(part-|\.part-|deletion_vector)[^/]*$")
"""The data files of a commit that Spark makes, and the same of them."""


@pytest.fixture(autouse=True)
def nothing_goes_on() -> Iterator[None]:
    yield
    end_all()


def exempt(path: str) -> bool:
    return any(re.search(pattern, path) for pattern in PROMISES_NOTHING)


def checked(
    home: Path, lake: Path, trace: Sequence[Call], driver: int
) -> tuple[list[Fault], set[str]]:
    """The ledger promises where ``driver`` commits, the program's own thread; another renews the
    lease."""
    wal = str(home / "state.db-wal")

    def ledger(call: Call) -> tuple[str, ...]:
        says = call.thread == driver and call.name in SYNCS and call.paths[:1] == (wal,)
        return (f"{home}/", f"{lake}/") if says else ()

    found, given = ordered(trace, (home, lake), ledger, exempt)
    own = [
        fault
        for fault in found
        if not (
            (BY_ITSELF.search(fault.path) and "before its" in fault.before)
            or (
                BY_SPARK.search(fault.path)
                and not fault.before.endswith(("the ledger says so", "at the end"))
            )
        )
    ]
    return own, given


def told(faults: Sequence[Fault]) -> str:
    return "\n".join(sorted({str(fault) for fault in faults})[:60])


@dataclass
class Traced:
    """A run's place, its system calls, and the program's own thread."""

    place: Place
    calls: list[Call]
    driver: int

    def checked(self, trace: Sequence[Call] | None = None) -> tuple[list[Fault], set[str]]:
        place = self.place
        return checked(place.home, place.lake, self.calls if trace is None else trace, self.driver)

    def missed_without(self, where: str) -> bool:
        """Whether a trace without the syncs of paths that match ``where`` has faults."""
        left = [
            call
            for call in self.calls
            if not (call.name in SYNCS and re.search(where, " ".join(call.paths[:1])))
        ]
        assert len(left) < len(self.calls), f"no sync of {where}"
        return bool(self.checked(left)[0])


PARQUET, DELTA, CONNECTOR = "parquet", "delta", "connector"


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Traced]:
    """Three runs of one process, with the Java, lanes and tasks below it: into a Parquet table that
    there is and a new one; into a Delta table that Spark alone writes to; and into a connector."""
    folder = tmp_path_factory.mktemp("traced")
    parquet = Place(folder / PARQUET, "parquet", {"streams": 1, "records": 50}, APPEND)
    assert parquet.run().code == 0
    parquet.config = {"streams": 2, "records": 100}
    delta = Place(folder / DELTA, "delta", {"streams": 1, "records": 50}, APPEND)
    deltalake.write_deltalake(
        str(delta.lake / "s0"),
        pa.table({"id": pa.array([], pa.int64())}),
        configuration={"delta.enableChangeDataFeed": "true"},
    )
    connector = push_place(push_cell("airbyte-push/mid-push/program"), folder / CONNECTOR)
    connector.config = {**connector.config, "records": 60}
    places = {PARQUET: parquet, DELTA: delta, CONNECTOR: connector}
    told = json.dumps([place.argument() for place in places.values()])
    file = folder / "trace"
    done = subprocess.run(
        [*traced(file), sys.executable, str(HERE / "several_runs.py"), told],
        capture_output=True,
        env=warm_spark.as_environment(PENSTOCK_DAEMON="0"),
        timeout=400,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    every = [*calls(file)]
    found: dict[str, Traced] = {}
    left = iter(every)
    for name, place in places.items():
        over = (str(place.home.with_name("ended")),)
        own = [*takewhile(lambda call, over=over: call.paths[:1] != over, left)]
        found[name] = Traced(place, own, driver=every[0].thread)
        assert any(call.thread == every[0].thread and call.name in SYNCS for call in own)
    return found


@with_strace
def test_l2_l3_a_run_into_parquet_by_its_system_calls(runs: dict[str, Traced]) -> None:
    run = runs[PARQUET]
    faults, given = run.checked()
    assert not faults, told(faults)
    names = "\n".join(given)
    for name in (r"/seg-\d+\.json$", r"/lake/s1$", r"/lake/s0/_penstock\.json$"):
        assert re.search(name, names, re.M), names
    for where in (
        r"/epochs/\d+$",
        r"/epochs/\d+/CLAIM",
        r"/parts(/.*)?$",
        r"/lake/s\d$",
        r"/\.seg-",
    ):
        assert run.missed_without(where), where


@with_strace
def test_l3_a_commit_by_java_is_synced_before_the_ledger_says_so(runs: dict[str, Traced]) -> None:
    run = runs[DELTA]
    faults, given = run.checked()
    assert not faults, told(faults)
    assert [path for path in given if path.endswith("/_delta_log/00000000000000000001.json")]
    assert any("/part-" in name for call in run.calls for name in call.paths)
    assert run.missed_without(r"/lake$")


@with_strace
def test_l1_l8_a_run_into_a_connector_by_its_system_calls(runs: dict[str, Traced]) -> None:
    faults, given = runs[CONNECTOR].checked()
    assert not faults, told(faults)
    assert any(path.rpartition("/")[2].startswith("seg-") for path in given)


@with_strace
def test_l1_l2_what_serves_a_host_by_its_system_calls(tmp_path: Path) -> None:
    home, lake, file = tmp_path / "home", tmp_path / "lake", tmp_path / "trace"
    config = tmp_path / "c.json"
    config.write_text(json.dumps({"destination": f"parquet:{lake}", "pipeline": "served"}))
    lines: list[dict[str, Any]] = [
        {
            "type": "SCHEMA", "stream": "s0", "key_properties": [],
            "schema": {"type": "object", "properties": {"id": {"type": "integer"}}},
        },
        *({"type": "RECORD", "stream": "s0", "record": {"id": n}} for n in range(20)),
        {"type": "STATE", "value": {"at": 20}},
    ]  # fmt: skip
    done = subprocess.run(
        [*traced(file), str(SCRIPT), "serve", "target", "--as", "singer", "--config", str(config)],
        input="".join(json.dumps(line) + "\n" for line in lines).encode(),
        capture_output=True,
        env=warm_spark.as_environment(PENSTOCK_HOME=str(home), PENSTOCK_DAEMON="0"),
        timeout=200,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert json.loads(done.stdout.splitlines()[-1]) == {"at": 20}
    trace = list(calls(file))
    faults, given = checked(home, lake, trace, trace[0].thread)
    assert not faults, told(faults)
    assert str(lake / "s0") in given and any("/seg-" in path for path in given)


# -- what the next run finds


@pytest.fixture
def rebooted(monkeypatch: pytest.MonkeyPatch) -> Callable[[Path], None]:
    """The machine starts again: what was written is older than that."""

    def reboot(folder: Path) -> None:
        import os

        monkeypatch.setattr(delta_repair, "boot", lambda: "the next")
        for path in folder.rglob("*"):
            os.utime(path, ((disks.booted_at() or 0) - 3600,) * 2)

    return reboot


def test_l3_a_marker_that_came_back_empty_is_rebuilt_and_the_run_goes_on(
    site: Callable[..., Site],
) -> None:
    here = site()
    assert here.run({"records": 20}, defaults=APPEND).exit_code == 0
    marker = here.lake / "s0" / "_penstock.json"
    marker.write_bytes(b"")
    ran = here.run({"records": 30}, defaults=APPEND)
    assert ran.exit_code == 0, ran.error
    assert ran.noted("marker of table s0 was damaged")
    assert here.seqs("s0") == list(range(1, 31))
    assert json.loads(marker.read_bytes())["applied"]


def test_l3_a_marker_that_cannot_be_rebuilt_names_a_way_out_that_works(
    site: Callable[..., Site],
) -> None:
    here = site(streams=1)
    here.run({"records": 20}, defaults=APPEND)
    table = here.lake / "s0"
    shutil.copy(next(table.glob("*.parquet")), table / "t-00000000-00000.parquet")
    (table / "_penstock.json").write_bytes(b"")
    ran = here.run({"records": 30}, defaults=APPEND)
    assert (ran.exit_code, ran.error["code"]) == (5, "destination.marker_damaged"), ran.error
    assert "--recreate" in ran.error["hint"] and here.saved() == {"s0": {"seq": 20}}
    shutil.move(table, here.folder / "aside")
    again = here.run({"records": 30}, defaults=APPEND, recreate=True)
    assert again.exit_code == 0, again.error
    assert here.seqs("s0") == list(range(1, 31))


@pytest.mark.parametrize("by", ["java", "deltalake"])
@pytest.mark.parametrize("damage", ["empty", "files"])
def test_l3_a_first_delta_commit_lost_in_a_power_cut_is_made_again(
    site: Callable[..., Site],
    monkeypatch: pytest.MonkeyPatch,
    rebooted: Callable[[Path], None],
    by: str,
    damage: str,
) -> None:
    if by == "java":
        monkeypatch.setattr(delta, "table_for", lambda *_: None)
    here = site("delta")

    def cut(_: Path) -> None:
        raise OSError(5, "the power is gone")

    with monkeypatch.context() as patch:
        patch.setattr(delta, "sync_file_system", cut)
        assert here.run({"records": 20}, defaults=APPEND).exit_code != 0
    (commit,) = (here.lake / "s0" / "_delta_log").glob("*.json")
    if damage == "empty":
        commit.write_bytes(b"")
    else:
        for file in (here.lake / "s0").glob("*.parquet"):
            file.unlink()
    rebooted(here.lake)
    ran = here.run({"records": 30}, defaults=APPEND)
    assert ran.exit_code == 0, ran.error
    assert ran.noted("lost in a power cut")
    assert here.seqs("s0") == list(range(1, 31))
