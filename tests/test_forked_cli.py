"""A forked command is what the script is, to its caller (``forked_cli``)."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

import forked_cli

STUB = Path(__file__).parent / "stubs" / "stub_source.py"


def environ(folder: Path) -> dict[str, str]:
    return {"PATH": os.environ["PATH"], "HOME": str(folder), "PENSTOCK_HOME": str(folder / "home")}


@pytest.mark.parametrize(
    "words",
    [("runs", "--json"), ("discover", f"airbyte:{sys.executable} {STUB}"), ("run", "no.yaml")],
)
def test_it_answers_as_the_script_does(words: tuple[str, ...], tmp_path: Path) -> None:
    env = environ(tmp_path)
    command = [str(forked_cli.SCRIPT), *words]
    real = subprocess.run(command, input=b"", capture_output=True, cwd=tmp_path, env=env)
    forked = forked_cli.run(words, stdin=b"", cwd=tmp_path, env=env, timeout=60)
    assert (forked.returncode, forked.stdout) == (real.returncode, real.stdout)
    assert forked.stderr.count(b"\n") == real.stderr.count(b"\n")


@pytest.mark.parametrize("more", [{}, {"PYTHONUTF8": "1"}])
def test_so_does_the_script_of_a_folder_for_path(more: dict[str, str], tmp_path: Path) -> None:
    folder = forked_cli.folder_of_script()
    env = {**os.environ, **environ(tmp_path), **more}
    said = {
        place: subprocess.run(
            ["bash", "-c", "cat no.txt; penstock runs x --json | cat; echo ${PIPESTATUS[0]}"],
            capture_output=True,
            cwd=tmp_path,
            env=env | {"PATH": f"{place}:{env['PATH']}"},
            timeout=60,
        ).stdout
        for place in (folder, forked_cli.SCRIPT.parent)
    }
    assert said[folder] == said[forked_cli.SCRIPT.parent] != b""


def test_one_that_does_not_end_is_killed_with_its_connector(tmp_path: Path) -> None:
    file = tmp_path / "pid"
    words = ("spec", f"airbyte:sh -c 'echo $$ >{file}; exec sleep 300'")
    with pytest.raises(subprocess.TimeoutExpired):
        forked_cli.run(words, stdin=b"", cwd=tmp_path, env=environ(tmp_path), timeout=3)
    connector = Path("/proc") / file.read_text().strip()
    deadline = time.monotonic() + 20
    while connector.exists():
        assert time.monotonic() < deadline
        time.sleep(0.1)
