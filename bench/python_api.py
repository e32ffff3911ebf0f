"""Times the Python interface: ``import penstock``, and ``read(...).pandas()`` of the stub source.

    python bench/python_api.py [RECORDS]

Import: the best of several fresh interpreters, an idle interpreter taken off, in processor time.
The read is wall time, each with a start of Spark unless one stays.
"""

import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import penstock

STUB = Path(__file__).parents[1] / "tests" / "stubs" / "stub_source.py"


def processor(code: str) -> float:
    """The least processor time of five interpreters, in seconds."""
    spent: list[float] = []
    for _ in range(6):
        began = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, "-c", code], check=True)
        ended = resource.getrusage(resource.RUSAGE_CHILDREN)
        spent.append(ended.ru_utime + ended.ru_stime - began.ru_utime - began.ru_stime)
    return min(spent[1:])


def main() -> None:
    records = int(sys.argv[1]) if len(sys.argv) > 1 else 100_000
    idle = processor("pass")
    for code in ("import penstock", *(f"import penstock; penstock.{v}" for v in ("run", "read"))):
        print(f"{code:<36} {1000 * (processor(code) - idle):6.0f} ms of processor")
    source = f"airbyte:{sys.executable} {STUB}"
    with tempfile.TemporaryDirectory() as home:
        for label in ("first", "second"):
            began = time.monotonic()
            config = {"streams": 1, "records": records}
            with penstock.read(source, "s0", config=config, home=home, progress=False) as found:
                read = time.monotonic()
                frame = found.pandas()
                made = time.monotonic()
                told = f"{len(frame):,} rows: read {read - began:.1f} s, pandas {made - read:.2f} s"
                print(f"{label:<8} {told}, {len(frame) / (made - began):,.0f} rows/s")


if __name__ == "__main__":
    main()
