"""A hint that installs something is a command that runs as printed, in a checkout too."""

import json
import shlex
import subprocess
from importlib import metadata
from typing import Any

import pytest

from penstock.config.packages import install, install_extra

EXTRAS = ("postgres", "otel", "openlineage")
STATED = metadata.requires("penstock")


class Wheel:
    """Penstock as pip installs it. ``origin``: its direct_url.json."""

    def __init__(self, origin: Any) -> None:
        self.origin = origin
        self.requires = STATED

    def read_text(self, name: str) -> str | None:
        assert name == "direct_url.json"
        return None if self.origin is None else json.dumps(self.origin)


def test_in_a_checkout_the_command_runs() -> None:
    command = shlex.split(install_extra("postgres"))
    wanted = [word.partition(">")[0] for word in command if ">" in word]
    assert sorted(wanted) == ["adbc-driver-postgresql", "psycopg[binary]", "sqlalchemy"]
    found = subprocess.run([*command, "--offline"], capture_output=True, text=True)
    assert found.returncode == 0, found.stderr  # it is there


@pytest.mark.parametrize("extra", EXTRAS)
def test_each_extra_is_known(extra: str) -> None:
    assert ">=" in install_extra(extra).partition(" --python ")[2]


@pytest.mark.parametrize(
    ("origin", "pip"),
    [
        (None, True),
        ({"url": "https://example.com/penstock.whl", "archive_info": {}}, True),
        ({"url": "file:///here", "dir_info": {"editable": True}}, False),
        ({"url": "file:///here", "dir_info": {}}, False),
    ],
)
def test_a_wheel_is_extended_by_pip(
    origin: Any, pip: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metadata, "distribution", lambda name: Wheel(origin))
    assert (install_extra("postgres") == "pip install 'penstock[postgres]'") == pip
    assert (install("wasmtime") == "pip install wasmtime") == pip
