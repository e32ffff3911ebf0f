"""A user's program with a Spark session of its own, run as a process: prints one JSON document of
what it saw. Usage: in_a_session.py classic|connect FOLDER STUB BARE_PYTHON"""

import json
import os
import socket
import sys
import threading
from typing import Any


def main() -> None:
    kind, folder, stub, bare = sys.argv[1:]
    os.environ["PYSPARK_PYTHON"] = bare if kind == "classic" else sys.executable
    from penstock.spark.java import find_java

    os.environ["JAVA_HOME"] = str(find_java().home)
    from pyspark.sql import SparkSession

    builder = SparkSession.builder
    if kind == "classic":
        builder = builder.master("local[2]")
    else:
        from pyspark.sql.connect.client.core import DefaultChannelBuilder

        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        # Else it is port 15002 of all addresses, and PySpark's client knows no other.
        DefaultChannelBuilder.default_port = staticmethod(lambda: port)  # type: ignore[method-assign]
        builder = builder.remote("local[2]").config("spark.connect.grpc.binding.port", port)
        builder = builder.config("spark.connect.grpc.binding.address", "127.0.0.1")
    spark = builder.getOrCreate()
    spark.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    import penstock

    said: dict[str, Any] = {"kind": type(spark).__module__}
    source = f"airbyte:{sys.executable} {stub}"

    def run(name: str, into: str = "parquet", **more: Any) -> penstock.Report:
        config = {"streams": 1, "records": 20}
        place = f"{into}:{folder}/lake-{name}"
        told: dict[str, Any] = {"config": config, "name": name, "home": f"{folder}/home", **more}
        return penstock.run(source, place, **told)

    if kind == "classic":
        try:
            run("bare")
        except penstock.PenstockError as error:
            said["bare"] = [error.code, error.exit_code, error.hint]
        # as in an environment that was not activated
        del os.environ["PYSPARK_PYTHON"]
        os.environ["PATH"] = "/usr/bin:/bin"
        spark.sparkContext.pythonExec = "python3"
    report = run("plain")
    said["first"] = [report.status, report.start, report.streams[0].committed]
    said["rows"] = spark.read.parquet(f"{folder}/lake-plain/s0").count()
    said["zone"] = spark.conf.get("spark.sql.session.timeZone")
    said["active"] = SparkSession.active() is spark
    in_thread: list[str] = []
    thread = threading.Thread(target=lambda: in_thread.append(run("thread").status))
    thread.start()
    thread.join(120)
    said["thread"] = in_thread
    try:
        run("delta", "delta")
    except penstock.PenstockError as error:
        said["delta"] = [error.code, error.hint]
    if kind == "classic":
        frame = spark.range(3)
        spark.stop()
        said["closed"] = [
            code_of(lambda: penstock.write(frame, f"parquet:{folder}/w", "n", home=folder)),
            code_of(lambda: penstock.register(spark)),
        ]
        again = run("stopped", daemon=False)
        said["stopped"] = [again.status, again.start]
    print(json.dumps(said), flush=True)
    os._exit(0)  # a Connect server in PySpark's own process holds its exit up for minutes


def code_of(work: Any) -> str:
    import penstock

    try:
        work()
    except penstock.PenstockError as error:
        return error.code
    return "no error"


if __name__ == "__main__":
    main()
