"""Which streams a new attempt may mend (issue 9, A11): ``engine.worker.lane_failures``."""

from penstock.engine.worker.lane_failures import EpochFailures, FailureDecision
from penstock.errors import SourceError
from penstock.model.catalog import StreamId
from penstock.model.events import Error
from penstock.protocols import failures as protocol_failures

A, B, C = (StreamId(None, n) for n in "abc")
HEARTBEAT = Error("silent", "system_error", code="source.heartbeat")


def failed(stream: StreamId | None = None, retry: float | None = None, kind: str = "") -> Error:
    return Error(f"{kind or 'failed'} {stream}", kind or None, stream, {"message": "m"}, retry)


def settle(*told: Error, unfinished: tuple[StreamId, ...] = (A, B)) -> FailureDecision:
    failures = EpochFailures()
    for event in told:
        failures.add_event(event, protocol_failures.failed(event, "source"), own=event.code is None)
    return failures.settle(unfinished)


def retried(*told: Error, unfinished: tuple[StreamId, ...] = (A, B)) -> dict[StreamId, float]:
    return dict(settle(*told, unfinished=unfinished).retries)


def test_a_failure_of_no_stream_is_that_of_all_that_are_not_complete() -> None:
    assert retried(failed(retry=3)) == {A: 3, B: 3}
    assert retried(failed(retry=3), unfinished=(B,)) == {B: 3}
    assert retried(failed(retry=3), failed(retry=9)) == {A: 9, B: 9}


def test_a_stream_that_failed_for_good_is_not_tried_again() -> None:
    told = settle(failed(A, 3), failed(B, kind="config_error"))
    assert told.retries == [(A, 3)]
    assert [e.code for e in told.errors] == ["source.config_error"]
    assert retried(failed(A, 3), failed(A)) == {B: 3}
    assert retried(failed(A), failed(retry=3)) == {B: 3}


def test_a_summary_after_the_failures_of_streams_decides_nothing() -> None:
    """The Python CDK ends with a config_error that names no stream, whatever its streams said."""
    told = settle(failed(A, 3), failed(kind="config_error"), unfinished=(A,))
    assert told.retries == [(A, 3)] and told.errors == [] and len(told.passing) == 2


def test_a_failure_of_all_for_good_leaves_those_whose_own_may_pass() -> None:
    assert retried(failed(kind="config_error"), failed(retry=3)) == {}
    assert retried(failed(A, 3), HEARTBEAT) == {A: 3}
    ours = EpochFailures()
    ours.add_event(failed(retry=3), SourceError("reset"), own=True)
    ours.found(SourceError("a schema that cannot be"))
    assert ours.settle([A]).retries == []


def test_nothing_is_left_out_where_nothing_is_tried_again() -> None:
    for told in ((failed(A, 3),), (failed(A, 3), failed(kind="config_error"))):
        settled = settle(*told, unfinished=())
        assert settled.retries == [] and settled.passing == []
        assert len(settled.errors) == len(told)
