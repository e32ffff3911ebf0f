"""How long a sync waits between two looks at its lanes: a short one does not feel it, and a long
one spends nothing on it."""

from penstock.engine.specs.plan import SHORTEST_POLL, SyncPlan


def test_looks_of_a_sync_add_a_twentieth_of_its_reading_at_most() -> None:
    plan = SyncPlan(streams=())
    at, looks = 0.0, []
    while at < 600:
        looks.append(plan.poll_after(at))
        at += looks[-1]
    assert looks[0] == SHORTEST_POLL and looks[-1] == plan.poll_seconds
    assert len(looks) < 1.05 * 600 / plan.poll_seconds
    at = 0.0
    for look in looks:
        assert look <= max(SHORTEST_POLL, at / 20)
        at += look


def test_a_pipeline_s_own_pause_is_the_longest() -> None:
    assert SyncPlan(streams=(), poll_seconds=0.01).poll_after(1000.0) == 0.01
