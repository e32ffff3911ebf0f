"""Random connectors through random modes, runs and moves of the home, against a model of the table.

    python tests/fuzz/planner_fuzz.py --cases 200000 --jobs 2
    python tests/fuzz/planner_fuzz.py --values --cases 3000 --jobs 2

``--values`` plays the cases of ``fuzz_values``: keys, cursors, delete marks and declarations that
change, with real decoding and real merges (some 0.15 s each). With ``--spark`` Spark merges their
loads (some 5 s each). Prints how many cases were played and
each rule that was broken, with the seed that shows it; exit code 1 where any was. ``--seed N``
begins elsewhere, ``--only N`` plays one and prints it.
"""

import argparse
import atexit
import shutil
import sys
import tempfile
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from functools import cache
from itertools import repeat
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parent))

from fuzz_model import Wrong, case_of, play
from fuzz_values import WrongValue, play_values, value_case

from penstock.tables.formats import open_table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BLOCK = 500


@cache
def session() -> "SparkSession":
    """Of this process; it ends with it."""
    from penstock.spark.session import open_session

    scratch = Path(tempfile.mkdtemp(prefix="penstock-fuzz-spark-"))
    atexit.register(shutil.rmtree, scratch, ignore_errors=True)
    needs = open_table("delta", str(scratch / "lake")).needs()
    conf = {"spark.sql.shuffle.partitions": "2"}
    return open_session(needs, master="local[1]", conf=conf, scratch_dir=scratch)


def play_one(seed: int, values: bool, by_spark: bool = False) -> None:
    if by_spark:
        play_values(value_case(seed, on_disk=True), session())
    elif values:
        play_values(value_case(seed))
    else:
        play(case_of(seed))


def block(first: int, count: int, values: bool, by_spark: bool) -> list[tuple[int, str, str]]:
    """(seed, rule, what was wrong) of each case that broke one."""
    found: list[tuple[int, str, str]] = []
    for seed in range(first, first + count):
        try:
            play_one(seed, values, by_spark)
        except (Wrong, WrongValue) as e:
            found.append((seed, e.rule, str(e)))
        except Exception as e:
            found.append((seed, "raised", f"{type(e).__name__}: {e}"))
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--only", type=int)
    parser.add_argument("--values", action="store_true")
    parser.add_argument("--spark", action="store_true")
    parser.add_argument("--show", type=int, default=3, help="cases shown of each rule")
    given = parser.parse_args()
    if given.only is not None:
        print(value_case(given.only) if given.values else case_of(given.only))
        play_one(given.only, given.values, given.spark)
        return 0
    began = time.monotonic()
    size = min(BLOCK, given.cases)
    starts = range(given.seed, given.seed + given.cases, size)
    with ProcessPoolExecutor(given.jobs) as pool:
        found = [
            one
            for each in pool.map(
                block, starts, repeat(size), repeat(given.values), repeat(given.spark)
            )
            for one in each
        ]
    rules = Counter(rule for _, rule, _ in found)
    for rule in rules:
        for _, _, told in [x for x in found if x[1] == rule][: given.show]:
            print(f"{told}\n")
    took = time.monotonic() - began
    cases = len(starts) * size
    print(f"{cases} cases in {took:.0f} s; broken: {dict(rules) or 'none'}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
