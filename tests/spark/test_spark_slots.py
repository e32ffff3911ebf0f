"""L11: a task that gets no slot of Spark is given up within a bound, and never begins later."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.spark

# Another job of the same session holds its only slot; it ends after the wait was given up.
PROGRAM = """
import json, sys, threading, time
from pathlib import Path
from pyspark.sql import functions as F
from penstock.spark.session import close_session, open_session
from penstock.tables.contract import SessionNeeds
from penstock.tasks import spark_job
scratch = Path(sys.argv[1])
spark = open_session(SessionNeeds(), scratch_dir=scratch, master="local[1]")
spark_job.START_SECONDS, spark_job._LOOK_SECONDS = 2.0, 0.2
held, free = scratch / "held", scratch / "free"

def hold(_):
    held.touch()
    while not free.exists():
        time.sleep(0.05)
    return 1

def other():
    spark.range(0, 1, 1, 1).select(F.udf(hold, "int", useArrow=False)("id")).collect()

holds = threading.Thread(target=other)
holds.start()
while not held.exists():
    time.sleep(0.05)
submit = spark_job.on_spark(spark, scratch / "mailbox", True)
began = time.monotonic()
job = spark_job.SubmittedJob("push", lambda: submit("begins_late", b"{}"))
while (error := job.lost("destination")) is None and time.monotonic() < began + 60:
    time.sleep(0.05)
waited = time.monotonic() - began
free.touch()
holds.join()
again = spark_job.SubmittedJob("push", lambda: submit("begins_late", b"{}"))  # behind the first one
while again.lost("destination") is None and time.monotonic() < began + 60:
    time.sleep(0.05)
answer = {"code": error.code, "exit": error.exit_code, "hint": error.hint, "waited": waited,
          "again": str(again.lost("destination")), "begun": (scratch / "begun").read_text()}
print(json.dumps(answer))
close_session(spark)
"""


def test_l11_a_destination_that_gets_no_slot_is_given_up_and_does_not_begin_later(
    tmp_path: Path,
) -> None:
    module = f"def main(): open({str(tmp_path / 'begun')!r}, 'a').write('begun ')\n"
    (tmp_path / "begins_late.py").write_text(module)
    (tmp_path / "penstock").mkdir()  # beside the real one on the path that a child is given
    path = os.pathsep.join(filter(None, [os.environ.get("PYTHONPATH", ""), str(tmp_path)]))
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path)],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": path},
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert (answer["code"], answer["exit"]) == ("spark.no_slot", 2)
    assert "PENSTOCK_SPARK_MASTER" in answer["hint"] and answer["waited"] < 30
    assert answer["begun"] == "begun ", "only the task that was not given up"
    assert "without a result" in answer["again"]
