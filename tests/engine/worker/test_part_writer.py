"""Parts that are written beside the decoding: sealed only when they are whole (L2), one at a time,
and what fails one fails the seal that would name it."""

import threading
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from penstock.engine.log.log import FileLog
from penstock.engine.worker.part_writer import BESIDE_BYTES, ThreadedPartWriter
from penstock.errors import LogError
from penstock.model.segments import PartRef


@pytest.fixture
def log(tmp_path: Path) -> FileLog:
    log = FileLog(tmp_path / "log")
    log.claim(1, "me")
    return log


def rows(first: int) -> pa.Table:
    return pa.table({"id": range(first, first + 1000)})


class Held:
    """A log whose parts wait until they are let go."""

    def __init__(self, log: FileLog) -> None:
        self._log, self.go, self.began = log, threading.Semaphore(0), 0

    def write_part(self, *arguments: Any) -> PartRef:
        self.began += 1
        assert self.go.acquire(timeout=30)
        return self._log.write_part(*arguments)


def test_it_goes_on_while_a_part_is_written_and_one_at_a_time(log: FileLog) -> None:
    held = Held(log)
    write: Any = ThreadedPartWriter(held)  # type: ignore[arg-type]
    first = write(1, "000001", rows(0), BESIDE_BYTES, None)
    assert held.began == 1  # it has returned, and the part is not there yet
    second: list[Any] = []
    again = threading.Thread(
        target=lambda: second.append(write(1, "000002", rows(1000), BESIDE_BYTES, None))
    )
    again.start()
    time.sleep(0.2)
    assert held.began == 1 and not second
    held.go.release(2)
    again.join(30)
    parts = [first(), second[0]()]
    write.close()
    assert [part.rows for part in parts] == [1000, 1000]
    log.verify(parts)


def test_a_small_part_is_there_at_once_and_after_those_before_it(log: FileLog) -> None:
    held = Held(log)
    write: Any = ThreadedPartWriter(held)  # type: ignore[arg-type]
    write(1, "000001", rows(0), BESIDE_BYTES, None)
    held.go.release(2)
    small = write(1, "000002", rows(1000), BESIDE_BYTES - 1, None)
    assert held.began == 2
    log.verify([small()])


def test_what_fails_a_part_fails_the_next_one_and_its_seal(log: FileLog) -> None:
    (Path(log.root) / "epochs/00000001/parts/000001.parquet").mkdir(parents=True)
    write = ThreadedPartWriter(log)
    part = write(1, "000001", rows(0), BESIDE_BYTES, None)
    for ask in (part, lambda: write(1, "000002", rows(0), 1, None), part):
        with pytest.raises(LogError):
            ask()
    write.close()
    assert log.segments() == []
