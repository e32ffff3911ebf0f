"""One name, several packages that it may be: what is tried, in which order, and what is said."""

from collections.abc import Callable
from pathlib import Path

import pytest
from test_install import home, index, wheel

from penstock.connectors.install import ensure, remove
from penstock.connectors.package_request import PackageRequest
from penstock.connectors.reference import parse_ref
from penstock.connectors.resolve import resolve, wanted
from penstock.connectors.source import SourceConnector
from penstock.errors import ConfigError, SourceError
from penstock.protocols import load

pytestmark = pytest.mark.network

__all__ = ["home", "index"]  # fixtures


def singer(text: str) -> PackageRequest:
    return wanted(parse_ref(text), load("singer"))


@pytest.fixture
def said() -> list[str]:
    return []


@pytest.fixture
def progress(said: list[str]) -> Callable[[str], None]:
    return said.append


def test_a_package_by_its_own_name_has_the_script_of_the_tap(index: Path, home: Path, progress):
    scripts = ("helper", "tap-x")
    wheel(index, "meltanolabs-tap-x", "1.0", scripts=scripts)
    entry = ensure(singer("singer:meltanolabs-tap-x"), home, progress)
    assert entry.environment.script == "tap-x"
    wheel(index, "odd-connector", "1.0", scripts=("helper", "tap-odd"))
    assert ensure(singer("singer:odd-connector"), home, progress).environment.script == "tap-odd"


def test_a_bare_tap_is_looked_for_under_longer_names_too(
    index: Path, home: Path, said: list[str], progress
):
    wheel(index, "pipelinewise-tap-x", "2.0", scripts=("tap-x",))
    entry = ensure(singer("singer:tap-x"), home, progress)
    assert (entry.environment.package, entry.environment.version) == ("pipelinewise-tap-x", "2.0")
    assert "tap-x was not found; trying another package of that name" in said
    said.clear()
    assert ensure(singer("singer:tap-x"), home, progress) == entry
    assert said == []
    assert [e.environment.package for e in remove(singer("singer:tap-x"), home, progress)] == [
        "pipelinewise-tap-x"
    ]


def test_the_name_itself_wins(index: Path, home: Path, progress):
    for name in ("tap-x", "meltanolabs-tap-x"):
        wheel(index, name, "1.0", scripts=("tap-x",))
    assert ensure(singer("singer:tap-x"), home, progress).environment.package == "tap-x"


def test_a_package_that_cannot_be_installed_is_passed_over(
    index: Path, home: Path, said: list[str], progress
):
    wheel(index, "tap-x", "1.0", requires=("not-there>=1",), scripts=("tap-x",))
    with pytest.raises(SourceError) as caught:
        ensure(singer("singer:tap-x"), home, progress)
    assert caught.value.code == "connector.install_failed"
    assert "Tried packages: tap-x (cannot be installed)" in caught.value.message
    wheel(index, "meltanolabs-tap-x", "1.0", scripts=("tap-x",))
    entry = ensure(singer("singer:tap-x"), home, progress)
    assert entry.environment.package == "meltanolabs-tap-x"
    assert any("cannot be installed; trying another" in line for line in said)


def test_what_is_nowhere_names_everything_tried(index: Path, home: Path, progress):
    with pytest.raises(SourceError) as caught:
        ensure(singer("singer:tap-nope@1.0"), home, progress)
    assert caught.value.code == "connector.not_found"
    for name in ("tap-nope==1.0", "meltanolabs-tap-nope==1.0", "pipelinewise-tap-nope==1.0"):
        assert name in caught.value.message
    wheel(index, "tap-y", "1.0", scripts=("tap-y",))
    with pytest.raises(SourceError) as caught:
        ensure(singer("singer:y"), home, progress)
    assert caught.value.hint == "did you mean singer:tap-y ?"


def test_a_target_is_no_source(home: Path):
    with pytest.raises(ConfigError) as caught:
        resolve(SourceConnector, "singer:target-jsonl", home)
    assert caught.value.code == "connector.not_a_source"
    assert caught.value.hint == "sources of this protocol are named singer:tap-NAME"


@pytest.mark.parametrize("name", ["singer-tap-x", "tap-x", "z3-tap-x"])
def test_names_of_packages_are_taken_as_they_are(name: str):
    ref = parse_ref(f"singer:{name}@1.2")
    assert (ref.name, ref.version, ref.protocol) == (name, "1.2", "singer")
