"""``penstock completion``: the scripts are sourced and asked in real shells."""

import json
import os
import pty
import select
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from penstock.cli import VERBS, main

pytestmark = pytest.mark.dear

SHELLS = ("bash", "zsh", "fish")
PENSTOCK = Path(sys.executable).with_name("penstock")
BASH = """
source "$1"; shift
COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1))
_penstock
printf '%s\\n' "${COMPREPLY[@]}"
"""


@pytest.fixture(scope="module")
def scripts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the script of each shell, and some files to complete."""
    folder = tmp_path_factory.mktemp("completion")
    for shell in SHELLS:
        done = subprocess.run([PENSTOCK, "completion", shell], capture_output=True, check=True)
        (folder / f"script.{shell}").write_bytes(done.stdout)
    (folder / "files").mkdir()
    for name in ("shop one.yaml", "shot.yml", "shout.txt"):
        (folder / "files" / name).touch()
    (folder / "files" / "shards").mkdir()
    return folder


def ask(shell: str, scripts: Path, line: str) -> set[str]:
    """What the shell offers, or completes the last word to, at the end of ``line``."""
    if shutil.which(shell) is None:
        pytest.skip(f"no {shell}; ./test installs it where it may")
    script, files = scripts / f"script.{shell}", scripts / "files"
    if shell == "zsh":
        return _zsh(script, files, line)
    words = line.split(" ")
    command = (
        ["bash", "--norc", "-c", BASH, "bash", str(script), *words]
        if shell == "bash"
        else ["fish", "--no-config", "-c", f"source {script}; complete -C {json.dumps(line)}"]
    )
    done = subprocess.run(command, cwd=files, capture_output=True, text=True, timeout=20)
    assert done.stderr == ""
    return {each.partition("\t")[0].rstrip("/") for each in done.stdout.splitlines()} - {""}


def _zsh(script: Path, files: Path, line: str) -> set[str]:
    """Zsh completes only in an editor, so this one has a terminal."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(files)
        os.execvpe("zsh", ["zsh", "-f", "-i"], {**os.environ, "TERM": "dumb", "COLUMNS": "200"})
    said = b""

    def read(seconds: float, until: bytes | None = None) -> bytes:
        nonlocal said
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0 and not (until and until in said):
            if select.select([terminal], [], [], left)[0]:
                said += os.read(terminal, 4096)
        taken, said = said, b""
        return taken

    try:
        begin = f"autoload -U compinit; compinit -u -D; source '{script}'; setopt no_auto_menu"
        os.write(terminal, f"{begin}; PS1=; unset zle_bracketed_paste; echo rea''dy\n".encode())
        assert b"ready\r\n" in read(20, b"ready\r\n")
        read(0.3)
        os.write(terminal, line.encode() + b"\t\x18")  # ^X: nothing is bound to it alone
        shown = read(1.5).decode().replace("\a", "").replace("\\", "")
    finally:
        os.close(terminal)
        os.kill(pid, 9)
        os.waitpid(pid, 0)
    *offered, last = shown.replace("\r", "").split("\n")
    listed = {
        word.rstrip("/")
        for each in offered[1:]
        for word in ([each.partition("  ")[0]] if " -- " in each else each.split("  "))
    }
    return ({each.strip() for each in listed} - {""}) or {
        last.removeprefix(line.rpartition(" ")[0]).strip().rstrip("/")
    }


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("penstock sta", {"state"}),
        ("penstock state s", {"show", "set"}),
        ("penstock run --sync-m", {"--sync-mode"}),
        ("penstock run --sync-mode inc", {"incremental"}),
        ("penstock run --env-file shou", {"shout.txt"}),
        ("penstock completion ", set(SHELLS)),
    ],
    ids=lambda value: value.removeprefix("penstock ") if isinstance(value, str) else "",
)
def test_a_shell_completes(shell: str, scripts: Path, line: str, offered: set[str]) -> None:
    assert ask(shell, scripts, line) == offered


@pytest.mark.parametrize("shell", SHELLS)
def test_a_connector_is_one_of_the_index(shell: str, scripts: Path) -> None:
    faker = {"airbyte:source-faker"}
    for line in ("spec airbyte:source-fak", "run airbyte:source-fak", "new airbyte:source-fak"):
        assert ask(shell, scripts, f"penstock {line}") == faker, line
    into = ask(shell, scripts, "penstock run airbyte:source-faker singer:target-jsonl-")
    assert into == {"singer:target-jsonl-webhdfs"}
    assert ask(shell, scripts, "penstock search --role dest") == {"destination"}


def test_bash_completes_a_connector_where_it_splits_words_at_colons(scripts: Path) -> None:
    assert ask("bash", scripts, "penstock spec airbyte : source-fak") == {"source-faker"}
    assert "source-faker" in ask("bash", scripts, "penstock spec airbyte :")
    assert ask("bash", scripts, "penstock spec air") == {"airbyte:"}


@pytest.mark.parametrize("shell", SHELLS)
def test_a_pipeline_is_a_file_of_yaml_or_a_folder(shell: str, scripts: Path) -> None:
    found = ask(shell, scripts, "penstock run sh")
    assert {"shop one.yaml", "shot.yml", "shards"} <= found
    if shell != "fish":  # which puts them first
        assert "shout.txt" not in found


def test_every_verb_is_offered(scripts: Path) -> None:
    assert ask("bash", scripts, "penstock ") == {*VERBS, "--help", "--version"}


def test_a_shell_that_is_not_known_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", "tcsh"]) == 2
    assert "bash, zsh, fish" in capsys.readouterr().err


def test_with_json_the_script_is_in_a_document(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", "bash", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["shell"] == "bash" and "complete -F _penstock penstock" in found["script"]
