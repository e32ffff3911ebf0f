"""A program whose tasks run on a worker that lacks something: prints one JSON document of what it
is told of each task, and of a whole run whose log is there. Usage: unfit_workers.py FOLDER ALONE;
on stdin the master, settings and the argument of ``one_run`` as JSON. ALONE: a folder that the
worker does not share, with a ``python`` that lacks Penstock there.
"""

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import msgspec
from one_run import StageEvent, pipeline_of

from penstock.config.home import Home
from penstock.engine.run.start import run_pipeline
from penstock.spark.session import open_session
from penstock.tables.contract import SessionNeeds
from penstock.tasks.spark_job import SubmittedJob, on_spark

FOLDER, ALONE = map(Path, sys.argv[1:])


def main() -> None:
    given = json.load(sys.stdin)
    os.environ["PENSTOCK_DAEMON"] = "0"
    other = FOLDER / "other" / "penstock-0.0.1.dist-info"
    other.mkdir(parents=True)
    (other / "METADATA").write_text("Metadata-Version: 2.1\nName: penstock\nVersion: 0.0.1\n")
    spark: Any = open_session(
        SessionNeeds(), master=given["master"], conf=given["conf"], lanes=1, scratch_dir=FOLDER
    )

    def lost(log: Path) -> list[Any]:
        log.mkdir(exist_ok=True)
        submit = on_spark(spark, log, False)
        job = SubmittedJob("lane-0", lambda: submit("no.such.module", b"{}"))
        deadline = time.monotonic() + 90
        while (error := job.lost("source")) is None and time.monotonic() < deadline:
            time.sleep(0.05)
        assert error is not None
        return [type(error).__name__, error.code, error.message, error.hint]

    seen = {"no log": lost(ALONE / "log"), "no module": lost(FOLDER / "log")}
    ours = spark.sparkContext.pythonExec
    spark.sparkContext.pythonExec = str(ALONE / "python")
    seen["no penstock"] = lost(FOLDER / "log")
    old = FOLDER / "old-python"
    old.write_text(f'#!/bin/sh\nPYTHONPATH={other.parent}:$PYTHONPATH exec {ours} "$@"\n')
    old.chmod(0o755)
    spark.sparkContext.pythonExec = str(old)
    seen["another penstock"] = lost(FOLDER / "log")
    spark.sparkContext.pythonExec = ours
    run = given["run"]
    pipeline = pipeline_of({**run, "master": given["master"], "conf": given["conf"]})
    report = run_pipeline(pipeline, Home(run["home"]), observer=StageEvent())
    print(json.dumps({"tasks": seen, "run": [report.exit_code, msgspec.to_builtins(report)]}))
    sys.stdout.flush()
    spark.stop()


if __name__ == "__main__":
    main()
