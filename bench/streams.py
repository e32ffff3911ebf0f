"""Ten thousand streams: where the time goes when there are many tables and few rows.

    python bench/streams.py [--streams 10000] [--case sparse,wide] [--profile FILE] [--twice]

``sparse``: 50 of the streams have 100 rows each; ``wide``: each has one row. Into Parquet. Prints
the report's times and one line of JSON. ``--profile`` writes the driver's cProfile to FILE-CASE.
``--twice`` syncs a second time, when every table is there and every state is saved. The source is
the stub of the tests.
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
STUB = HERE.parent / "tests" / "stubs" / "stub_source.py"
CASES = {"sparse": {"rows_in": 50, "records": 100}, "wide": {"records": 1}}


def drive(config: str, place: str, home: str, profile: str) -> None:
    import cProfile

    import msgspec

    from penstock.config.command_line import pipeline_from_arguments
    from penstock.config.home import Home
    from penstock.engine.run.start import run_pipeline

    began = time.monotonic()

    class Phases:
        def phase(self, name: str, detail: str) -> None:
            if name != "loaded":
                at = time.monotonic() - began
                print(f"{at:8.1f} s  {name}: {detail[:80]}", file=sys.stderr)

        def stream(self, *_: Any) -> None: ...
        def log(self, *_: Any) -> None: ...
        def note(self, *_: Any) -> None: ...

    pipeline = pipeline_from_arguments(
        f"airbyte:{sys.executable} -S {STUB}",
        f"parquet:{place}",
        name="streams",
        config=config,
        sync_mode="incremental",
        destination_sync_mode="append",
    )
    watch = cProfile.Profile() if profile else None
    if watch:
        watch.enable()
    report = run_pipeline(pipeline, Home(home), observer=Phases())
    if watch:
        watch.disable()
        watch.dump_stats(profile)
    print(msgspec.json.encode(report).decode())


def measure(case: str, streams: int, profile: str, folder: Path) -> dict[str, Any]:
    from processes import OURS, Sampler

    config = json.dumps({"streams": streams, "state_every": 0, **CASES[case]})
    command = [sys.executable, str(HERE / "streams.py"), "--drive", config, str(folder / "lake"),
               str(folder / "home"), f"{profile}-{case}" if profile else ""]  # fmt: skip
    began = time.monotonic()
    driver = subprocess.Popen(command, stdout=subprocess.PIPE)
    sampler = Sampler(driver.pid)
    answer = driver.communicate()[0]
    usage, wall = sampler.stop(), time.monotonic() - began
    if driver.returncode or not answer:
        raise SystemExit(f"the run failed with exit code {driver.returncode}")
    report = json.loads(answer.splitlines()[-1])
    if report["exit_code"]:
        raise SystemExit(json.dumps(report["error"]))
    return {
        "case": case,
        "streams": len(report["streams"]),
        "complete": sum(s["status"] == "complete" for s in report["streams"]),
        "rows": sum(s["committed"] for s in report["streams"]),
        "wall_s": round(wall, 1),
        "time": {k: round(v, 1) for k, v in report["time"].items()},
        "cpu_s": {k: round(v, 1) for k, v in usage.cpu.items()},
        "pss_peaks_mb": {k: round(v / 1e6) for k, v in usage.peaks.items() if k in OURS},
        "load_average": round(os.getloadavg()[0], 1),
    }


def main() -> None:
    if sys.argv[1:2] == ["--drive"]:
        drive(*sys.argv[2:])
        return
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--streams", type=int, default=10_000)
    parser.add_argument("--case", default="sparse,wide")
    parser.add_argument("--profile", default="")
    parser.add_argument("--twice", action="store_true")
    overrides = parser.parse_args()
    (HERE / "data").mkdir(exist_ok=True)
    found = []
    for case in overrides.case.split(","):
        folder = Path(tempfile.mkdtemp(prefix=f"streams-{case}-", dir=HERE / "data"))
        for _ in range(1 + overrides.twice):
            found.append(measure(case, overrides.streams, overrides.profile, folder))
            print(json.dumps(found[-1]))
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
