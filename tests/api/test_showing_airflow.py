"""Under Airflow the progress of a run reaches the task's log (issue 40 part 3). With a real
Airflow: ``tests/docs/test_schedulers.py``."""

import logging
import os
import subprocess
import sys
import types

import pytest

from penstock.api.showing import AIRFLOW_TASK, shown

SAID = """
from penstock.api.showing import shown
with shown(None, ["hunter2-of-the-shop"]) as observer:
    observer.phase("extract", "lane 0: as hunter2-of-the-shop")
    observer.note("a note")
"""


def test_lines_go_to_the_log_of_the_task(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture
) -> None:
    monkeypatch.setenv(AIRFLOW_TASK, "sync")
    monkeypatch.setitem(sys.modules, "airflow", types.ModuleType("airflow"))
    with caplog.at_level(logging.INFO), shown(None, ["hunter2-of-the-shop"]) as observer:
        observer.phase("extract", "lane 0: as hunter2-of-the-shop")
        observer.stream("users", 1200, 9000, 1, 0, None)
        observer.log("WARN", "source", "slow\nand split")
        observer.log("ERROR", "source", "gone")
        observer.log("INFO", "source", "chatter")
        observer.note("a note")
    said = [(record.levelname, record.message.partition("] ")[2]) for record in caplog.records]
    assert said == [
        ("INFO", "extract  lane 0: as ****"),
        ("INFO", "read     users: 1,200 rows, 9.0 kB, 1 state"),
        ("WARNING", "WARN     source: slow\\nand split"),
        ("ERROR", "ERROR    source: gone"),
        ("INFO", "note     a note"),
    ]
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize("under", [True, False], ids=["started by a task", "by nobody"])
def test_a_program_that_a_task_starts_writes_lines_on_stderr(under: bool) -> None:
    """Airflow's BashOperator reads stdout and stderr of its command as one stream of lines."""
    environ = {k: v for k, v in os.environ.items() if k != AIRFLOW_TASK}
    command = subprocess.Popen(
        [sys.executable, "-c", SAID],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env=environ | ({AIRFLOW_TASK: "sync"} if under else {}),
    )
    assert command.stdout is not None
    lines = [line.decode().rstrip() for line in command.stdout]
    assert command.wait(60) == 0
    assert [line.partition("] ")[2] for line in lines] == (
        ["extract  lane 0: as ****", "note     a note"] if under else []
    )


def test_false_stays_silent(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv(AIRFLOW_TASK, "sync")
    monkeypatch.setitem(sys.modules, "airflow", types.ModuleType("airflow"))
    with caplog.at_level(logging.INFO), shown(False) as observer:
        observer.note("a note")
    assert not caplog.records
