"""Several real runs in turn, in one process and on one Spark of its own: ``one_run``'s arguments as
a JSON list. After each the folder ``ended`` is made next to its home. Prints the reports as a JSON
list; the exit code is 1 if one of them failed.
"""

import json
import sys
from pathlib import Path

import msgspec
from one_run import StageEvent, make_small, pipeline_of

from penstock.config.home import Home
from penstock.engine.run.start import run_pipeline
from penstock.spark.session import close_session, open_session
from penstock.tables.delta.tables import DeltaTables


def main() -> int:
    runs = json.loads(sys.argv[1])
    first = Path(runs[0]["home"]).parent
    spark = open_session(
        DeltaTables(".").needs(), master=runs[0]["master"], conf=runs[0]["conf"], scratch_dir=first
    )
    reports = []
    for told in runs:
        make_small(told.get("bounds", {}), told.get("plan", {}))
        home = Home(told["home"])
        reports.append(run_pipeline(pipeline_of(told), home, observer=StageEvent()))
        home.path.with_name("ended").mkdir()
    close_session(spark)
    print(msgspec.json.encode(reports).decode())
    return int(any(report.exit_code for report in reports))


if __name__ == "__main__":
    sys.exit(main())
