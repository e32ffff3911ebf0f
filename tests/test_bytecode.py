"""``penstock.bytecode``: compiled code is kept where Python may not write it beside the source, and
only where nobody else could write it (issue 37, part 6)."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import penstock

WAYS = [
    "import penstock.cli; penstock.cli.command()",
    "from penstock.tasks import child_start; child_start.prepare(); import penstock.tasks.job_file",
]


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """A folder with this package that has no compiled code."""
    source = Path(penstock.__file__).parent
    without = shutil.ignore_patterns("__pycache__")
    shutil.copytree(source, tmp_path / "site" / "penstock", ignore=without)
    return tmp_path / "site"


def compiled(folder: Path) -> set[str]:
    return {path.name.partition(".")[0] for path in folder.rglob("*.pyc")}


def start(package: Path, home: Path, code: str = WAYS[0], **more: str) -> str:
    program = f"import sys; sys.argv = ['penstock', 'completion', '--help']; {code}"
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "XDG", "PENSTOCK"))}
    environ = {**kept, "PYTHONPATH": str(package), "HOME": str(home), **more}
    done = subprocess.run(
        [sys.executable, "-c", program], env=environ, capture_output=True, text=True, check=True
    )
    return done.stdout


@pytest.mark.parametrize("code", WAYS)
def test_code_is_kept_in_the_users_cache_where_python_may_not_write_it(
    package: Path, tmp_path: Path, code: str
) -> None:
    start(package, tmp_path, code, PYTHONDONTWRITEBYTECODE="1")
    assert not compiled(package)
    kept = tmp_path / ".cache/penstock/bytecode"
    assert "errors" in compiled(kept)
    assert kept.stat().st_mode & 0o777 == 0o700


def test_it_is_kept_in_penstocks_home_where_others_could_write_the_users_cache_L10(
    package: Path, tmp_path: Path
) -> None:
    cache, home = tmp_path / "cache", tmp_path / "home"
    cache.mkdir()
    cache.chmod(0o777)
    where = {"XDG_CACHE_HOME": str(cache), "PENSTOCK_HOME": str(home)}
    assert start(package, tmp_path, PYTHONDONTWRITEBYTECODE="1", **where)
    assert not compiled(cache)
    assert "errors" in compiled(home / "cache/penstock/bytecode")


def test_nothing_is_kept_where_no_folder_is_safe_L10(package: Path, tmp_path: Path) -> None:
    cache = tmp_path / ".cache/penstock"
    cache.mkdir(parents=True)
    cache.chmod(0o777)
    assert start(package, tmp_path, PYTHONDONTWRITEBYTECODE="1")
    assert not compiled(tmp_path)


def test_code_that_is_compiled_beside_its_source_is_used(package: Path, tmp_path: Path) -> None:
    start(package, tmp_path)
    assert "errors" in compiled(package)
    start(package, tmp_path, PYTHONDONTWRITEBYTECODE="1")
    assert not (tmp_path / ".cache/penstock/bytecode").exists()
