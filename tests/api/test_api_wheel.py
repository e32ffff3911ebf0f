"""The package as users get it: a wheel, built out of the source archive by ``uv build``, installed
into a clean environment that is not activated, and run."""

import os
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from clean_env import ROOT, environment_with_penstock

if TYPE_CHECKING:
    from conftest import Api


def call(*command: str) -> str:
    bare = {"PATH": "/usr/bin:/bin", "HOME": os.environ["HOME"], "PENSTOCK_DAEMON": "0"}
    bare["CI"] = "true"  # no archive of its Spark's classes is made
    done = subprocess.run(command, capture_output=True, text=True, timeout=500, env=bare)
    assert done.returncode == 0, done.stderr[-4000:]
    return done.stdout


@pytest.mark.network
@pytest.mark.spark
def test_a_wheel_in_a_clean_environment(api: "Api", tmp_path: Path) -> None:
    python = environment_with_penstock(tmp_path)
    place = Path(python).parents[1]
    code = (
        "import penstock, pyspark_penstock, sys; "
        "planned = penstock.plan(sys.argv[1], sys.argv[2], home=sys.argv[3]); "
        "print(penstock.__file__, [s.name for s in planned.streams])"
    )
    told = call(python, "-I", "-c", code, api.source, api.lake, str(api.home))
    assert told.startswith(str(place)) and "['s0', 's1']" in told
    assert call(str(place / "bin" / "penstock"), "--version").startswith("penstock ")
    tap = ROOT / "scripts" / "release_tap.py"
    run = [f"singer:{python} {tap}", api.lake, "--home", str(api.home)]
    call(str(place / "bin" / "penstock"), "run", *run)
    count = "import sys, pyarrow.parquet as pq; print(pq.read_table(sys.argv[1]).num_rows)"
    assert call(python, "-I", "-c", count, str(api.folder / "lake" / "rows")) == "3\n"
