"""Files that a connector names: below its folders only, never by a link, never a pipe or a device
(L10, L11)."""

import os
import socket
import threading
import time
from pathlib import Path

import pytest

from penstock.runtimes.contract import SharedFolders
from penstock.runtimes.granted_files import GrantedFiles, NotGranted


@pytest.fixture
def given(tmp_path: Path) -> Path:
    """The folder that a connector was given; beside it lies a file of the host."""
    folder = tmp_path / "given"
    (folder / "in").mkdir(parents=True)
    (folder / "in" / "rows").write_bytes(b"rows")
    (tmp_path / "host").mkdir()
    (tmp_path / "host" / "rows").write_bytes(b"secret")
    return folder


def isolated(*folders: Path) -> GrantedFiles:
    return GrantedFiles(SharedFolders(paths=tuple(map(str, folders))))


def content(files: GrantedFiles, name: str | Path) -> bytes:
    with files, files.open(str(name)) as file:
        return file.read()


@pytest.mark.parametrize("name", ["in/rows", "in/../in/./rows", "/in//rows"])
def test_a_file_below_a_folder_is_opened_L10(given: Path, name: str) -> None:
    assert content(isolated(given), f"{given}/{name}") == b"rows"


@pytest.mark.parametrize(
    "name",
    [
        "{0}/../host/rows",
        "{0}/in/../../host/rows",
        "{0}2/rows",
        "{0}",
        "{0}/",
        "/etc/passwd",
        "/proc/self/environ",
        "in/rows",
        "",
        "{0}/in/rows\0",
        "{0}/in/\ud800",
    ],
)
def test_nothing_else_of_the_host_is_opened_L10(given: Path, name: str) -> None:
    Path(f"{given}2").mkdir()
    Path(f"{given}2", "rows").write_bytes(b"secret")
    with pytest.raises(NotGranted):
        content(isolated(given), name.format(given))


def test_without_folders_no_file_is_opened_L10(given: Path) -> None:
    for name in (str(given / "in" / "rows"), "/", "/etc/passwd", "in/rows"):
        with pytest.raises(NotGranted):
            content(isolated(), name)


@pytest.mark.parametrize("at", ["the file", "its folder", "a folder above", "a loop"])
def test_a_link_below_a_folder_is_not_followed_L10(given: Path, at: str) -> None:
    host = given.parent / "host"
    match at:
        case "the file":
            (given / "in" / "link").symlink_to(host / "rows")
            name = "in/link"
        case "its folder":
            (given / "in" / "link").symlink_to(host)
            name = "in/link/rows"
        case "a folder above":
            (host / "deep").mkdir()
            (host / "deep" / "rows").write_bytes(b"secret")
            (given / "link").symlink_to("../host")
            name = "link/deep/rows"
        case _:
            (given / "link").symlink_to(given / "link")
            name = "link"
    with pytest.raises(NotGranted, match="symbolic link"):
        content(isolated(given), given / name)


@pytest.mark.parametrize("kind", ["pipe", "socket", "device", "folder"])
def test_only_a_regular_file_is_opened_and_at_once_L11(given: Path, kind: str) -> None:
    place = given / "odd"
    match kind:
        case "pipe":
            os.mkfifo(place)
        case "socket":
            with socket.socket(socket.AF_UNIX) as bound:
                bound.bind(os.path.relpath(place))
        case "device":
            if os.geteuid():
                pytest.skip("only root makes devices")
            os.mknod(place, 0o600 | 0o020000, os.makedev(1, 5))
        case _:
            place.mkdir()
    began = time.monotonic()
    with pytest.raises(NotGranted, match="not a regular file"):
        content(isolated(given), place)
    assert time.monotonic() - began < 5


def test_a_name_that_is_swapped_for_a_link_again_and_again_never_leads_outside_L10(
    given: Path,
) -> None:
    """A connector that races with Penstock in the folder that both see."""
    (given / "real").mkdir()
    (given / "real" / "rows").write_bytes(b"rows")
    (given / "link").symlink_to(given.parent / "host")
    stop = threading.Event()

    def swap() -> None:
        while not stop.is_set():
            for name in ("real", "link"):
                os.rename(given / name, given / "x")
                os.rename(given / "x", given / name)
                if name == "real":
                    os.rename(given / "real", given / "aside")
                    os.rename(given / "link", given / "real")
                    os.rename(given / "real", given / "link")
                    os.rename(given / "aside", given / "real")

    thread = threading.Thread(target=swap)
    thread.start()
    opened = 0
    try:
        with isolated(given) as files:
            until = time.monotonic() + 1
            while time.monotonic() < until:
                try:
                    with files.open(str(given / "real" / "rows")) as file:
                        assert file.read() == b"rows"
                    opened += 1
                except (NotGranted, OSError):
                    continue
    finally:
        stop.set()
        thread.join()
    assert opened


def test_the_folder_that_was_given_is_the_one_that_was_there_before_L10(given: Path) -> None:
    """A connector that may write around a folder that it was given puts a link in its place."""
    with isolated(given) as files:
        given.rename(given.parent / "aside")
        given.symlink_to(given.parent / "host")
        with pytest.raises(FileNotFoundError):
            files.open(str(given / "rows"))
        with files.open(str(given / "in" / "rows")) as file:
            assert file.read() == b"rows"


def test_links_in_the_folders_own_name_are_its_owners(given: Path) -> None:
    link = given.parent / "link"
    link.symlink_to(given)
    assert content(isolated(link), link / "in" / "rows") == b"rows"
    assert content(isolated(link), given / "in" / "rows") == b"rows"


def test_a_process_names_files_from_its_working_folder(given: Path) -> None:
    shared = SharedFolders(paths=(str(given),), cwd=str(given))
    assert content(GrantedFiles(shared), "in/rows") == b"rows"
    with pytest.raises(NotGranted):
        content(GrantedFiles(shared), "../host/rows")
    assert content(GrantedFiles(shared, ["../host"]), "../host/rows") == b"secret"
    made = GrantedFiles(shared, ["../later"])
    with made:
        (given.parent / "later").mkdir()
        (given.parent / "later" / "rows").write_bytes(b"later")
        with made.open("../later/rows") as file:
            assert file.read() == b"later"


def test_descriptors_are_given_back(given: Path) -> None:
    before = os.listdir("/proc/self/fd")
    for _ in range(9):
        assert content(isolated(given), given / "in" / "rows") == b"rows"
        with pytest.raises(NotGranted):
            content(isolated(given), given / "in")
    assert len(os.listdir("/proc/self/fd")) <= len(before)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
@pytest.mark.parametrize(
    ("owner", "folder", "mode", "opens"),
    [
        (1000, 0o700, 0o600, True),
        (4321, 0o755, 0o644, True),
        (4321, 0o755, 0o600, False),
        (4321, 0o700, 0o644, False),
        (1000, 0o700, 0o044, False),
    ],
)
def test_what_the_connectors_own_user_may_not_open_stays_closed_L10(
    given: Path, owner: int, folder: int, mode: int, opens: bool
) -> None:
    """Penstock may run as root, and the folder hold others' files."""
    for path, bits in ((given / "in", folder), (given / "in" / "rows", mode)):
        os.chown(path, owner, owner)
        path.chmod(bits)
    files = GrantedFiles(SharedFolders(paths=(str(given),), user=1000))
    if opens:
        assert content(files, given / "in" / "rows") == b"rows"
        return
    with pytest.raises(NotGranted, match="own user"):
        content(files, given / "in" / "rows")
