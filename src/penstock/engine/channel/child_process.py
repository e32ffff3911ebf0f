"""What runs inside a Spark task: start a process of ours, wait, give its result.

Never work after a fork: the Python worker that calls this was forked by Spark's daemon, and neither
DuckDB nor wasmtime survives that. So a fresh interpreter does everything. It must stay light:
standard library and msgspec only. Neighbours: ``engine.channel.spark_job`` ships the call;
``engine.worker.lane`` and ``engine.worker.feeder`` are the processes.
"""

import os
import signal
import subprocess
import sys

import msgspec

from penstock.errors import Defect, LogError
from penstock.model.variables import OF_SPARK

CLAIMED = 75  # the child's exit code when another process ran this epoch first


def supervise(module: str, job: bytes) -> bytes:
    """Run one process of ours: ``module`` reads ``job`` (``LaneJob``, ``PushJob``) as JSON and
    answers with a result as JSON.

    Raises ``LogError`` (``log.claimed``) when the same job ran before, ``Defect`` when the process
    ended without a result; both make the Spark task fail, and the driver open a new epoch. The
    child stops by itself when this process dies: its stdin ends."""
    child = subprocess.Popen(
        [sys.executable, "-m", module],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,
        cwd="/",
        env=_environment(),
    )
    try:
        if child.stdin is None or child.stdout is None:
            raise Defect(f"{module} has no pipes")
        try:
            child.stdin.write(msgspec.msgpack.encode(len(job)) + job)
            child.stdin.flush()
        except BrokenPipeError:
            pass  # it died at once: its exit code below says why
        result = child.stdout.read()
        code = child.wait(timeout=60)
    finally:
        _end(child)
    if code == CLAIMED:
        raise LogError("this job has run already", code="log.claimed")
    if code != 0 or not result:
        how = f"signal {-code}" if code < 0 else f"exit code {code}"
        raise Defect(f"{module} ended without a result ({how})", code="lane.lost")
    return result


def _environment() -> dict[str, str]:
    """Without Spark's own variables, and with the folder of this package importable as here."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(OF_SPARK)}
    paths = [p for p in sys.path if p and os.path.isdir(os.path.join(p, "penstock"))]
    if paths:
        kept["PYTHONPATH"] = os.pathsep.join(paths)
    return kept


def _end(child: "subprocess.Popen[bytes]") -> None:
    if child.stdin is not None:
        child.stdin.close()
    if child.poll() is None:
        os.killpg(child.pid, signal.SIGKILL)
        child.wait(timeout=10)
