"""What a page sees of a run that another process makes."""

import time
from pathlib import Path

import pytest

from penstock.config.home import Home
from penstock.engine.channel.mailbox import Activity, Mailbox, Progress
from penstock.engine.inspect.live import progress
from penstock.model.catalog import StreamId

ORDERS, USERS = StreamId(None, "orders"), StreamId("eu", "users")


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path)


def test_the_lanes_of_a_run_add_up(home: Home) -> None:
    assert progress(home, "shop", "run") is None
    box = Mailbox(Path(home.log("shop", None)), "run")
    box.create()
    first = Progress(
        streams=[(ORDERS.key, 3, 30, 9)], states=2, stream_states=[(ORDERS.key, 1), (USERS.key, 1)]
    )
    box.put_progress(1, first)
    box.put_progress(2, Progress(streams=[(ORDERS.key, 4, 40, None)], states=1))
    found = progress(home, "shop", "run")
    assert found is not None
    orders, users = found["streams"]
    assert (orders["read"], orders["bytes"], orders["states"]) == (7, 70, 1)
    assert (orders["expected_rows"], users["states"], found["states"]) == (9, 1, 3)
    assert (found["phase"], found["time"]) == (None, {})


def test_what_it_does_and_where_its_time_goes(home: Home) -> None:
    box = Mailbox(Path(home.log("shop", None)), "run")
    box.create()
    box.put_progress(1, Progress())
    spent = {"prepare": 1.0, "start": 4.0}
    box.put_activity(Activity(phase="load", began=time.time() - 65, spent=spent))
    found = progress(home, "shop", "run")
    assert found is not None and found["phase"] == "load"
    assert found["time"] == {**spent, "extract": pytest.approx(60, abs=5)}
