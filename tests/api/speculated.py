"""A user's program on a cluster that runs slow tasks a second time at once: prints one JSON
document of what it saw. Usage: speculated.py FOLDER STUB; on stdin the master and settings as JSON.
"""

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

from as_a_format import counting


def main() -> None:
    folder, stub = Path(sys.argv[1]), sys.argv[2]
    told = json.load(sys.stdin)
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["PENSTOCK_HOME"] = str(folder / "home")
    from penstock.spark.java import find_java

    os.environ["JAVA_HOME"] = str(find_java().home)
    from pyspark import TaskContext
    from pyspark.sql import SparkSession

    events, asked, config = folder / "events", folder / "asked", folder / "config.json"
    events.mkdir()
    config.write_text(json.dumps({"streams": 1, "records": 20}))
    settings = {
        **told["conf"],
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.eventLog.enabled": "true",
        "spark.eventLog.compress": "false",
        "spark.eventLog.dir": f"file://{events}",
        "spark.speculation": "true",
        "spark.speculation.interval": "200ms",
        "spark.speculation.task.duration.threshold": "2s",
    }
    builder = SparkSession.builder.master(told["master"])
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    source = f"airbyte:{sys.executable} {counting(folder, stub, asked)}"
    options = {"source": source, "stream": "s0", "config": f"@{config}"}
    frame = spark.read.format("penstock").options(**options).load()

    def slow(batches: Any) -> Any:
        context = TaskContext.get()
        assert context is not None
        for batch in batches:
            time.sleep(30 if context.attemptNumber() == 0 else 0)
            yield batch

    rows = sorted(row[0] for row in frame.select("seq").mapInArrow(slow, "seq BIGINT").collect())
    spark.stop()
    lines = [line for log in events.rglob("events_*") for line in log.open()]
    starts = [e for e in map(json.loads, lines) if e["Event"] == "SparkListenerTaskStart"]
    copies = sum(e["Task Info"]["Speculative"] for e in starts)
    print(json.dumps({"rows": rows, "copies": copies, "reads": asked.read_text().count("read")}))


if __name__ == "__main__":
    main()
