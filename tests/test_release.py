"""``scripts/release.sh`` builds the source archive and the wheel, and looks at what is in them."""

import shutil
import subprocess
import zipfile
from pathlib import Path

import pytest

from clean_env import ROOT

PARTS = ("src", "scripts", "pyproject.toml", "uv.lock", "README.md", "LICENSE")


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A checkout that a test may change."""
    tree = tmp_path / "tree"
    tree.mkdir()
    for part in PARTS:
        if (ROOT / part).is_dir():
            hidden = shutil.ignore_patterns("__pycache__")
            shutil.copytree(ROOT / part, tree / part, ignore=hidden)
        else:
            shutil.copy2(ROOT / part, tree / part)
    (tree / ".venv").symlink_to(ROOT / ".venv")
    return tree


def release(tree: Path, out: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(tree / "scripts" / "release.sh"), "--look", str(out)],
        capture_output=True, text=True, timeout=300,
    )  # fmt: skip


def edit(file: Path, old: str, new: str) -> None:
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new, 1))


@pytest.mark.network
def test_a_release_is_built_and_has_its_license_and_all_of_src(copy: Path, tmp_path: Path) -> None:
    done = release(copy, tmp_path / "dist")
    assert done.returncode == 0, done.stderr
    (wheel,) = (tmp_path / "dist").glob("*.whl")
    assert list((tmp_path / "dist").glob("*.tar.gz"))
    names = zipfile.ZipFile(wheel).namelist()
    assert "penstock/protocols/rapidbyte/fastpath/packing.wat" in names
    assert any(name.endswith(".dist-info/licenses/LICENSE") for name in names)
    metadata = next(name for name in names if name.endswith(".dist-info/METADATA"))
    assert str(ROOT) not in zipfile.ZipFile(wheel).read(metadata).decode()
    assert "[ ] the name on the index is ours" in done.stdout and "uv publish" in done.stdout


@pytest.mark.network
@pytest.mark.parametrize(
    ("file", "old", "new", "told"),
    [
        ("src/penstock/__init__.py", '__version__ = "', '__version__ = "9', "another"),
        ("pyproject.toml", '"rich>=', '"rich>=13.9,>=', "uv lock"),
        ("uv.lock", "https://pypi.org/simple", "https://pkgs.corp.example/simple", "uv"),
    ],
)
def test_a_release_is_refused(
    copy: Path, tmp_path: Path, file: str, old: str, new: str, told: str
) -> None:
    edit(copy / file, old, new)
    done = release(copy, tmp_path / "dist")
    assert done.returncode == 1, done.stdout
    assert "no release: " in done.stderr and told in done.stderr
    assert not list(tmp_path.glob("dist/*.whl"))
