"""A session's start, a small query and its end: with and without the archive of Spark's classes, in
turns. Prints wall and CPU seconds of the whole process tree, and their ratio.

    python bench/spark_start.py [--rounds 3]
"""

import argparse
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

from penstock.spark.class_archive_build import make_archive

ONE = """
import sys
from pathlib import Path
from penstock.spark.session import close_session, open_session
from penstock.tables.contract import SessionNeeds
scratch, cache = Path(sys.argv[1]), Path(sys.argv[2])
spark = open_session(SessionNeeds(), master="local[2]", scratch_dir=scratch, cache_dir=cache)
assert spark.range(1000).selectExpr("sum(id)").collect()[0][0] == 499500
close_session(spark)
"""


def one(cache: Path) -> tuple[float, float]:
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    with tempfile.TemporaryDirectory() as scratch:
        subprocess.run([sys.executable, "-c", ONE, scratch, str(cache)], check=True, timeout=300)
    after, wall = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic() - began
    return wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    rounds = parser.parse_args().rounds
    with tempfile.TemporaryDirectory() as folder:
        without, archived = Path(folder) / "without", Path(folder) / "archived"
        began = time.monotonic()
        made = make_archive(archived)
        print(f"made in {time.monotonic() - began:.1f} s, {made.stat().st_size / 1e6:.0f} MB")
        taken: dict[Path, list[tuple[float, float]]] = {without: [], archived: []}
        for _ in range(rounds):
            for cache, found in taken.items():
                found.append(one(cache))
        walls = {c: median(w for w, _ in found) for c, found in taken.items()}
        cpus = {c: median(s for _, s in found) for c, found in taken.items()}
        for cache in taken:
            print(f"{cache.name:>9}: wall {walls[cache]:.1f} s, cpu {cpus[cache]:.1f} s")
        print(f"ratio: wall {walls[archived] / walls[without]:.2f}, "
              f"cpu {cpus[archived] / cpus[without]:.2f}")  # fmt: skip


if __name__ == "__main__":
    main()
