"""L11: a program that starts Penstock and never reads what it prints does not hold it."""

import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.errors import Cancelled, SourceError
from penstock.terminal import output
from penstock.terminal.output import Output, write_bounded

BODY = b"x" * (1 << 20)  # more than a pipe takes


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    ends = os.pipe()
    yield ends
    for end in ends:
        os.close(end)


def test_a_reader_that_reads_gets_everything(pipe: tuple[int, int]) -> None:
    got = bytearray()

    def read() -> None:
        while len(got) < len(BODY):
            got.extend(os.read(pipe[0], 1 << 16))

    thread = threading.Thread(target=read)
    thread.start()
    write_bounded(pipe[1], BODY, lambda: False)
    thread.join(20)
    assert got == BODY


def test_l11_a_run_that_is_stopped_does_not_wait_for_the_reader(pipe: tuple[int, int]) -> None:
    began = time.monotonic()
    with pytest.raises(Cancelled):
        write_bounded(pipe[1], BODY, lambda: time.monotonic() - began > 0.5)
    assert time.monotonic() - began < 20


def test_l11_a_reader_that_reads_nothing_is_waited_for_within_a_bound(
    pipe: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(output, "READER_SECONDS", 1.0)
    with pytest.raises(SourceError) as caught:
        write_bounded(pipe[1], BODY, lambda: False)
    assert caught.value.code == "source.host_reads_nothing"


def test_after_a_line_that_was_given_up_nothing_more_is_printed(
    pipe: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    with open(os.dup(pipe[1]), "w") as out:
        output = Output(out=out)
        with pytest.raises(Cancelled):
            output.line(BODY.decode(), lambda: True)
        output.line("one more")  # which would never return


def test_a_reader_that_went_away_and_a_file_are_no_wait(tmp_path: Path) -> None:
    ours, theirs = os.pipe()
    os.close(ours)
    with open(theirs, "w") as out:
        Output(out=out).line("nobody")
    with (tmp_path / "out").open("w") as file:
        Output(out=file).line("text")
    assert (tmp_path / "out").read_text() == "text\n"
