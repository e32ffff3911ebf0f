"""Penstock's home (docs/cli.md, last paragraph)."""

import stat
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.config.home import Home, folder_name, postgres_url
from penstock.config.sections import LogSettings, StateSettings
from penstock.errors import ConfigError


def test_where_home_is(tmp_path: Path) -> None:
    assert Home(tmp_path / "a", {"PENSTOCK_HOME": "/b"}).path == tmp_path / "a"
    assert Home(env={"PENSTOCK_HOME": str(tmp_path)}).path == tmp_path
    assert Home(env={}).path.name == "penstock"


def test_folders_are_made_for_the_user_alone(tmp_path: Path) -> None:
    """L10: nothing under home is readable by others."""
    home = Home(tmp_path / "home")
    made = [home.connectors, home.jars, home.runs, home.run("01JD3Q"), Path(home.log("shop"))]
    for folder in (*made, home.path, home.path / "log"):
        assert folder.is_dir()
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert home.run("01JD3Q") == home.path / "runs" / "01JD3Q"
    assert made[-1] == home.path / "log" / "shop"


def test_state_url(tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    assert home.state_url() == f"sqlite:///{tmp_path}/home/state.db"
    assert (
        home.state_url(StateSettings(path=f"{tmp_path}/x/y.db")) == f"sqlite:///{tmp_path}/x/y.db"
    )
    assert (tmp_path / "x").is_dir()
    url = StateSettings(backend="postgres", url="postgres://u:p@h/d")
    assert home.state_url(url) == "postgresql+psycopg://u:p@h/d"


def test_libpq_strings_become_urls() -> None:
    assert (
        postgres_url("host=localhost dbname=state") == "postgresql+psycopg:///state?host=localhost"
    )
    assert (
        postgres_url(r"password='a b\'c' dbname=s") == "postgresql+psycopg:///s?password=a%20b%27c"
    )
    for bad in ("", "hunter2", "mysql://hunter2@h/d", "host=a hunter2"):
        with pytest.raises(ConfigError) as caught:
            postgres_url(bad)
        assert "hunter2" not in str(caught.value.as_dict())


def test_log_elsewhere(tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    assert home.log("shop", LogSettings(path="s3a://bucket/log/")) == "s3a://bucket/log/shop"
    assert home.log("shop", LogSettings(path=str(tmp_path / "l"))) == str(tmp_path / "l" / "shop")
    assert (tmp_path / "l" / "shop").is_dir()


def test_a_home_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError) as caught:
        _ = Home(tmp_path / "file").runs
    assert caught.value.code == "config.home"
    assert "PENSTOCK_HOME" in (caught.value.hint or "")


@pytest.mark.parametrize(
    "text", ["..", ".", "", "/etc/passwd", "a/b", "Shop", "a\x00b", "é", "x" * 300]
)
def test_folder_names_are_safe(text: str) -> None:
    cleaned = folder_name(text)
    assert cleaned not in (".", "..", "")
    assert len(cleaned) <= 64
    assert cleaned == cleaned.lower()
    assert set(cleaned) <= set("abcdefghijklmnopqrstuvwxyz0123456789-_")


@given(st.lists(st.text(), min_size=2, unique=True))
def test_two_pipelines_never_share_a_folder(texts: list[str]) -> None:
    cleaned = {folder_name(t) for t in texts}
    assert len(cleaned) == len(texts)
    named = folder_name(texts[0])
    assert named == texts[0] or folder_name(named) != named
