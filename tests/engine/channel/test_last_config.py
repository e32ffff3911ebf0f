"""A configuration that a connector changes in its last moment is stored: a refresh token that was
used once is the only one (L10). It is written when the process beside the connector has all but
ended, so it may come after the driver's last look and before the answer."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from penstock.engine.channel.feeder_mail import PushMail
from penstock.engine.channel.mailbox import Mailbox
from penstock.engine.deliver import feeder_runner
from penstock.engine.deliver.feeder_runner import PushTask
from penstock.engine.run import lane_runner
from penstock.engine.run.lane_runner import LaneProcess, Lanes
from penstock.engine.specs.feeder import PushEnd, PushResult
from penstock.engine.specs.lane import LaneEnd, LaneResult, NewConfig
from penstock.engine.specs.plan import LaneStart

NEW = NewConfig("hash", {"token": "renewed"})


@pytest.fixture
def run(tmp_path: Path) -> Mailbox:
    box = Mailbox(tmp_path, "r1")
    box.create()
    return box


def ending(last: Callable[[], object], result: object) -> type:
    """A task that does ``last`` between the look before its answer and the answer."""

    class Ending:
        def __init__(self, *args: Any) -> None:
            self.looked = False

        def answer(self) -> object:
            if not self.looked:
                self.looked = True
                return None
            last()
            return result

        def lost(self, what: str, *_: object) -> None:
            return None

    return Ending


def never(module: str, job: bytes) -> bytes:
    raise AssertionError("the task is played")


def test_l10_a_destination_that_renews_its_token_as_it_ends(
    tmp_path: Path, run: Mailbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored: list[NewConfig] = []
    renews = lambda: PushMail(tmp_path, "r1", 1).put_config(1, 1, NEW)  # noqa: E731
    result = PushResult(end=PushEnd.finished)
    monkeypatch.setattr(feeder_runner, "SubmittedJob", ending(renews, msgspec.json.encode(result)))
    make_job: Any = lambda number, streams, attempt: {}  # noqa: E731
    task = PushTask(
        never,
        run,
        make_job=make_job,
        describe=lambda shapes: {},
        describe_once=False,
        keyed=False,
        save_config=stored.append,
        started=lambda path: None,
    )
    talk = task.start({}, 1)
    assert talk.poll() is None
    assert talk.poll() == result
    assert stored == [NEW]


def test_l10_a_source_that_renews_its_token_as_it_ends(
    run: Mailbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored: list[NewConfig] = []
    result = LaneResult(end=LaneEnd.finished)
    monkeypatch.setattr(
        lane_runner, "SubmittedJob", ending(lambda: run.put_config(7, 1, NEW), result)
    )
    nothing: Any = lambda *args: {}  # noqa: E731
    lanes = Lanes(LaneProcess(never), run, nothing, nothing, stored.append)
    handle = lanes.start(LaneStart(lane=0, epoch=7, streams=(), generations=(), states=()))
    assert handle.poll() is None
    assert handle.poll() == result
    assert stored == [NEW]
