"""The folder of a session's Unix sockets: private, short, and gone with the session (L10, L11)."""

import os
import stat
from pathlib import Path

import pytest

from penstock.spark.sockets import ENABLED, FOLDER, MOST_BYTES, remove_scratch, with_sockets

ASKED = {ENABLED: "true"}


def private(folder: Path) -> Path:
    folder.mkdir(mode=0o700, parents=True)
    return folder


def test_a_short_scratch_folder_holds_the_sockets() -> None:
    folder = private(Path(f"/tmp/pt-{os.getpid()}"))
    try:
        assert with_sockets(ASKED, folder)[FOLDER] == str(folder)
        os.chmod(folder, 0o755)
        assert with_sockets(ASKED, folder)[FOLDER] != str(folder), "others may enter it"
    finally:
        remove_scratch(folder)
    assert not folder.exists()


def test_a_long_one_links_to_a_private_folder_which_goes_with_it_L10(tmp_path: Path) -> None:
    scratch = private(tmp_path / ("x" * MOST_BYTES))
    mask = os.umask(0)
    try:
        found = [Path(with_sockets(ASKED, scratch)[FOLDER]) for _ in range(2)]
    finally:
        os.umask(mask)
    assert found[0] != found[1], "two starts in one folder leave each other's alone"
    for folder in found:
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        assert len(os.fsencode(folder)) <= MOST_BYTES
        (folder / ".a.sock").touch()
    remove_scratch(scratch)
    assert not any(folder.exists() for folder in (*found, scratch))


def test_a_link_that_leads_elsewhere_takes_nothing_along(tmp_path: Path) -> None:
    scratch, kept = private(tmp_path / "scratch"), private(tmp_path / "kept")
    (scratch / "sockets-mine").symlink_to(kept)
    remove_scratch(scratch)
    assert kept.exists()


def test_spark_keeps_its_ports_where_no_path_is_short_enough(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuses(*, prefix: str, dir: str) -> str:
        raise PermissionError(13, "Permission denied", f"{dir}/{prefix}")

    monkeypatch.setattr("penstock.spark.sockets.tempfile.mkdtemp", refuses)
    assert with_sockets(ASKED, private(tmp_path / ("x" * MOST_BYTES))) == {ENABLED: "false"}


def test_what_the_user_sets_stays(tmp_path: Path) -> None:
    for given in ({}, {ENABLED: "false"}, {**ASKED, FOLDER: "/mine"}):
        assert with_sockets(given, tmp_path) == given
