"""The package as users get it: a wheel, built and installed into a clean environment."""

import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from clean_env import environment_with_penstock

if TYPE_CHECKING:
    from conftest import Api


def call(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stderr[-4000:]
    return done.stdout


@pytest.mark.network
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
