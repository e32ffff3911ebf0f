"""Inside a program that has a Spark session: runs use that Spark, leave its settings as they are,
and start no other beside it."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

PROGRAM = Path(__file__).with_name("in_a_session.py")
STUB = Path(__file__).parents[1] / "stubs" / "stub_source.py"
BARE = Path(sys.base_prefix) / "bin" / "python3"


def told(kind: str, folder: Path) -> dict[str, Any]:
    command = [sys.executable, *map(str, (PROGRAM, kind, folder, STUB, BARE))]
    done = subprocess.run(command, capture_output=True, text=True, timeout=400)
    assert done.returncode == 0, done.stderr[-4000:]
    return json.loads(done.stdout.splitlines()[-1])


def check(said: dict[str, Any]) -> None:
    assert said["first"] == ["succeeded", None, 20]  # None: no JVM of ours
    assert (said["rows"], said["thread"]) == (20, ["succeeded"])
    assert said["zone"] == "Asia/Tokyo" and said["active"]
    assert said["delta"][0] == "spark.lacks" and "jars" in said["delta"][1]


@pytest.mark.spark
def test_in_a_classic_session_and_after_it_was_stopped(tmp_path: Path) -> None:
    """First with workers whose Python has no Penstock, which an error tells."""
    said = told("classic", tmp_path)
    assert said["kind"] == "pyspark.sql.session"
    code, exit_code, hint = said["bare"]
    assert (code, exit_code) == ("spark.no_penstock", 2)
    assert "PYSPARK_PYTHON" in hint and sys.executable in hint
    check(said)
    assert said["closed"] == ["write.rows", "spark.stopped"]
    assert said["stopped"] == ["succeeded", "cold"]


@pytest.mark.spark
def test_through_a_connect_server(tmp_path: Path) -> None:
    said = told("connect", tmp_path)
    assert said["kind"].startswith("pyspark.sql.connect")
    check(said)
