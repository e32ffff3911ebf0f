"""Starts that map Spark's classes from an archive."""

import subprocess
import sys
from pathlib import Path

import pytest
from java_free import without_java

from penstock.errors import ConfigError
from penstock.spark.class_archive import archive_path, keeps_archives, use_options
from penstock.spark.class_archive_build import make_archive
from penstock.spark.java import JavaHome, find_java

JAVA = JavaHome(Path("/usr/lib/jvm/x"), "17.0.1")
USE = """
import sys
from pathlib import Path
from penstock.spark import session
from penstock.spark.class_archive_build import make_archive
from penstock.tables.contract import SessionNeeds
cache, scratch = Path(sys.argv[1]), Path(sys.argv[2])
made = make_archive(cache)
spark = session.open_session(SessionNeeds(), cores=1, scratch_dir=scratch, cache_dir=cache)
assert spark.range(10).count() == 10
mapped = Path(f"/proc/{session._current.jvm.process.pid}/maps").read_text()
print(str(made) in mapped, len(list(made.parent.iterdir())))
session.close_session(spark)
"""


def test_an_archive_is_of_one_java_and_used_only_where_no_other_user_can_write(
    tmp_path: Path,
) -> None:
    assert use_options(JAVA, tmp_path) == []
    path = archive_path(JAVA, tmp_path)
    assert path != archive_path(JavaHome(JAVA.home, "17.0.2"), tmp_path)
    path.parent.mkdir(mode=0o700)
    path.write_bytes(b"")
    assert f"-XX:SharedArchiveFile={path}" in use_options(JAVA, tmp_path)
    path.parent.chmod(0o770)
    assert use_options(JAVA, tmp_path) == []
    if keeps_archives(find_java()):
        with pytest.raises(ConfigError, match="can be written by other users"):
            make_archive(tmp_path)


def test_a_java_that_would_not_take_it_back_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The packaged one is a Java 21."""
    for name, value in without_java(tmp_path / "bin").items():
        monkeypatch.setenv(name, value)
    with pytest.raises(ConfigError, match="Java 21"):
        make_archive(tmp_path / "cache")


@pytest.mark.spark
def test_what_is_made_is_used(tmp_path: Path) -> None:
    if not keeps_archives(find_java()):
        pytest.skip("this machine's Java takes no archive back")
    done = subprocess.run(
        [sys.executable, "-c", USE, str(tmp_path / "cache"), str(tmp_path / "scratch")],
        capture_output=True,
        text=True,
        timeout=500,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.split() == ["True", "1"]
