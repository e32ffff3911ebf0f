"""Where the user has no home folder that can be used (issue 36, 7)."""

import os
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from penstock.config import user_folders
from penstock.config.home import Home
from penstock.config.user_folders import provide, users_home
from penstock.errors import ConfigError

as_others = pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user")


def given(home: Path, **environ: str) -> dict[str, str]:
    provide(home, environ)
    return environ


def test_a_home_that_can_be_used_stays(tmp_path: Path) -> None:
    theirs = str(tmp_path / "user")
    os.mkdir(theirs)
    assert given(tmp_path / "p", HOME=theirs) == {"HOME": theirs}
    cache = {"HOME": theirs, "XDG_CACHE_HOME": str(tmp_path / "c")}
    assert given(tmp_path / "p", **cache) == cache
    assert not (tmp_path / "p").exists()


def test_a_home_that_is_not_there_is_made_below_penstock_s(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = given(tmp_path / "p", HOME=str(tmp_path / "missing"))
    assert found == {"HOME": str(tmp_path / "p" / "user")}
    assert stat.S_IMODE((tmp_path / "p" / "user").stat().st_mode) == 0o700
    assert not (tmp_path / "missing").exists()
    monkeypatch.setattr(user_folders, "passwd_home", lambda: None)
    assert given(tmp_path / "p") == found, "no HOME, no entry in the password database"


@as_others
def test_of_a_home_that_is_read_only_only_the_caches_move(tmp_path: Path) -> None:
    """Credentials and settings in it are read as ever."""
    base = Path(tempfile.mkdtemp(prefix="penstock-home-"))
    base.chmod(0o755)
    code = (
        "import os, json, sys\nfrom pathlib import Path\n"
        "from penstock.config.user_folders import provide\nprovide(Path(sys.argv[1]))\n"
        "print(os.environ['HOME'], os.environ.get('XDG_CACHE_HOME'), "
        "os.environ.get('npm_config_cache'))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, "/srv/p"], user=51234, group=51234, text=True, cwd="/",
        env={"PATH": os.environ["PATH"], "HOME": str(base),
             "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
    )  # fmt: skip
    base.rmdir()
    assert done.stdout.split() == [str(base), "/srv/p/cache", "/srv/p/cache/npm"], done.stderr
    del tmp_path


@as_others
@pytest.mark.parametrize("environ", [{}, {"HOME": "/"}, {"HOME": "/nonexistent"}])
def test_a_user_whom_the_system_does_not_know(environ: dict[str, str]) -> None:
    """As ``docker run --user 12345``, which also sets ``HOME`` to the root folder."""
    code = (
        "import os, sys\nfrom pathlib import Path\nfrom penstock.config.home import Home\n"
        "from penstock.config.user_folders import provide\n"
        "home = Home()\nprovide(home.path)\nprint(Path.home(), Path('~/x').expanduser())"
    )
    own = Path(tempfile.mkdtemp(prefix="penstock-home-"))
    os.chown(own, 51234, 51234)

    def asked(**more: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [sys.executable, "-c", code], user=51234, group=51234, text=True, cwd="/",
            env={"PATH": os.environ["PATH"], "PYTHONPATH": os.pathsep.join(sys.path), **environ,
                 **more},
            capture_output=True,
        )  # fmt: skip

    done = asked(PENSTOCK_HOME=str(own))
    assert done.stdout.split() == [f"{own}/user", f"{own}/user/x"], done.stderr
    for name in ("user", ""):
        (own / name).rmdir()
    if not environ:
        refused = asked()
        assert "there is no home folder" in refused.stderr
        assert "KeyError" not in refused.stderr


def test_no_home_at_all_is_an_error_with_a_way_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platformdirs.user_data_dir", lambda *a, **k: "~/.local/share/penstock")
    with pytest.raises(ConfigError) as refused:
        Home(env={})
    assert refused.value.code == "config.home"
    assert "PENSTOCK_HOME" in str(refused.value.hint)


def test_the_root_folder_is_no_home_of_a_user(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert users_home({"HOME": "/"}) is None
