"""A hint that installs something is a command that runs as printed, wherever Penstock is."""

import shlex
import subprocess
import sys

import pytest

from penstock.config.packages import install_extra

EXTRAS = ("postgres", "otel", "openlineage")


def test_the_command_runs() -> None:
    command = shlex.split(install_extra("postgres"))
    wanted = [word.partition(">")[0] for word in command if ">" in word]
    assert sorted(wanted) == ["adbc-driver-postgresql", "psycopg[binary]", "sqlalchemy"]
    found = subprocess.run([*command, "--offline"], capture_output=True, text=True)
    assert found.returncode == 0, found.stderr  # it is there


@pytest.mark.parametrize("extra", EXTRAS)
def test_each_extra_is_known(extra: str) -> None:
    assert ">=" in install_extra(extra).partition(" --python ")[2]


def test_no_command_names_the_package_of_somebody_else() -> None:
    """The public index has another ``penstock``; environments of tools have no pip."""
    for extra in EXTRAS:
        words = shlex.split(install_extra(extra))
        assert words[1:5] == ["-m", "uv", "pip", "install"] and words[0] == sys.executable
        assert not any(word.startswith("penstock") for word in words)
