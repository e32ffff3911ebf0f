"""L10: what another user of the machine gets from a local session's ports, sockets and files:
nothing."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.spark

# A job of a lane is submitted as a run does it, then every port of the JVM is asked for every
# block. That the job cannot be carried out changes nothing of how it is carried.
PROGRAM = """
import json, os, sys, time
from pathlib import Path
sys.path.insert(0, sys.argv[3])
os.umask(0)
from spark_probe import blocks, ports
from penstock.tasks.spark_job import on_spark
from penstock.spark import session
from penstock.spark.sockets import FOLDER, MOST_BYTES
from penstock.tables.contract import SessionNeeds
scratch, conf = Path(sys.argv[1]), json.loads(sys.argv[2])
spark = session.open_session(SessionNeeds(), scratch_dir=scratch, cores=2, conf=conf)
submit = on_spark(spark, scratch / "mailbox", True)
job = json.dumps({"config": {"password": "correct-horse-battery"}}).encode()
try:
    submit("penstock.engine.worker.lane", job)
except Exception as e:
    failed = str(e)
rows = spark.range(3).mapInArrow(lambda batches: batches, "id long").collect()
assert len(rows) == 3
pid = session._current.jvm.process.pid
python = [int(p) for p in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
for t in Path(f"/proc/{pid}/task").iterdir():
    try:
        python += [int(p) for p in (t / "children").read_text().split() if int(p) not in python]
    except FileNotFoundError:  # a thread that has ended
        pass
d = spark.conf.get(FOLDER)
def sockets_in(folder):
    return sum(folder in line for line in Path("/proc/net/unix").read_text().splitlines())
def spark_takes(length):
    java = spark._jvm.org.apache.spark
    conf = java.SparkConf(False).set(FOLDER, "/" * length)
    try:
        return bool(conf.get(java.internal.config.Python.PYTHON_UNIX_DOMAIN_SOCKET_DIR()))
    except Exception:
        return False
found = blocks(pid)
print(json.dumps({
    "ports": len(ports(pid)), "blocks": {k: v.decode("latin-1") for k, v in found.items()},
    "failed": failed, "command": Path(f"/proc/{pid}/cmdline").read_bytes().decode("latin-1"),
    "own_ports": ports(os.getpid()), "python_ports": [q for p in python for q in ports(p)],
    "python": len(python), "sockets": [oct(os.stat(d).st_mode & 0o777), sockets_in(d)],
    "longest": {n: spark_takes(n) for n in (MOST_BYTES, 100)},
    "left": [p.name for p in (scratch / "mailbox").iterdir()],
    "log": oct((scratch / "spark.log").stat().st_mode & 0o777),
    "secret": spark.conf.get("spark.authenticate.secret", "none"),
    "authenticate": spark.conf.get("spark.authenticate", "false"),
}))
session.close_session(spark)
assert not os.path.exists(d), "the sockets' folder ends with the session"
"""


def probed(scratch: Path, conf: dict[str, str]) -> dict[str, Any]:
    kept = {"spark.cleaner.referenceTracking": "false"}  # no block goes before it is asked for
    told = json.dumps({**kept, **conf})
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(scratch), told, str(Path(__file__).parent)],
        capture_output=True,
        text=True,
        env=dict(os.environ),
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_nobody_without_the_secret_gets_a_block_L10(tmp_path: Path) -> None:
    told = probed(tmp_path / "run", {})
    assert told["ports"] >= 2, "the driver's and the block manager's"
    assert told["blocks"] == {}
    assert told["authenticate"] == "true"
    assert told["secret"] == "none", "Spark's own, which no setting holds"
    assert "ended without a result" in told["failed"], "the job reached its process"
    assert told["log"] == "0o600"


def test_no_worker_of_python_can_be_reached_by_another_user_L10(tmp_path: Path) -> None:
    """PySpark's daemon forks for whoever connects, before it asks for the secret. It listens on a
    socket in a folder of mode 0700, and so does the driver; what is left of ports (the gateway, the
    driver's, the block manager's) asks for a secret first."""
    told = probed(tmp_path / "run", {})
    assert told["python"] >= 1, "the daemon was started"
    assert told["python_ports"] == []
    assert told["own_ports"] == []
    assert told["ports"] == 3
    mode, sockets = told["sockets"]
    assert (mode, sockets >= 2) == ("0o700", True), "also where the umask is 0"
    assert told["longest"] == {"59": True, "100": False}


def test_no_block_holds_a_connector_s_configuration_L10(tmp_path: Path) -> None:
    """The door opened on purpose: the probe can get blocks, and they tell nothing."""
    off = {"spark.authenticate": "false", "spark.network.crypto.enabled": "false"}
    told = probed(tmp_path / "run", off)
    assert told["blocks"], "the probe works"
    assert any("take_job" in block or "supervise" in block for block in told["blocks"].values())
    assert not [name for name, block in told["blocks"].items() if "horse-battery" in block]
    assert "horse-battery" not in told["command"]
    assert told["left"] == [], "the file goes with the job"
