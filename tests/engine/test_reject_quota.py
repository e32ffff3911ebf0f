"""``limits.max_dead_letters``: rejects of any source are bounded, or the run fails (L8)."""

import pytest

from penstock.config.pipeline import Destination, Pipeline, Source, Transform
from penstock.config.sections import MAX_DEAD_LETTERS, Limits
from penstock.engine.log.memory import MemoryLog
from penstock.engine.plan.lane_jobs import reject_quota
from penstock.engine.specs.lane import LaneBounds, LaneStream
from penstock.engine.worker.sealer import FatalReject, Sealer
from penstock.model.catalog import DestinationSyncMode, StreamId
from penstock.model.events import Reject
from penstock.model.segments import WriteDisposition
from penstock.runtimes.limits import unenforceable

ONE, TWO = StreamId(None, "one"), StreamId(None, "two")


def sealing(log: MemoryLog, *, on_data_error: str = "dlq", quota: int = 10_000) -> Sealer:
    return Sealer(
        log,
        epoch=1,
        lane=0,
        streams=[
            LaneStream(
                stream=s,
                disposition=WriteDisposition(mode=DestinationSyncMode.append),
                schema_version=1,
                generation=0,
                fills_generation=False,
            )
            for s in (ONE, TWO)
        ],
        decode=lambda *_: None,  # type: ignore[arg-type, return-value]
        clock=lambda: 0.0,
        bounds=LaneBounds(reject_bytes=2_000, reject_quota=quota),
        on_data_error=on_data_error,
    )


def test_l8_a_source_of_which_everything_is_rejected_is_ended_at_the_limit() -> None:
    log = MemoryLog()
    sealer = sealing(log)
    with pytest.raises(FatalReject) as caught:
        for _ in range(1000):
            sealer.reject(Reject(ONE, "no object", b"x" * 500))
    assert caught.value.code == "source.dead_letters"
    assert caught.value.stream == "one"
    assert "no object" in caught.value.message
    assert "limits.max_dead_letters" in (caught.value.hint or "")
    assert sum(map(len, log.rejects.values())) < 15_000


def test_each_stream_has_the_whole_limit_and_records_of_none_have_one_too() -> None:
    sealer = sealing(MemoryLog())
    for stream in (ONE, TWO, None):
        for _ in range(10):
            sealer.reject(Reject(stream, "bad", b"x" * 800))
    with pytest.raises(FatalReject, match="name no stream"):
        for _ in range(10):
            sealer.reject(Reject(None, "bad", b"x" * 800))


def test_the_file_of_a_long_record_counts() -> None:
    sealer = sealing(MemoryLog())
    with pytest.raises(FatalReject):
        sealer.reject(Reject(ONE, "too long", b"head", spool="/log/long.line", size=10_000))


def test_what_is_skipped_takes_no_room() -> None:
    sealer = sealing(MemoryLog(), on_data_error="skip")
    for _ in range(1000):
        sealer.reject(Reject(ONE, "bad", b"x" * 800))


def pipeline(source: Limits | None, transform: Limits | None = None) -> Pipeline:
    return Pipeline(
        pipeline="p",
        source=Source(use="airbyte:./source", limits=source),
        transforms=(Transform(use="./t.wasm", limits=transform),),
        destination=Destination(use="parquet"),
    )


def test_the_limit_is_the_pipelines_and_a_transform_behind_it_may_need_more() -> None:
    assert reject_quota(pipeline(None)) == MAX_DEAD_LETTERS == 1 << 30
    assert reject_quota(pipeline(Limits(max_dead_letters=5000))) == 5000
    wide = Limits(max_dead_letters=4 << 30)
    assert reject_quota(pipeline(Limits(max_dead_letters=5000), wide)) == 4 << 30


def test_a_process_is_held_to_it_and_not_to_keys() -> None:
    assert unenforceable(None, Limits(max_dead_letters=1)) == []
    assert any("max_keys" in p for p in unenforceable(None, Limits(max_keys=1)))
