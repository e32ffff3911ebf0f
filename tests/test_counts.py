"""Collected = passed + skipped: each way in which a test is missing fails the run, or is told."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from counts import QUICK_WITHOUT

SOME = """
import pytest
def test_one(): pass
@pytest.mark.parametrize("n", range(3))
def test_each(n): pass
@pytest.mark.skip(reason="no such engine here")
def test_skipped(): pass
"""
MARKED = """
import pytest
@pytest.mark.spark
def test_java(): pass
@pytest.mark.spark
@pytest.mark.slow
def test_dear(): pass
@pytest.mark.network
def test_fetches(): pass
@pytest.mark.slow
def test_long(): pass
@pytest.mark.dear
def test_works(): pass
def test_quick(): pass
"""
DESELECTS = """
def pytest_collection_modifyitems(config, items):
    config.hook.pytest_deselected(items=items[:1])
    del items[:1]
"""


class Folder:
    def __init__(self, path: Path) -> None:
        self.path = path
        marks = "".join(f"\n    {mark}" for mark in QUICK_WITHOUT)
        (path / "pytest.ini").write_text(
            f"[pytest]\ntestpaths = tests\naddopts = -ra\nmarkers ={marks}\n"
        )
        (path / "tests").mkdir()

    def write(self, **files: str) -> None:
        for name, text in files.items():
            (self.path / "tests" / f"{name}.py").write_text(text)

    def run(self, *arguments: str) -> tuple[int, list[str]]:
        """The exit code, and the lines that were printed."""
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-p", "counts", *arguments],
            cwd=self.path,
            env={
                **{k: v for k, v in os.environ.items() if not k.startswith("PYTEST_")},
                "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
                "PYTHONPATH": str(Path(__file__).parent),
            },
            capture_output=True,
            text=True,
            timeout=120,
        )
        return done.returncode, (done.stdout + done.stderr).splitlines()


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path)


WORKERS = ("-p", "xdist.plugin", "-n2")


@pytest.mark.parametrize("how", [(), ("--whole",), WORKERS, (*WORKERS, "--whole")])
def test_what_was_collected_was_passed_or_skipped_and_each_skip_has_its_reason(
    folder: Folder, how: tuple[str, ...]
) -> None:
    folder.write(test_some=SOME)
    code, lines = folder.run(*how)
    assert code == 0, lines
    assert lines[-2] == "collected 5 = passed 4 + skipped 1"
    assert "4 passed, 1 skipped" in lines[-1]  # pytest's own line stays the last
    assert any("SKIPPED" in line and "no such engine here" in line for line in lines)


@pytest.mark.parametrize("how", [(), ("--whole",), (*WORKERS, "--whole")])
def test_a_deselection_that_nobody_asked_for_fails(folder: Folder, how: tuple[str, ...]) -> None:
    folder.write(test_some=SOME, conftest=DESELECTS)
    code, lines = folder.run(*how)
    assert code == 1
    assert lines[-2] == "collected 5 = passed 3 + skipped 1 + deselected 1"
    assert "wrong: 1 deselected" in lines


def test_who_asks_for_a_part_is_given_it_but_not_of_the_whole(folder: Folder) -> None:
    folder.write(test_some=SOME)
    code, lines = folder.run("-k", "one")
    assert (code, lines[-2]) == (0, "collected 5 = passed 1 + skipped 0 + deselected 4")
    assert folder.run("-k", "one", "--whole")[0] == 1


@pytest.mark.parametrize("how", [(), WORKERS])
def test_quick_says_how_many_it_leaves_out_and_why(folder: Folder, how: tuple[str, ...]) -> None:
    folder.write(test_some=SOME, test_marked=MARKED)
    code, lines = folder.run("--quick", *how)
    assert code == 0, lines
    assert lines[-2] == (
        "collected 11 = passed 5 + skipped 1 + left out 5 (2 start Java, "
        "1 install from a registry, 1 take more than a minute, 1 take seconds of a processor)"
    )


@pytest.mark.parametrize("how", [(), WORKERS])
def test_a_failure_is_told_when_it_happens(folder: Folder, how: tuple[str, ...]) -> None:
    folder.write(test_bad="def test():\n    assert not [\n        1]\n", test_some=SOME)
    _, lines = folder.run(*how)
    said = "failed tests/test_bad.py::test: "
    told = [n for n, line in enumerate(lines) if line.startswith(said)]
    assert len(told) == 1 and "test_bad.py:2: assert not [1]" in lines[told[0]], lines
    assert told[0] < next(n for n, line in enumerate(lines) if "= FAILURES =" in line)


FAULTS = {
    "fails": ("def test(): assert 0", "collected 6 = passed 4 + skipped 1 + failed 1"),
    "set-up": (
        "import pytest\n@pytest.fixture\ndef no(): assert 0\ndef test(no): pass",
        "collected 6 = passed 4 + skipped 1 + failed 1",
    ),
    "tear-down": (
        "import pytest\n@pytest.fixture\ndef no():\n yield\n assert 0\ndef test(no): pass",
        "collected 6 = passed 4 + skipped 1 + failed 1",
    ),
    "import": ("import no_such", "collected 6 = passed 4 + skipped 1 + failed 1"),
    "expected": (
        "import pytest\n@pytest.mark.xfail\ndef test(): assert 0",
        "collected 6 = passed 4 + skipped 1 + expected to fail 1",
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_what_neither_passed_nor_was_skipped_fails(folder: Folder, fault: str) -> None:
    text, sum_ = FAULTS[fault]
    folder.write(test_some=SOME, test_z=text)
    code, lines = folder.run("--continue-on-collection-errors")
    assert code == 1 and sum_ in lines, lines


def test_what_a_first_failure_leaves_unplayed_is_counted(folder: Folder) -> None:
    folder.write(test_a="def test(): assert 0", test_some=SOME)
    code, lines = folder.run("-x")
    assert code == 1
    assert "collected 6 = passed 0 + skipped 0 + failed 1 + not played 5" in lines


def test_a_file_that_is_not_collected_fails_the_whole(folder: Folder) -> None:
    folder.write(test_some=SOME, test_marked=MARKED, conftest="collect_ignore = ['test_marked.py']")
    assert folder.run()[0] == 0
    code, lines = folder.run("--whole")
    assert code == 1
    assert "wrong: tests/test_marked.py: no test of it was collected" in lines
