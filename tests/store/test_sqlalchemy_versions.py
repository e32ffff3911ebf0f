"""The store on each series of SQLAlchemy that the package permits: Airflow 2 brings 1.4, Meltano
2.0; this environment has a newer one."""

import subprocess
import sys
from pathlib import Path

import pytest
from uv import find_uv_bin

from clean_env import ROOT

SECRET = "s3cr3t-of-the-url"
CONFORMS = ("tests/store/test_store_conformance.py", "tests/store/test_store_database.py")
POSTGRES = f"""
import penstock.errors, sqlalchemy
from penstock.store.open import open_store
try:
    open_store("postgresql://me:{SECRET}@h/d")
except penstock.errors.StateError as error:
    print(sqlalchemy.__version__, error.code, error, error.hint)
"""


def with_sqlalchemy(version: str, folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Runs this Python with the words, where SQLAlchemy is of this version."""
    install = [find_uv_bin(), "pip", "install", "--quiet", "--python", sys.executable]
    install += ["--target", str(folder), "--no-deps", f"sqlalchemy=={version}"]
    if not folder.exists():
        subprocess.run(install, check=True, timeout=200)
    return subprocess.run(
        [sys.executable, *words], capture_output=True, text=True, cwd=ROOT, timeout=250,
        env={"PYTHONPATH": f"{folder}:{ROOT / 'tests'}", "PATH": "/usr/bin:/bin"},
    )  # fmt: skip


@pytest.mark.network
@pytest.mark.dear
@pytest.mark.parametrize("version", ["1.4.54", "2.0.35"])
def test_L1_L12_a_store_in_sqlite_conforms_with_sqlalchemy(version: str, tmp_path: Path) -> None:
    words = ["-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", "sqlite", *CONFORMS]
    done = with_sqlalchemy(version, tmp_path / "sqlalchemy", *words)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]


@pytest.mark.network
def test_a_store_in_postgres_with_sqlalchemy_1_4_names_what_it_needs(tmp_path: Path) -> None:
    done = with_sqlalchemy("1.4.54", tmp_path / "sqlalchemy", "-c", POSTGRES)
    assert done.stdout.startswith("1.4.54 state.driver_missing "), done.stdout + done.stderr
    assert "needs SQLAlchemy 2" in done.stdout and "docs/install.md" in done.stdout
    assert SECRET not in done.stdout + done.stderr
