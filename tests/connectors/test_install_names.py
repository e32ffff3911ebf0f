"""One name, several packages that it may be: what is tried, in which order, and what is said."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace
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


def before(text: str) -> PackageRequest:
    """The request of a pipeline that ran when a name could mean a longer one too."""
    return replace(singer(text), as_before=True)


def forget_exact(connectors: Path) -> None:
    """Makes the environments look as those that were built before names were exact."""
    for marker in connectors.glob("*/*/*/READY"):
        old = json.loads(marker.read_bytes())
        old.pop("exact", None)
        marker.write_text(json.dumps(old))


def test_a_name_is_exactly_that_package(index: Path, home: Path, said: list[str], progress):
    """Whatever is built in this home already."""
    wheel(index, "meltanolabs-tap-x", "5.0", scripts=("tap-x",))
    other = ensure(singer("singer:meltanolabs-tap-x"), home, progress)
    assert other.environment.package == "meltanolabs-tap-x"
    forget_exact(home)
    with pytest.raises(SourceError) as caught:
        ensure(singer("singer:tap-x"), home, progress)
    assert caught.value.code == "connector.not_found"
    assert caught.value.hint == "did you mean singer:meltanolabs-tap-x ?"
    wheel(index, "tap-x", "1.0", scripts=("tap-x",))
    for _ in range(2):
        entry = ensure(singer("singer:tap-x"), home, progress)
        assert (entry.environment.package, entry.environment.version) == ("tap-x", "1.0")
    assert ensure(singer("singer:tap-x"), home, progress, upgrade=True) == entry
    with pytest.raises(SourceError) as caught:
        ensure(singer("singer:tap-x@9.0"), home, progress)
    assert caught.value.hint == "the newest version is 1.0"


def test_every_package_that_may_be_meant_is_named(index: Path, home: Path, progress):
    for family in ("meltanolabs", "pipelinewise"):
        wheel(index, f"{family}-tap-x", "2.0", scripts=("tap-x",))
    with pytest.raises(SourceError) as caught:
        ensure(singer("singer:tap-x@1.0"), home, progress)
    meant = "did you mean singer:meltanolabs-tap-x or singer:pipelinewise-tap-x ?"
    assert caught.value.hint == meant


def test_a_package_that_cannot_be_installed_is_not_passed_over(index: Path, home: Path, progress):
    wheel(index, "tap-x", "1.0", requires=("not-there>=1",), scripts=("tap-x",))
    wheel(index, "meltanolabs-tap-x", "1.0", scripts=("tap-x",))
    with pytest.raises(SourceError) as caught:
        ensure(singer("singer:tap-x"), home, progress)
    assert caught.value.code == "connector.install_failed"


def test_what_a_name_meant_before_it_still_means(
    index: Path, home: Path, said: list[str], progress
):
    wheel(index, "pipelinewise-tap-x", "2.0", scripts=("tap-x",))
    entry = ensure(before("singer:tap-x"), home, progress)
    assert (entry.environment.package, entry.environment.version) == ("pipelinewise-tap-x", "2.0")
    assert "tap-x was not found; trying another package of that name" in said
    wheel(index, "tap-x", "1.0", scripts=("tap-x",))
    assert ensure(before("singer:tap-x"), home, progress) == entry
    # also after a new pipeline of this home built the named one
    assert ensure(singer("singer:tap-x"), home, progress).environment.package == "tap-x"
    assert ensure(before("singer:tap-x"), home, progress) == entry
    assert [e.environment.package for e in remove(singer("singer:tap-x"), home, progress)] == [
        "tap-x", "pipelinewise-tap-x",
    ]  # fmt: skip


def test_what_was_built_under_its_own_name_served_a_shorter_one_before(
    index: Path, home: Path, progress
):
    for name in ("tap-x", "meltanolabs-tap-x"):
        wheel(index, name, "1.0", scripts=("tap-x",))
    other = ensure(singer("singer:meltanolabs-tap-x"), home, progress)
    assert json.loads((Path(other.path) / "READY").read_bytes())["exact"] is True
    forget_exact(home)
    assert ensure(singer("singer:tap-x"), home, progress).environment.package == "tap-x"
    old = ensure(before("singer:tap-x"), home, progress)
    assert old.environment == other.environment
    # and the named one where that was there before
    forget_exact(home)
    assert ensure(before("singer:tap-x"), home, progress).environment.package == "tap-x"


def test_what_is_nowhere_names_what_was_tried(index: Path, home: Path, progress):
    with pytest.raises(SourceError) as caught:
        ensure(singer("singer:tap-nope@1.0"), home, progress)
    assert caught.value.code == "connector.not_found"
    assert "no package tap-nope" in caught.value.message
    with pytest.raises(SourceError) as caught:
        ensure(before("singer:tap-nope@1.0"), home, progress)
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
