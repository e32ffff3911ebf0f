"""The hints for connectors that a moved dependency broke: what mends them, as a command."""

import re
import shlex
from pathlib import Path

import pytest
from test_install import home, index, quiet, want, wheel

from penstock.connectors.install import ensure
from penstock.connectors.moved_dependencies import MOVED, OLDER_THAN_PYTHON_3_10, mending
from penstock.connectors.resolve import resolve
from penstock.connectors.source import SourceConnector
from penstock.errors import SourceError

pytestmark = pytest.mark.dear

__all__ = ["home", "index"]  # fixtures

FUNCY = """\
  File "/h/venv/lib/python3.11/site-packages/tap_bronto/__init__.py", line 2, in <module>
    from funcy import project
  File "/h/venv/lib/python3.11/site-packages/funcy/colls.py", line 6, in <module>
    from collections import Mapping, Set, Iterable, Iterator, defaultdict
ImportError: cannot import name 'Mapping' from 'collections' (/usr/lib/python3.11/collections/__i)
"""
VOLUPTUOUS = """\
  File "/h/venv/lib/python3.11/site-packages/funcy/colls.py", line 6, in <module>
  File "/h/venv/lib/python3.11/site-packages/voluptuous/schema_builder.py", line 233, in _compile
    if isinstance(schema, collections.Mapping) and len(schema):
AttributeError: module 'collections' has no attribute 'Mapping'
"""
SMART_OPEN = """\
error: No solution found when resolving dependencies
  cause: Because there is no version of smart-open[all]==0.6.0 and airbyte-source-file>=0.6.0
         depends on smart-open[all]==0.6.0, we can conclude that ...
"""


@pytest.mark.parametrize(
    ("words", "requirement"),
    [
        ("ModuleNotFoundError: No module named 'pkg_resources'", "setuptools<80"),
        ("AttributeError: module 'pendulum' has no attribute 'datetime'", "pendulum>=2,<3"),
        ("ImportError: cannot import name 'Period' from 'pendulum' (/x)", "pendulum>=2,<3"),
        (FUNCY, "funcy>=1.17"),
        (VOLUPTUOUS, "voluptuous>=0.12"),
        (SMART_OPEN, "smart-open[all]>=5,<7"),
    ],
    ids=["pkg_resources", "pendulum 0.4", "pendulum 3", "funcy", "voluptuous", "smart-open"],
)
def test_the_hint_is_a_command_with_the_constraint(words: str, requirement: str) -> None:
    hint = mending(words, "airbyte:source-a@1.0", given=("six<2",))
    assert hint is not None
    (command,) = re.findall("`([^`]*penstock[^`]*)`", hint)
    assert shlex.split(command) == [
        "penstock", "add", "airbyte:source-a@1.0", "--constraint", "six<2", "--constraint",
        requirement,
    ]  # fmt: skip


def test_what_is_not_known_has_no_hint_of_the_table() -> None:
    for words in ("", "No module named 'requests'", "no version of smart-open==9", "pendulum"):
        assert mending(words, "singer:tap-a") is None
    other = mending(FUNCY.replace("funcy", "oldie"), "singer:tap-a")
    assert other is not None and "(oldie)" in other and "penstock add" not in other


def test_every_requirement_is_one() -> None:
    from packaging.requirements import Requirement

    for fault in MOVED:
        assert Requirement(fault.requirement.format("all")).specifier and fault.why
    assert all(Requirement(text).specifier for text in OLDER_THAN_PYTHON_3_10.values())


def test_the_whole_traceback_is_looked_at(home: Path, tmp_path: Path) -> None:
    """An error shows its last line only."""
    file = tmp_path / "old"
    file.write_text(f"#!/bin/sh\ncat >&2 <<'END'\n{FUNCY}END\nexit 1\n")
    file.chmod(0o755)
    with pytest.raises(SourceError) as caught:
        resolve(SourceConnector, f"airbyte:{file}", home, base=tmp_path).discover({})
    assert caught.value.hint is not None and "'funcy>=1.17'" in caught.value.hint


def test_a_constraint_is_taken_in_place_of_a_pin(index: Path, home: Path) -> None:
    """An old connector pins exactly what no longer works, or what never was."""
    wheel(index, "airbyte-source-a", "1.0", requires=("dep==0.9", "also"), scripts=("source-a",))
    for name, version in (("dep", "1.0"), ("dep", "2.0"), ("also", "1.0"), ("also", "2.0")):
        wheel(index, name, version)
    with pytest.raises(SourceError) as caught:
        ensure(want("source-a"), home, quiet)
    assert caught.value.hint is not None and "network" not in caught.value.hint
    said: list[str] = []
    entry = ensure(want("source-a", constraints=("dep<2", "also<2")), home, said.append)
    assert "dep==1.0" in entry.environment.lock and "also==1.0" in entry.environment.lock
    assert any("which replace it" in line for line in said)
    with pytest.raises(SourceError) as caught:  # what contradicts itself stays an error
        ensure(want("source-a", constraints=("dep<1", "dep>1")), home, quiet)
    assert caught.value.code == "connector.install_failed"


COMPILE = """\
error: Failed to build `old==1.0`
  cause: The build backend returned an error
         [stderr]
         src/connect.c:12:10: fatal error: openssl/ssl.h: No such file; client error (Connect)
"""
OFFLINE = """\
error: Failed to fetch: http://index/simple/tap-x/
  cause: error sending request for url (http://index/simple/tap-x/)
  cause: tcp connect error
"""


@pytest.mark.parametrize(("words", "offline"), [(COMPILE, False), (OFFLINE, True)])
def test_the_network_is_blamed_for_its_own_errors_only(words: str, offline: bool) -> None:
    from penstock.connectors.install import _failed  # pyright: ignore[reportPrivateUsage]

    hint = _failed(want("source-a"), words).hint
    assert hint is not None and ("is the network reachable?" in hint) == offline
