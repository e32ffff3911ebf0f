"""``./penstock`` of a checkout: the environment is made once, and looked at again only where
something that it is made of has changed."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """With a uv that writes down each call, and makes an environment in which the command says what
    it was given."""
    for name in ("penstock", "scripts", "uv.lock", "pyproject.toml"):
        source = ROOT / name
        copy = shutil.copytree if source.is_dir() else shutil.copy
        copy(source, tmp_path / name)
    (tmp_path / "src").mkdir()
    tools = tmp_path / "tools"
    tools.mkdir()
    (tools / "python3.11").symlink_to(sys.executable)
    uv = tools / "uv"
    uv.write_text(
        "#!/bin/sh\n"
        f'case "$1" in --version) exit 0;; esac\necho "$@" >>{tmp_path}/synced\n'
        f"[ ! -e {tmp_path}/broken ] || exit 1\n"
        'bin="$UV_PROJECT_ENVIRONMENT/bin"; mkdir -p "$bin"\n'
        f'ln -sf {sys.executable} "$bin/python"\n'
        'printf \'#!/bin/sh\\necho "said:" "$@"\\n\' >"$bin/penstock"; chmod +x "$bin/penstock"\n'
    )
    uv.chmod(0o755)
    return tmp_path


def call(checkout: Path) -> int:
    """How often uv was asked so far."""
    path = f"{checkout / 'tools'}:/usr/bin:/bin"
    environ = {**os.environ, "PATH": path}
    done = subprocess.run(
        [checkout / "penstock", "run", "a b"],
        env=environ,
        capture_output=True,
        text=True,
        timeout=60,
    )
    if not (checkout / "broken").exists():
        assert done.returncode == 0 and "said: run a b" in done.stdout, done.stderr
    else:
        assert done.returncode != 0
    return len((checkout / "synced").read_text().splitlines())


def test_the_environment_is_made_anew_only_where_something_changed(checkout: Path) -> None:
    assert [call(checkout) for _ in range(3)] == [1, 1, 1]
    with (checkout / "uv.lock").open("a") as lock:
        lock.write("\n")
    assert [call(checkout) for _ in range(2)] == [2, 2]
    with (checkout / "pyproject.toml").open("a") as project:
        project.write("\n")
    assert [call(checkout) for _ in range(2)] == [3, 3]
    (checkout / "tools" / "python3.12").symlink_to(sys.executable)  # another Python of this machine
    assert [call(checkout) for _ in range(2)] == [4, 4]
    (checkout / ".venv" / "bin" / "python").unlink()  # the one it was made with is gone
    assert [call(checkout) for _ in range(2)] == [5, 5]


def test_an_environment_that_could_not_be_made_is_not_taken_for_made(checkout: Path) -> None:
    call(checkout)
    (checkout / "uv.lock").write_text("")
    (checkout / "broken").touch()
    assert [call(checkout) for _ in range(2)] == [2, 3]
    (checkout / "broken").unlink()
    assert [call(checkout) for _ in range(2)] == [4, 4]


def as_nobody(checkout: Path) -> "subprocess.CompletedProcess[str]":
    """``./penstock`` of a user who may read the checkout, and not write it."""
    path = f"{checkout / 'tools'}:/usr/bin:/bin"
    command = f"exec {checkout / 'penstock'} run 'a b'"
    return subprocess.run(
        ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "sh", "-c", command],
        env={**os.environ, "PATH": path, "HOME": "/nonexistent"},
        capture_output=True,
        text=True,
        timeout=60,
    )


@pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which("setpriv") is None, reason="needs another user"
)
def test_another_user_of_a_checkout_uses_its_environment_or_gets_one_sentence(
    checkout: Path,
) -> None:
    closed = [f for f in (checkout, *checkout.parents) if not f.stat().st_mode & 0o001]
    modes = [(folder, folder.stat().st_mode & 0o777) for folder in closed]
    for folder, mode in modes:
        folder.chmod(mode | 0o055)
    try:
        uses_it_or_is_refused(checkout)
    finally:
        for folder, mode in modes:
            folder.chmod(mode)


def uses_it_or_is_refused(checkout: Path) -> None:
    refused = as_nobody(checkout)
    assert refused.returncode == 2 and "cannot be written by nobody" in refused.stderr
    assert len(refused.stderr.splitlines()) == 1 and "Traceback" not in refused.stderr
    assert not (checkout / "synced").exists()
    call(checkout)
    (checkout / "tools" / "python3.12").symlink_to(sys.executable)  # in this user's PATH alone
    used = as_nobody(checkout)
    assert used.returncode == 0 and "said: run a b" in used.stdout, used.stderr
    with (checkout / "uv.lock").open("a") as lock:
        lock.write("\n")
    assert as_nobody(checkout).returncode == 2
