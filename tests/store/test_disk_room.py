"""A disk on which the state store has no room is named; the process does not end by SIGBUS."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from penstock.errors import StateError
from penstock.store import database

pytestmark = pytest.mark.dear

OPENS = """
import sys
from penstock.errors import PenstockError
from penstock.store.lock_holder import this_holder
from penstock.store.open import open_store
try:
    store = open_store("sqlite:///" + sys.argv[1])
    lease = store.acquire("p", this_holder("r1"), 60)
    store.start_run(lease, "r1", "2026-01-01T00:00:00Z")
    store.release(lease)
    store.close()
except PenstockError as error:
    sys.exit(f"{error.code} {error.exit_code}")
"""


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Callable[[int], Path]]:
    """A file system of 1 kB blocks in a loop device, whose free kB are set by a call."""
    image, at = tmp_path / "image", tmp_path / "disk"
    at.mkdir()
    with image.open("wb") as file:
        file.truncate(8 << 20)
    made = shutil.which("mkfs.ext4") and os.geteuid() == 0
    made = made and not subprocess.run(["mkfs.ext4", "-q", "-F", "-m0", image]).returncode
    mounted = made and not subprocess.run(
        ["mount", "-o", "loop", image, at], stderr=subprocess.DEVNULL
    ).returncode  # fmt: skip
    if not mounted:
        pytest.skip("needs root, mkfs.ext4 and loop devices")

    def leave(kilobytes: int) -> Path:
        (at / "fill").unlink(missing_ok=True)
        disk = os.statvfs(at)
        with (at / "fill").open("wb") as file:
            file.write(b"x" * (disk.f_bavail * disk.f_frsize - (kilobytes << 10)))
            os.fsync(file.fileno())
        return at

    yield leave
    subprocess.run(["umount", at], check=True)


def test_a_disk_with_20_kb_left_is_named(disk: Callable[[int], Path]) -> None:
    at = disk(2000)
    command = [sys.executable, "-c", OPENS, str(at / "home" / "state.db")]
    assert subprocess.run(command).returncode == 0
    for left in (32, 28, 20):
        disk(left)
        ended = subprocess.run(command, stderr=subprocess.PIPE, text=True)
        assert (ended.returncode, ended.stderr.strip()) == (1, "state.disk_full 6"), left
    disk(200)
    assert subprocess.run(command).returncode == 0


def test_the_error_says_how_much_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    database.refuse_full(tmp_path / "state.db")
    monkeypatch.setattr(database, "LEAST_BYTES", 1 << 60)
    with pytest.raises(StateError, match="kB are left") as caught:
        database.refuse_full(tmp_path / "state.db")
    assert caught.value.where == str(tmp_path / "state.db")
