"""``penstock.files``: whole or absent, private, synced in the right order, one winner."""

import errno
import os
import stat
import threading
from pathlib import Path

import pytest

from penstock.files import private, replace, replacing, sync, sync_file, write_new


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    seen: list[str] = []
    real = os.fsync

    def watch(fd: int) -> None:
        seen.append(Path(os.readlink(f"/proc/self/fd/{fd}")).name)
        real(fd)

    monkeypatch.setattr(os, "fsync", watch)
    return seen


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_l2_replace_syncs_the_draft_then_the_folder(tmp_path: Path, synced: list[str]) -> None:
    path = tmp_path / "state"
    replace(path, b"old")
    assert synced == []
    replace(path, b"new", durable=True)
    assert [name.startswith(".state.") for name in synced] == [True, False]
    assert synced[1] == tmp_path.name
    assert path.read_bytes() == b"new" and os.listdir(tmp_path) == ["state"]


def test_l2_a_draft_that_fails_leaves_what_was_there(tmp_path: Path) -> None:
    path = tmp_path / "state"
    replace(path, b"old")
    with pytest.raises(RuntimeError), replacing(path) as file:
        file.write(b"half")
        raise RuntimeError
    assert path.read_bytes() == b"old" and os.listdir(tmp_path) == ["state"]


def test_l10_files_are_private_unless_said_otherwise(tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        replace(tmp_path / "a", b"")
        write_new(tmp_path / "b", b"")
        private(tmp_path / "c", "wb").close()
        replace(tmp_path / "a", b"", permissions=0o666)
    finally:
        os.umask(before)
    assert [mode(tmp_path / name) for name in "abc"] == [0o644, 0o600, 0o600]


def test_writers_of_one_name_never_mix(tmp_path: Path) -> None:
    path, blocks = tmp_path / "cache", [bytes([n]) * 70_000 for n in range(4)]
    replace(path, blocks[0])

    def write(block: bytes) -> None:
        for _ in range(50):
            replace(path, block)

    threads = [threading.Thread(target=write, args=(block,)) for block in blocks]
    for thread in threads:
        thread.start()
    while any(t.is_alive() for t in threads):
        assert path.read_bytes() in blocks
    assert os.listdir(tmp_path) == ["cache"]


def test_l4_a_claim_has_one_winner_and_is_durable(tmp_path: Path, synced: list[str]) -> None:
    won: list[int] = []

    def claim(n: int) -> None:
        try:
            write_new(tmp_path / "CLAIM", b"%d" % n, durable=True)
            won.append(n)
        except FileExistsError:
            pass

    threads = [threading.Thread(target=claim, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (tmp_path / "CLAIM").read_bytes() == b"%d" % won[0] and len(won) == 1
    assert synced == ["CLAIM", tmp_path.name]


def test_a_sync_that_fails_says_of_which_file() -> None:
    null = Path("/dev/null")  # a device that cannot be synced
    with null.open("wb") as file, pytest.raises(OSError) as of_file:
        sync_file(file)
    with pytest.raises(OSError) as of_path:
        sync(null)
    assert {of_file.value.filename, of_path.value.filename} == {str(null)}
    assert {of_file.value.errno, of_path.value.errno} == {errno.EINVAL}
