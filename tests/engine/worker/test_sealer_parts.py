"""``engine.worker.sealer``: where parts are cut (L2). What no state covers yet is decoded with what
follows it, so that states do not make small parts."""

from types import SimpleNamespace
from typing import Any

import pytest
from msgspec import structs

from penstock.engine.log.memory import MemoryLog
from penstock.engine.specs.lane import LaneBounds, LaneStream
from penstock.engine.worker.sealer import Sealer
from penstock.model.catalog import DestinationSyncMode, StreamId
from penstock.model.events import Batch, State
from penstock.model.segments import WriteDisposition
from penstock.model.state import StateScope, StateType
from penstock.model.types import MissingColumns

STREAM = StreamId(None, "users")
SCOPE = StateScope(StateType.stream, STREAM)


def parts(batches: int, every: int, *, clean: bool = True) -> list[tuple[str | None, list[int]]]:
    """Rows of each part of each segment, with its state: batches of ten rows and ten bytes, a state
    after ``every`` of them, parts of a hundred bytes."""

    def decode(stream: StreamId, bodies: Any, first: int, *_: Any) -> Any:
        seen.extend(range(first, first + len(bodies)))
        return SimpleNamespace(rows=list(bodies), count=len(bodies), rejects=[], missing=None)

    log, seen = MemoryLog(), list[int]()
    live = LaneStream(
        stream=STREAM,
        disposition=WriteDisposition(mode=DestinationSyncMode.append),
        schema_version=1,
        generation=0,
        fills_generation=False,
    )
    sealer = Sealer(
        log, epoch=1, lane=0, streams=[live], decode=decode, clock=lambda: 0.0,
        bounds=LaneBounds(part_bytes=100, buffer_bytes=100_000, seal_bytes=450),
    )  # fmt: skip
    for number in range(1, batches + 1):
        sealer.batch(Batch(STREAM, [b"{}"] * 10, [0] * 10, size=10))
        if number % every == 0:
            sealer.state(State(SCOPE, str(number)))
    sealer.finish(clean=clean)
    assert seen == list(range(len(seen))), "each row once, in order"
    return [
        (segment.state, [part.rows for s in segment.slices for part in s.parts])
        for segment in log.segments()
        if any(s.parts for s in segment.slices)
    ]


def test_l2_rows_behind_a_state_wait_for_the_part_of_the_next_one() -> None:
    assert parts(48, 8) == [("48", [80] * 6)]
    assert parts(48, 4) == [("48", [80] * 6)], "two states each"


@pytest.mark.parametrize("every", [3, 7, 11, 25, 60])
def test_l2_a_part_has_no_row_that_its_segment_s_state_does_not_cover(every: int) -> None:
    found = parts(107, every, clean=False)
    rows = 0
    for state, sizes in found:
        rows += sum(sizes)
        assert state is not None and rows == 10 * int(state)
    assert rows == 10 * (107 // every * every), "what no state covers is sent again"


def test_l2_a_little_that_a_state_covers_does_not_hold_up_the_rest() -> None:
    """After a state, and then none for long: parts are as large as they may be."""
    assert parts(62, 2 * 31) == [("62", [100] * 6 + [20])]
    (segment,) = parts(33, 3)[:1]
    assert all(size >= 50 for size in segment[1][:-1])


@pytest.mark.parametrize("fills", [False, True], ids=["increment", "generation"])
@pytest.mark.parametrize("covered", [True, False], ids=["a state", "the end"])
def test_l2_rows_before_a_column_was_made_are_sealed_with_what_covers_them(
    fills: bool, covered: bool
) -> None:
    """Rows need a column that their schema lacks while a state is sealed that covers them and older
    rows: all are in the one step that has the state. A generation has one schema version, the
    newest; rows of an increment stay in segments of their own."""
    log, sealed = MemoryLog(), list[list[Any]]()
    seal = log.seal
    log.seal = lambda epoch, segments: (sealed.append([*segments]), seal(epoch, segments))[1]  # type: ignore[method-assign]
    live = LaneStream(
        stream=STREAM,
        disposition=WriteDisposition(mode=DestinationSyncMode.append),
        schema_version=1,
        generation=7,
        fills_generation=fills,
    )
    wide: list[int] = []

    def decode(stream: StreamId, bodies: Any, first: int, *_: Any) -> Any:
        odd = b"odd" in [*bodies] and not wide
        missing = MissingColumns((), True) if odd else None
        return SimpleNamespace(rows=[*bodies], count=len(bodies), rejects=[], missing=missing)

    def widen(stream: StreamId, missing: MissingColumns) -> LaneStream:
        wide.append(1)
        return structs.replace(live, schema_version=2)

    sealer = Sealer(
        log, epoch=1, lane=0, streams=[live], decode=decode, clock=lambda: 0.0, widen=widen,
        bounds=LaneBounds(part_bytes=20, buffer_bytes=100_000, seal_bytes=100_000),
    )  # fmt: skip
    for body in (b"one", b"two", b"odd"):
        sealer.batch(Batch(STREAM, [body] * 10, [0] * 10, size=10))
    if covered:
        sealer.state(State(SCOPE, "1"))
    sealer.finish(clean=True)
    with_state = next(step for step in sealed if any(s.state for s in step) or not covered)
    found = [
        (one.schema_version, [part.rows for part in one.parts])
        for segment in with_state
        for one in segment.slices
        if one.parts
    ]
    assert found == ([(2, [20, 10])] if fills else [(1, [20]), (2, [10])])


def test_l1_nothing_is_sealed_where_the_answer_does_not_come() -> None:
    log = MemoryLog()
    live = LaneStream(
        stream=STREAM,
        disposition=WriteDisposition(mode=DestinationSyncMode.append),
        schema_version=1,
        generation=0,
        fills_generation=False,
    )

    def widen(stream: StreamId, missing: MissingColumns) -> LaneStream:
        raise RuntimeError("the driver is gone")

    def decode(stream: StreamId, bodies: Any, first: int, *_: Any) -> Any:
        missing = MissingColumns((), True)
        return SimpleNamespace(rows=[*bodies], count=len(bodies), rejects=[], missing=missing)

    sealer = Sealer(
        log, epoch=1, lane=0, streams=[live], decode=decode, clock=lambda: 0.0, widen=widen
    )
    sealer.batch(Batch(STREAM, [b"odd"], [0], size=10))
    sealer.state(State(SCOPE, "1"))
    with pytest.raises(RuntimeError):
        sealer.seal()
    assert sealer.finish(clean=False) == {STREAM: False}
    assert not [*log.segments()]
