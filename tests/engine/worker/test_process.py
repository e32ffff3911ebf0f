"""``engine.worker.process``: what a lane and a feeder share."""

import threading
from pathlib import Path

import pytest

from penstock.engine.channel.mailbox import Mailbox, Progress
from penstock.engine.specs.lane import LaneJob
from penstock.engine.worker import process
from penstock.engine.worker.process import Stopped, WorkerProcess, exit_words
from penstock.errors import LogError
from penstock.model.events import ConnectorExited


def working(root: Path, orphaned: threading.Event) -> tuple[Mailbox, WorkerProcess]:
    run = Mailbox(root, "r1")
    run.create()
    job = LaneJob(
        run="r1", epoch=3, lane=0, log_root=str(root), protocol="airbyte",
        launch={"protocol": "airbyte", "command": ["true"]}, config={}, config_hash="", streams=(),
    )  # fmt: skip
    return run, WorkerProcess(job, run, 3, "lane-3", orphaned)


@pytest.mark.parametrize("how", ["cancel", "lease", "orphan"])
def test_l11_it_stops_once_its_run_is_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    now, orphaned = [1000.0], threading.Event()
    monkeypatch.setattr(process.time, "monotonic", lambda: now[0])
    run, worker = working(tmp_path, orphaned)
    claims: list[str] = []
    worker.begin(claims.append)
    worker.between(Progress)
    assert len(claims) == 1 and run.progress(3) == Progress()
    match how:
        case "cancel":
            run.cancel()
            worker.between(Progress)  # looked at once a second
            now[0] += 1.5
        case "lease":
            now[0] += 31
        case _:
            orphaned.set()
    with pytest.raises(Stopped):
        worker.between(Progress)


def test_l4_a_run_that_is_over_is_not_joined(tmp_path: Path) -> None:
    run, worker = working(tmp_path, threading.Event())
    run.remove()
    claims: list[str] = []
    with pytest.raises(LogError) as caught:
        worker.begin(claims.append)
    assert caught.value.code == "log.claimed" and claims == []


@pytest.mark.parametrize(
    ("exited", "words"),
    [
        (ConnectorExited(3, " boom\n"), "ended with exit code 3; its last output: boom"),
        (ConnectorExited(-9, " "), "ended with signal 9"),
        (ConnectorExited(None), "was stopped"),
    ],
)
def test_how_a_connector_ended_is_said_the_same_way_of_either(
    exited: ConnectorExited, words: str
) -> None:
    assert exit_words(exited) == words
