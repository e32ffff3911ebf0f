"""Start-up costs, help and version (issue 3 part 11: version under 0.4 s, import under 150 ms).

Measured in processor time, which other programs on the machine change little: the best of several
starts counts; where the promise is about our part, an idle start of the interpreter is taken off.
"""

import importlib
import resource
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from cli_harness import SOURCE, Cli

import penstock
from forked_cli import SCRIPT
from penstock.cli import VERBS

PARTS = ["show", "set", "reset", "adopt", "unlock", "export", "import", "history"]


def best(cli: Cli, command: list[str], times: int = 5) -> float:
    """Seconds of the processor."""
    spent: list[float] = []
    for _ in range(times + 1):  # the first one compiles
        began = of_children()
        subprocess.run(command, check=False, capture_output=True, env=cli.environ, timeout=60)
        spent.append(of_children() - began)
    return min(spent[1:])


def of_children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def test_version_takes_less_than_400_ms(cli: Cli) -> None:
    assert best(cli, [str(SCRIPT), "--version"]) < 0.4


def test_import_takes_less_than_150_ms(cli: Cli) -> None:
    idle = best(cli, [sys.executable, "-c", "pass"])
    assert best(cli, [sys.executable, "-c", "import penstock"]) - idle < 0.15


def test_state_show_takes_less_than_a_second(shop: Cli) -> None:
    assert best(shop, [str(SCRIPT), "state", "show", "shop"]) < 1.0


@pytest.mark.parametrize("verb", ["--version", "--help"])
def test_the_cheap_ways_import_no_typer(cli: Cli, verb: str) -> None:
    code = (
        f"import sys; from penstock.cli import main; main(['{verb}']); "
        "print(*sorted({'typer', 'rich', 'msgspec', 'yaml', 'pyspark'} & sys.modules.keys()))"
    )
    assert cli("-c", code, script=[sys.executable]).out.splitlines()[-1] == ""


def test_a_verb_that_moves_no_data_imports_no_spark(shop: Cli) -> None:
    code = (
        "import sys; from penstock.cli import main; main(['state', 'show', 'shop']); "
        "print(*sorted({'pyspark', 'py4j', 'pyarrow', 'duckdb'} & sys.modules.keys()))"
    )
    assert shop("-c", code, script=[sys.executable]).out.splitlines()[-1] == ""


def test_a_plan_loads_nothing_that_only_a_run_needs(cli: Cli) -> None:
    code = (
        f"import sys; from penstock.cli import main; main(['plan', {SOURCE!r}, 'parquet:./lake']); "
        "print(*sorted({'pyspark', 'pyarrow', 'duckdb', 'datafusion'} & sys.modules.keys()))"
    )
    assert cli("-c", code, script=[sys.executable]).out.splitlines()[-1] == ""


END = """
import atexit, os, sys, threading, time
from penstock import cli
class Kept:
    def __del__(self, write=os.write): write(1, b"taken down")
kept = Kept()
def main():
    atexit.register(print, "an exit function ran")
    threading.Thread(target=lambda: (time.sleep(0.3), print("a thread ended"))).start()
    return 7
cli.main = main
sys.exit(cli.command())
"""


def test_the_end_waits_for_threads_and_exit_functions_and_takes_no_modules_down(cli: Cli) -> None:
    done = subprocess.run([sys.executable, "-c", END], capture_output=True, text=True, timeout=60)
    assert done.stdout == "a thread ended\nan exit function ran\n"
    assert (done.returncode, done.stderr) == (7, "")


def test_version_is_the_packages(cli: Cli) -> None:
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())
    assert penstock.__version__ == project["project"]["version"]
    assert cli("--version").out == f"penstock {penstock.__version__}\n"
    assert cli("-m", "penstock", "--version", script=[sys.executable]).out == cli("-V").out


def test_public_names_exist_and_others_do_not() -> None:
    assert set(dir(penstock)) == set(penstock.__all__)
    for name in penstock.__all__:
        assert getattr(penstock, name) is not None
    with pytest.raises(AttributeError, match="no_such_name"):
        _ = penstock.no_such_name


def test_help_names_every_verb(cli: Cli) -> None:
    told = cli("--help")
    assert told.code == 0
    assert all(f"\n  {verb} " in told.out for verb in VERBS)
    nothing = cli()
    assert (nothing.code, nothing.out) == (2, "")
    assert nothing.err == told.out


SERVED = ("target", "destination")


@pytest.mark.parametrize(
    "words",
    [
        *([v] for v in VERBS),
        *(["state", p] for p in PARTS),
        *(["serve", p] for p in SERVED),
        *(["spark", p] for p in ("status", "stop")),
    ],
)
def test_every_help_has_an_example(
    words: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    assert importlib.import_module("penstock.cli").main([*words, "--help"]) == 0
    told = capsys.readouterr().out
    examples = told.split("Examples:")[1]
    assert f"penstock {' '.join(words)}" in examples
    if words not in (["state"], ["serve"], ["spark"]):
        for option in ("--json", "--home", "--verbose", "--quiet"):
            assert option in told
