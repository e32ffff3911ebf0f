"""L8: a record that an earlier run rejected counts once; one that no run saved a state after, or
that is in the same file, counts again."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from penstock.engine.log.rejects import RejectLine, encode_rejects
from penstock.engine.log.repeated_rejects import EarlierRejects, RepeatedRejects
from penstock.engine.log.retries import given_up_folder, mark_given_up
from penstock.model.catalog import DestinationSyncMode, StreamId
from penstock.model.segments import (
    ConsumedSlice,
    Segment,
    SegmentId,
    StreamSlice,
    WriteDisposition,
)

ORDERS, USERS = StreamId(None, "orders"), StreamId("eu", "users")


class Rejected:
    """The log of a run, and the folders of two earlier ones."""

    def __init__(self, folder: Path) -> None:
        self.log, self.old, self.newer = folder / "log", folder / "old", folder / "newer"
        self.floors: dict[StreamId | None, int] = {}

    def write(self, epoch: int, *bodies: bytes, stream: StreamId = ORDERS) -> Segment:
        """Writes rejects into the log. Returns their segment."""
        path = f"epochs/{epoch:08d}/rejects/000001.jsonl"
        self._put(self.log / path, bodies, stream)
        share = StreamSlice(
            stream=stream, disposition=WriteDisposition(mode=DestinationSyncMode.append),
            schema_version=1, generation=0, fills_generation=False,
        )  # fmt: skip
        return Segment(id=SegmentId(epoch, 1), lane=0, scope=None, slices=(share,), rejects=(path,))

    def keep(self, folder: Path, epoch: int, *bodies: bytes, stream: StreamId = ORDERS) -> None:
        self._put(folder / f"{epoch:08d}-000001.jsonl", bodies, stream)

    def count(self, *segments: Segment, stream: StreamId = ORDERS) -> int:
        def earlier() -> EarlierRejects:
            return EarlierRejects(self.log, [self.newer, self.old], self.floors)

        return RepeatedRejects(self.log, earlier).count(stream, segments)

    @staticmethod
    def _put(path: Path, bodies: Sequence[bytes], stream: StreamId) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        lines = [RejectLine.of(stream, "primary key is null", "id", b, "2026") for b in bodies]
        path.write_bytes(encode_rejects(lines))


@pytest.fixture
def rejected(tmp_path: Path) -> Rejected:
    return Rejected(tmp_path)


def test_each_reject_meets_one_of_an_earlier_run(rejected: Rejected) -> None:
    rejected.keep(rejected.old, 1, b"a", b"b", b"\xff")
    rejected.keep(rejected.newer, 2, b"a")
    assert rejected.count(rejected.write(3, b"a")) == 1
    assert rejected.count(rejected.write(3, b"a", b"a", b"a", b"b", b"c", b"\xff")) == 4
    assert rejected.count(rejected.write(3, b"c")) == 0


def test_only_those_of_its_stream_count(rejected: Rejected) -> None:
    rejected.keep(rejected.old, 1, b"a", stream=USERS)
    assert rejected.count(rejected.write(3, b"a")) == 0
    assert rejected.count(rejected.write(3, b"a", stream=USERS), stream=USERS) == 1


def test_those_that_a_run_gave_up_count_again(rejected: Rejected) -> None:
    rejected.keep(rejected.old, 1, b"a")
    first = rejected.write(1, b"a")
    mark_given_up(given_up_folder(rejected.log), [first], [ConsumedSlice(first.id, ORDERS)])
    assert rejected.count(rejected.write(3, b"a")) == 0
    rejected.keep(rejected.newer, 2, b"a")
    assert rejected.count(rejected.write(3, b"a")) == 1


def test_what_was_given_up_of_another_stream_counts_once(rejected: Rejected) -> None:
    rejected.keep(rejected.old, 1, b"a")
    first = rejected.write(1, b"a", stream=USERS)
    mark_given_up(given_up_folder(rejected.log), [first], [ConsumedSlice(first.id, USERS)])
    assert rejected.count(rejected.write(3, b"a")) == 1


def test_a_dry_run_whose_numbers_begin_again_counts_as_a_run(
    rejected: Rejected, tmp_path: Path
) -> None:
    rejected.keep(rejected.old, 1, b"a")
    real, rejected.log = rejected.log, tmp_path / "dry"
    sealed = rejected.write(1, b"a")
    found = EarlierRejects(real, [rejected.old], {})
    assert RepeatedRejects(rejected.log, lambda: found).count(ORDERS, [sealed]) == 1


def test_a_copy_that_a_killed_run_made_of_the_same_file_is_no_earlier_reject(
    rejected: Rejected,
) -> None:
    rejected.keep(rejected.newer, 3, b"a")
    assert rejected.count(rejected.write(3, b"a")) == 0


@pytest.mark.parametrize("stream", [None, ORDERS])
def test_after_a_reset_they_count_again(rejected: Rejected, stream: StreamId | None) -> None:
    rejected.keep(rejected.old, 4, b"a")
    rejected.floors = {stream: 4}
    assert rejected.count(rejected.write(5, b"a")) == 0
    rejected.floors = {stream: 3, USERS: 9}
    assert rejected.count(rejected.write(5, b"a")) == 1


def test_a_damaged_file_has_none(rejected: Rejected) -> None:
    rejected.keep(rejected.old, 1, b"a")
    rejected.newer.mkdir()
    (rejected.newer / "00000002-000001.jsonl").write_bytes(b'{"bytes": "a"')
    assert rejected.count(rejected.write(3, b"a")) == 1
