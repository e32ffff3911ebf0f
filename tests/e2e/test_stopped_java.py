"""L11: Java that is stopped by SIGSTOP ends its run with exit code 5, and nothing is left of it."""

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from e2e_harness import Place, end_all

pytestmark = pytest.mark.spark


@pytest.fixture(autouse=True)
def nothing_left() -> Iterator[None]:
    yield
    end_all()


def test_l11_a_run_whose_java_is_stopped_ends_and_leaves_nothing(tmp_path: Path) -> None:
    told = {"java_stopped_seconds": 2.0}
    config = {"records": 2000, "delay": 0.05}
    place = Place(tmp_path, "parquet", config, told=told, cold=True)
    running = place.start()
    place.process("penstock.engine.worker.lane")
    java = place.process("java", "SparkSubmit")
    os.kill(java, signal.SIGSTOP)
    began = time.monotonic()
    ended = running.wait(60)
    assert time.monotonic() - began < 45, ended.told[-2000:]
    assert (ended.code, ended.error["code"]) == (5, "spark.java_died"), ended.told[-2000:]
    assert "was stopped" in ended.error["message"]
    assert not place.left_after(45)
