"""What follows a load that may not go out stays behind it, also a state that came without a row
(L1, L8): a destination connector is sent a group for every state."""

from types import SimpleNamespace
from typing import Any

import msgspec
from test_load_plan import A, B, rows

from penstock.engine.deliver.delivery import Preconditions
from penstock.engine.deliver.load_plan import Pending, decide
from penstock.engine.deliver.reject_limits import Rejections
from penstock.engine.deliver.session import SyncFailures
from penstock.errors import LogError
from penstock.model.catalog import StreamId
from penstock.model.rejected import MaxRejected
from penstock.model.segments import Segment, SegmentId, StreamSlice
from penstock.model.state import StateScope, StateType


class Idle:
    """No lane runs."""

    def look(self) -> None: ...

    def pause(self) -> None: ...


def ignored(*about: object) -> None:
    del about


def session_of(verify: Any = ignored) -> Any:
    return SimpleNamespace(
        log=SimpleNamespace(verify=verify),
        failures=SyncFailures(),
        observer=SimpleNamespace(load_failed=ignored, load_seconds=ignored),
    )


def sealed(seq: int, part: StreamSlice) -> Segment:
    scope = StateScope(StateType.stream, part.stream)
    return Segment(
        id=SegmentId(1, seq), lane=0, scope=scope, slices=(part,), state=f'{{"at":{seq}}}'
    )


def with_rejects(stream: StreamId) -> StreamSlice:
    return msgspec.structs.replace(rows(stream, 3), rejected=2)


def acked_one_by_one() -> Pending:
    """A's last state says the same again, as sources do at their end; B goes on beside it."""
    segments = [sealed(1, with_rejects(A)), sealed(2, rows(A, 0)), sealed(3, rows(B, 1))]
    return decide(segments, set(), ack_per_state=True)


def saved(groups: Any) -> list[str]:
    return [state.blob for group in groups for state in group.states]


def test_L8_a_state_without_rows_stays_behind_the_rejects_that_failed_its_stream() -> None:
    pending = acked_one_by_one()
    assert saved(pending.ready) == ['{"at":1}', '{"at":2}', '{"at":3}']
    judged = Rejections(MaxRejected.parse("1"), {}).judge(pending, lambda stream: True)
    assert [over.stream for over in judged.over] == [A]
    assert saved(judged.pending.ready) == ['{"at":3}']


def test_L1_a_state_without_rows_stays_behind_a_part_that_is_damaged() -> None:
    damaged = with_rejects(A).parts

    def verify(parts: Any) -> None:
        if tuple(parts) == damaged:
            raise LogError("not as it was sealed", code="log.corrupt")

    session = session_of(verify)
    passed = Preconditions(session).passed(acked_one_by_one(), Idle())
    assert saved(passed) == ['{"at":3}']
    assert list(session.failures.blocked) == [A]
