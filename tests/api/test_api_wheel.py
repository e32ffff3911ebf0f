"""The package as users get it: a wheel, built and installed into a clean environment."""

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from uv import find_uv_bin

if TYPE_CHECKING:
    from conftest import Api

ROOT = Path(__file__).parents[2]


def call(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stderr[-4000:]
    return done.stdout


@pytest.mark.network
def test_a_wheel_in_a_clean_environment(api: "Api", tmp_path: Path) -> None:
    uv, place = find_uv_bin(), tmp_path / "clean"
    call(uv, "build", "--quiet", "--wheel", "--out-dir", str(tmp_path / "dist"), str(ROOT))
    (wheel,) = (tmp_path / "dist").glob("*.whl")
    call(uv, "venv", "--quiet", "--python", sys.executable, str(place))
    python = str(place / "bin" / "python")
    call(uv, "pip", "install", "--quiet", "--python", python, str(wheel))
    code = (
        "import penstock, pyspark_penstock, sys; "
        "planned = penstock.plan(sys.argv[1], sys.argv[2], home=sys.argv[3]); "
        "print(penstock.__file__, [s.name for s in planned.streams])"
    )
    told = call(python, "-I", "-c", code, api.source, api.lake, str(api.home))
    assert told.startswith(str(place)) and "['s0', 's1']" in told
    assert call(str(place / "bin" / "penstock"), "--version").startswith("penstock ")
