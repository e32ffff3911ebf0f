"""A lake that a group shares: what one user makes there, the others may use; the umask and the
folder decide, as for any other file. (What Spark writes: ``tests/e2e/test_group_lake.py``.)"""

import os
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.tables import folder_access
from penstock.tables.contract import TableName
from penstock.tables.delta.tables import _share
from penstock.tables.parquet import folders as parquet_folders
from penstock.tables.parquet.folders import Root

USERS, OWN, GROUP = (51234, 51235), (61234, 61235), 62345
T = TableName(None, "users")
as_others = pytest.mark.skipif(os.geteuid() != 0, reason="only root can be two other users")

# A table's marker is replaced under its lock, a dead writer's staging is swept, a part is linked.
TURN = """
import os, sys, types
from pathlib import Path
from penstock.tables.files import linked_parts
from penstock.tables.contract import TableName
from penstock.tables.parquet.folders import Marker, Root, read_marker, write_marker
root, me, own = Root(Path(sys.argv[1])), sys.argv[2], Path(sys.argv[3])
root.prepare()
table = TableName(None, "users")
folder = root.folder(table)
folder.mkdir(exist_ok=True)
(own / "part").unlink(missing_ok=True)
(own / "part").touch(0o600)
with root.lock(table), root.staging() as staging:
    old = read_marker(folder)
    write_marker(folder, Marker((), {**(old.applied if old else {}), me: 1}))
    load = types.SimpleNamespace(parts=[str(own / "part")])
    assert linked_parts.linked(load, folder, os.urandom(4).hex()) is not None
    left = {p.name for p in root.own.glob("*.staging")}
    assert left == {staging.name}, "what a dead writer left is swept"
    if me == "0":
        os._exit(0)
"""


@pytest.fixture
def place() -> Iterator[Path]:
    """Where other users may enter, as they may not pytest's own folder."""
    folder = Path(tempfile.mkdtemp(prefix="penstock-group-"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


def turn(place: Path, user: int, umask: int) -> None:
    own = place / f"own{user}"
    if not own.exists():
        own.mkdir(mode=0o700)
        os.chown(own, USERS[user], OWN[user])
    subprocess.run(
        [sys.executable, "-c", TURN, str(place / "lake"), str(user), str(own)],
        user=USERS[user],
        group=OWN[user],
        extra_groups=[GROUP],
        umask=umask,
        env={"PATH": os.environ["PATH"], "PYTHONPATH": os.pathsep.join(sys.path)},
        cwd="/",
        check=True,
    )


@as_others
@pytest.mark.parametrize("umask", [0o002, 0o007])
def test_two_users_of_a_group_take_turns(place: Path, umask: int) -> None:
    lake = place / "lake"
    lake.mkdir()
    os.chown(lake, 0, GROUP)
    lake.chmod(0o2770)
    for user in (0, 1, 0):
        turn(place, user, umask)
    wanted = 0o660 if umask == 0o007 else 0o664
    for path in lake.rglob("*"):
        made = path.stat()
        assert made.st_gid == GROUP, path
        if path.is_dir():
            assert stat.S_IMODE(made.st_mode) & 0o2770 == 0o2770, path
        else:
            assert stat.S_IMODE(made.st_mode) == wanted, path


def test_hadoop_s_mode_does_not_cut_a_folder_s_access_list(tmp_path: Path) -> None:
    """Hadoop sets the mode of a folder that it makes (0755): the mask of the list follows."""
    lake = tmp_path / "lake"
    lake.mkdir()
    folder_access.inherit(lake, tmp_path)
    if shutil.which("setfacl") is None:
        pytest.skip("setfacl is not installed (package acl)")
    rights = f"u:{USERS[0]}:rwx"
    done = subprocess.run(["setfacl", "-d", "-m", rights, str(lake)], capture_output=True)
    if done.returncode:
        pytest.skip(f"no access lists here: {done.stderr.decode()}")
    table, others = lake / "table", b"other::r-x"
    for made in (table, lake / "new", table / "_delta_log"):
        made.mkdir(parents=True)
        made.chmod(0o755)
        assert b"mask::r-x" in subprocess.run(["getfacl", made], capture_output=True).stdout
    parquet_folders.put_folder(lake / "new", lake / "put")
    _share(lake, table)
    for made in (table, lake / "put", table / "_delta_log"):
        said = subprocess.run(["getfacl", made], capture_output=True).stdout
        assert b"mask::rwx" in said and others in said, made


@as_others
def test_a_folder_s_access_list_holds_for_linked_files_too(place: Path) -> None:
    """With a default access list the umask does not count, and nothing follows the file's group."""
    lake = place / "lake"
    lake.mkdir()
    lake.chmod(0o700)
    for named in ([], ["-d"]):
        rights = ",".join(f"u:{u}:rwx" for u in USERS)
        if shutil.which("setfacl") is None:
            pytest.skip("setfacl is not installed (package acl)")
        done = subprocess.run(["setfacl", *named, "-m", rights, str(lake)], capture_output=True)
        if done.returncode:
            pytest.skip(f"no access lists here: {done.stderr.decode()}")
    for user in (0, 1, 0):
        turn(place, user, 0o022)
    for path in lake.rglob("*"):
        assert b"mask::rw" in subprocess.run(["getfacl", path], capture_output=True).stdout, path


@as_others
def test_a_lock_that_an_earlier_version_made_for_its_owner_can_be_taken(place: Path) -> None:
    root = Root(place / "lake")
    root.prepare()
    with root.lock(T):
        pass
    (lock,) = root.own.glob("*.lock")
    lock.chmod(0o644)
    code = (
        "import sys\nfrom pathlib import Path\nfrom penstock.tables.contract import TableName\n"
        "from penstock.tables.parquet.folders import Root\n"
        "with Root(Path(sys.argv[1])).lock(TableName(None, 'users')): print('held')"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(root.path)], user=USERS[0], group=OWN[0],
        capture_output=True, text=True, cwd="/",
        env={"PATH": os.environ["PATH"], "PYTHONPATH": os.pathsep.join(sys.path)},
    )  # fmt: skip
    assert done.stdout == "held\n", done.stderr


def test_files_in_a_lake_follow_the_umask(tmp_path: Path) -> None:
    root = Root(tmp_path / "lake")
    for mask, mode in ((0o002, 0o664), (0o077, 0o600), (0o022, 0o644)):
        before = os.umask(mask)
        try:
            root.prepare()
            with root.lock(TableName(None, f"t{mask}")), root.staging():
                made = [*root.own.glob("*.alive"), *root.own.glob("*.lock")]
                newest = [p for p in made if stat.S_IMODE(p.stat().st_mode) == mode]
            access = folder_access.of_new_file(tmp_path / ".probe")
        finally:
            os.umask(before)
        assert len(newest) == 2, mask
        assert access.mode == mode
    assert not list(tmp_path.glob(".probe"))
    assert parquet_folders.SHARED == 0o666
