"""A user's program with Spark's reader and writer, run as a process, whose tasks may fail twice:
prints one JSON document of what it saw. Usage: as_a_format.py FOLDER STUB"""

import json
import os
import sys
from pathlib import Path
from typing import Any


def main() -> None:
    folder, stub = Path(sys.argv[1]), sys.argv[2]
    os.environ.pop("PYSPARK_PYTHON", None)  # as in an environment that was not activated
    os.environ["PATH"] = "/usr/bin:/bin"
    os.environ["PENSTOCK_HOME"] = str(folder / "home")
    from penstock.spark.java import find_java

    os.environ["JAVA_HOME"] = str(find_java().home)
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master("local[2,3]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.sql.shuffle.partitions", "2")
    spark = builder.getOrCreate()
    import penstock

    penstock.register(spark)
    said: dict[str, Any] = {}
    config = folder / "config.json"
    asked = folder / "asked"
    config.write_text(json.dumps({"streams": 1, "records": 20, "api_key": "hidden-word"}))
    source = f"airbyte:{sys.executable} {counting(folder, stub, asked)}"

    def reader(**options: str) -> Any:
        told = {"source": source, "stream": "s0", "config": f"@{config}", **options}
        return spark.read.format("penstock").options(**told)

    def refused(work: Any) -> str:
        try:
            work()
        except Exception as error:
            return str(error)
        return "not refused"

    frame = reader(config=config.read_text()).load()
    said["columns"] = frame.columns
    said["types"] = [f.dataType.simpleString() for f in frame.schema.fields]
    said["plan"] = frame._jdf.queryExecution().toString()
    said["sums"] = [frame.selectExpr("sum(seq)").first()[0] for _ in range(2)]
    said["union"] = frame.union(frame).count()
    once = folder / "once"

    def fail_first(batches: Any) -> Any:
        for batch in batches:
            if not once.exists():
                once.write_text("")
                raise RuntimeError("the first attempt fails")
            yield batch

    said["retried"] = frame.select("seq").mapInArrow(fail_first, "seq BIGINT").count()
    said["reads"] = asked.read_text().count("read")
    lake, slow = f"parquet:{folder / 'lake'}", folder / "slow"

    def late(batches: Any) -> Any:
        for batch in batches:
            first = 0 in batch.column(0).to_pylist()
            if first and not slow.exists():
                slow.write_text("")
                yield batch.slice(0, 3)
                raise RuntimeError("fails after some rows")
            yield batch

    rows = spark.range(0, 100, 1, 4).mapInArrow(late, "id BIGINT")

    def save(frame: Any, how: str = "append", **options: str) -> None:
        told = {"destination": lake, "stream": "n", **options}
        frame.write.format("penstock").options(**told).mode(how).save()

    def saved() -> list[int]:
        return sorted(r.id for r in spark.read.parquet(str(folder / "lake" / "n")).collect())

    save(rows)
    said["written"] = saved()
    said["frames"] = len(list((folder / "home" / "frames").glob("*/parts")))
    said["no_stream"] = refused(lambda: reader(stream="nosuch").load())
    said["missing"] = refused(lambda: spark.read.format("penstock").option("source", "x").load())
    said["unknown"] = refused(lambda: reader(confg="1").load())
    said["schema"] = refused(lambda: reader().schema("seq BIGINT").load().count())
    said["no_key"] = refused(lambda: save(spark.range(3), stream="u", mode="upsert"))
    print(json.dumps(said), flush=True)
    spark.stop()


def counting(folder: Path, stub: str, asked: Path) -> Path:
    """A source that notes each command that it is given."""
    script = folder / "counting_source.py"
    script.write_text(
        "import runpy, sys\n"
        f"open({str(asked)!r}, 'a').write(sys.argv[1] + '\\n')\n"
        f"sys.argv[0] = {stub!r}\n"
        f"runpy.run_path({stub!r}, run_name='__main__')\n"
    )
    return script


if __name__ == "__main__":
    main()
