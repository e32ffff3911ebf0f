"""The spine measured whole: a prepared file through a source process, Spark, the log, a table.

    python bench/spine.py [--records 1000000] [--repeat 1] [--table parquet,delta] [--quick]
                          [--mode append_dedup]

Prints a table and one line of JSON. ``ratio`` is the speed of the extract phase over the speed of
``orjson.loads`` per line on the same file in the same call (one process, the better of one
measured before and one after); ``cpu_ratio`` the same in CPU seconds of the lane's process, which
a busy machine disturbs less. CPU and PSS are those of our Python processes: driver, Spark's
Python daemon and worker, lane, supervisor; neither the connector nor the JVM. The driver runs in a
process of its own. ``--quick``: 100,000 records, Parquet only. ``--mode append_dedup``: merged by
``id``; ``tail_s`` is what follows the source's last message.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
DATA = HERE / "data"


def drive(given: str) -> None:
    """The driver: what ``penstock run`` does, in this process; the report on stdout. ``given``:
    JSON with source, destination, home and the options of ``run``."""
    import msgspec
    from msgspec.structs import replace

    from penstock.config.command_line import pipeline_from_arguments
    from penstock.config.home import Home
    from penstock.engine.run.start import run_pipeline
    from penstock.unused_packages import OF_CONNECT, leave_out

    leave_out(*OF_CONNECT)  # as the command line does

    class Quiet:
        def phase(self, *_: Any) -> None: ...
        def stream(self, *_: Any) -> None: ...
        def log(self, *_: Any) -> None: ...
        def note(self, *_: Any) -> None: ...

    told = json.loads(given)
    pipeline = pipeline_from_arguments(
        told["source"], told["destination"], name="bench", **told["options"]
    )
    if "acks" in told:
        pipeline = replace(pipeline, destination=replace(pipeline.destination, acks=told["acks"]))
    home = told["home"]
    began = time.process_time()
    report = msgspec.to_builtins(run_pipeline(pipeline, Home(home), observer=Quiet()))
    report["driver_cpu"] = time.process_time() - began
    heavy = ("pyarrow", "duckdb", "pandas", "numpy")
    report["driver_imports"] = [m for m in heavy if m in sys.modules]
    print(json.dumps(report))


def orjson_seconds(path: Path) -> tuple[float, float]:
    """Wall and CPU seconds of ``orjson.loads`` over every line, without reading and splitting."""
    import orjson

    spent, cpu, loads = 0.0, 0.0, orjson.loads
    with path.open("rb") as f:
        while lines := f.readlines(32 << 20):
            began, used = time.perf_counter(), time.thread_time()
            for line in lines:
                loads(line)
            spent += time.perf_counter() - began
            cpu += time.thread_time() - used
    return spent, cpu


def environment() -> dict[str, str]:
    """With Python's bytecode cached, as everywhere after a first run: where that is switched off,
    each of our processes compiles what it imports."""
    kept = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    return {**kept, "PYTHONPYCACHEPREFIX": str(DATA / "bytecode")}


def into_table(
    table: str, path: Path, schema: Path, repeat: int, records: int, mode: str = "append"
) -> dict[str, Any]:
    """The prepared file through an Airbyte source into a table."""
    config = json.dumps({"file": str(path), "schema": str(schema), "repeat": repeat})
    given = {
        "source": f"airbyte:{sys.executable} -S {HERE / 'file_source.py'}",
        "destination": f"{table}:{{folder}}/lake",
        "options": {
            "config": config,
            "sync_mode": "incremental",
            "destination_sync_mode": mode,
        },
    }
    return {"table": table, **measure(given, path, repeat, records)}


def measure(given: dict[str, Any], path: Path, repeat: int, records: int) -> dict[str, Any]:
    """One run (see :func:`drive`; ``{folder}`` in the destination is a folder of its own) of
    ``records`` records from ``path``, sent ``repeat`` times."""
    from processes import OURS, Sampler

    folder = Path(tempfile.mkdtemp(prefix="spine-", dir=DATA))
    home = folder / "home"
    jars = DATA / "jars"  # resolved once, kept between calls
    jars.mkdir(exist_ok=True)
    home.mkdir()
    (home / "jars").symlink_to(jars)
    told = {**given, "destination": given["destination"].replace("{folder}", str(folder))}
    before = orjson_seconds(path)
    command = [sys.executable, str(HERE / "spine.py"), "--drive",
               json.dumps({**told, "home": str(home)})]  # fmt: skip
    driver = subprocess.Popen(command, stdout=subprocess.PIPE, env=environment())
    sampler = Sampler(driver.pid)
    answer = driver.communicate()[0]
    usage = sampler.stop()
    after = orjson_seconds(path)
    if driver.returncode or not answer:
        raise SystemExit(f"the run failed with exit code {driver.returncode}")
    report = json.loads(answer.splitlines()[-1])
    if report["exit_code"]:
        raise SystemExit(json.dumps(report["error"]))
    committed = sum(s["committed"] for s in report["streams"])
    if committed != records:
        raise SystemExit(f"{committed} records committed, {records} sent")
    shutil.rmtree(folder, ignore_errors=True)
    size = path.stat().st_size * repeat / 1e6
    spent, whole, loads = report["time"], report["seconds"], min(before[0], after[0]) * repeat
    loads_cpu = min(before[1], after[1]) * repeat
    cpu = {role: usage.cpu.get(role, 0.0) for role in OURS}
    return {
        "records": records,
        "bytes_per_record": round(size * 1e6 / records),
        "extract_s": round(spent["extract"], 2),
        "extract_records_s": round(records / spent["extract"]),
        "extract_mb_s": round(size / spent["extract"], 1),
        "whole_s": round(whole, 2),
        "whole_records_s": round(records / whole),
        "whole_mb_s": round(size / whole, 1),
        "orjson_mb_s": round(size / loads, 1),
        "ratio": round(loads / spent["extract"], 3),
        "cpu_ratio": round(loads_cpu / max(cpu["child"], 0.01), 3),
        "cpu_us_per_record": round(sum(cpu.values()) * 1e6 / records, 2),
        "cpu_s": {k: round(v, 2) for k, v in cpu.items()},
        "connector_cpu_s": round(usage.cpu.get("connector", 0.0), 2),
        "jvm_cpu_s": round(usage.cpu.get("jvm", 0.0), 2),
        "pss_peak_mb": round(usage.peak / 1e6),
        "pss_at_peak_mb": {k: round(v / 1e6) for k, v in usage.at_peak.items()},
        "pss_peaks_mb": {k: round(v / 1e6) for k, v in usage.peaks.items()},
        "pss_every_tenth_mb": _tenths(usage.samples),
        "push_s": round(spent["load"], 2),
        "tail_s": round(spent["tail"], 2),
        "time": {k: round(v, 2) for k, v in spent.items()},
        "driver_imports": report["driver_imports"],
        "load_average": round(os.getloadavg()[0], 1),
    }


def _tenths(samples: list[tuple[float, int]]) -> list[int]:
    step = max(1, len(samples) // 10)
    chunks = [samples[i : i + step] for i in range(0, len(samples), step)]
    return [round(max(size for _, size in chunk) / 1e6) for chunk in chunks]


SHOWN = ("records", "extract_s", "extract_records_s", "extract_mb_s", "whole_s", "whole_records_s",
         "whole_mb_s", "orjson_mb_s", "ratio", "cpu_ratio", "cpu_us_per_record",
         "tail_s", "pss_peak_mb")  # fmt: skip


def main() -> None:
    if sys.argv[1:2] == ["--drive"]:
        drive(*sys.argv[2:])
        return
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--records", type=int, default=1_000_000, help="in the prepared file")
    parser.add_argument("--repeat", type=int, default=1, help="how often the file is sent")
    parser.add_argument("--table", default="parquet,delta")
    parser.add_argument("--mode", default="append")
    parser.add_argument("--quick", action="store_true")
    overrides = parser.parse_args()
    if overrides.quick:
        overrides.records, overrides.table = 100_000, "parquet"
    from messages import prepare

    path, schema = prepare(DATA, overrides.records)
    found: list[dict[str, Any]] = []
    mode, all_records = overrides.mode, overrides.records * overrides.repeat
    first = overrides.table.split(",")[0]
    into_table(first, *prepare(DATA, 1000), 1, 1000, mode)  # caches are filled
    for table in overrides.table.split(","):
        found.append(into_table(table, path, schema, overrides.repeat, all_records, mode))
        if table != overrides.table.split(",")[-1]:
            print(json.dumps(found[-1]), file=sys.stderr)  # in case the next one fails
    width = max(map(len, SHOWN))
    for name in ("table", *SHOWN):
        print(f"{name:<{width}}", *(f"{one[name]:>12}" for one in found))
    print(json.dumps(found))


if __name__ == "__main__":
    main()
