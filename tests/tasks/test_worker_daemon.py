"""Spark's Python workers come from the installed package, not from the zip that lies in it."""

import os
import subprocess
import sys
from pathlib import Path

import pyspark

from penstock.tasks.worker_daemon import without_zips

HOME = Path(pyspark.__file__).resolve().parent
ZIPS = [str(p) for p in sorted((HOME / "python" / "lib").glob("*.zip"))]
JARS = [str(p) for p in (HOME / "jars").glob("spark-core_*.jar")]


def test_zips_leave_the_path_where_the_package_can_be_imported_from_it() -> None:
    assert any("pyspark" in z for z in ZIPS) and JARS
    path = ["/a", *JARS, *ZIPS, str(HOME.parent), "/b.zip"]
    assert without_zips(path, str(HOME)) == ["/a", str(HOME.parent), "/b.zip"]


def test_zips_stay_where_nothing_else_has_the_package(tmp_path: Path) -> None:
    assert without_zips(["/a", *ZIPS], str(HOME)) == ["/a", *ZIPS]
    lone = [str(tmp_path / "python" / "lib" / "pyspark.zip"), str(tmp_path.parent)]
    assert without_zips(lone, str(tmp_path)) == lone


def test_l11_daemon_says_its_port_and_ends_with_its_stdin() -> None:
    environ = {**os.environ, "SPARK_HOME": str(HOME), "PYTHON_WORKER_FACTORY_SECRET": "x"}
    environ["PYTHONPATH"] = os.pathsep.join([*ZIPS, *filter(None, sys.path)])
    daemon = subprocess.Popen(
        [sys.executable, "-v", "-m", "penstock.tasks.worker_daemon", "pyspark.worker"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environ,
    )
    assert daemon.stdin and daemon.stdout
    out, said = daemon.communicate(b"", timeout=60)
    assert int.from_bytes(out[:4], "big") > 0, said.decode()[-500:]
    assert daemon.returncode is not None
    loaded = [line for line in said.decode().splitlines() if "import 'pyspark.worker'" in line]
    assert loaded and not any(".zip" in line for line in loaded)
    assert "import 'numpy'" not in said.decode()
