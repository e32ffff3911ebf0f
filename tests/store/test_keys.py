"""Connector keys over every store: what is seen at once, what becomes durable with which
checkpoint, and what vanishes (state in three scopes; the overlay of a run)."""

from collections.abc import Callable, Iterator, Sequence
from itertools import count
from pathlib import Path

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.errors import LeaseLost, StateError
from penstock.model.catalog import DestinationSyncMode, StreamId
from penstock.model.segments import SHARED_STATE, Group, SegmentId, WriteDisposition
from penstock.model.state import StateScope, StateType, StoredState
from penstock.store.contract import GroupIntent, Lease, LoadIntent, Reset, Store
from penstock.store.keys import (
    PAGE_BYTES,
    PAGE_KEYS,
    PATH,
    SHARED,
    CoveredKeys,
    DryKeys,
    KeyAddress,
    KeyPort,
    MemoryKeys,
    covers,
    lane_task,
    push_task,
)
from penstock.store.lock_holder import this_holder
from penstock.store.memory import MemoryStore
from penstock.store.open import open_store
from penstock.store.task_keys import keys_url, open_keys

USERS, ORDERS = StreamId(None, "users"), StreamId(None, "orders")
COUNT = KeyAddress("pipeline", "", "count")
OFFSET = KeyAddress("stream", USERS.key, "offset")


class World:
    """A store, and ports to it as tasks anywhere have them."""

    def __init__(self, store: Store, opener: Callable[[str, str], KeyPort]) -> None:
        self.store, self._open = store, opener
        self.ports: list[KeyPort] = []
        self._seqs = count(1)
        self.lease = self.acquire("shop")

    def acquire(self, pipeline: str) -> Lease:
        return self.store.acquire(pipeline, this_holder("r"), 600)

    def task(self, task: str, scope: str = SHARED, lease: Lease | None = None) -> KeyPort:
        """A port of a task that is known to the store."""
        lease = lease or self.lease
        self.store.begin_keys(lease, task)
        port = self.port(task, lease.pipeline)
        port.begin(scope)
        return port

    def port(self, task: str, pipeline: str = "shop") -> KeyPort:
        self.ports.append(self._open(pipeline, task))
        return self.ports[-1]

    def group(self, *keys: CoveredKeys, loads: Sequence[StreamId] = ()) -> GroupIntent:
        at = SegmentId(1, next(self._seqs))
        return GroupIntent(
            loads=tuple(
                LoadIntent(
                    stream=stream,
                    disposition=WriteDisposition(mode=DestinationSyncMode.append),
                    segments=(at,),
                    parts=(),
                    schema_version=1,
                    generation=1,
                    read=1,
                )
                for stream in loads
            ),
            states=tuple(saved(c.scope, str(at.seq)) for c in keys),
            epoch=1,
            consumes=tuple((at, stream) for stream in (*loads, SHARED_STATE)),
            keys=keys,
        )

    def commit(self, *keys: CoveredKeys, lease: Lease | None = None) -> None:
        self.store.settle(lease or self.lease, [self.group(*keys)], merge)

    def durable(self) -> dict[KeyAddress, str]:
        return self.store.connector_keys("shop")


def saved(scope: str, blob: str) -> StoredState:
    if scope == SHARED:
        return StoredState(StateScope(StateType.global_), blob)
    return StoredState(StateScope(StateType.stream, StreamId(*msgspec.json.decode(scope))), blob)


def merge(before: Sequence[StoredState], new: Sequence[StoredState]) -> list[StoredState]:
    return list({s.scope.key: s for s in (*before, *new)}.values())


def finish(world: World, group: Group) -> None:
    world.store.loaded(world.lease, [(group.id, load) for load in group.loads], merge)


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    if request.param == "memory":
        twin = MemoryStore()
        made = World(twin, twin.open_keys)
    else:
        sqlite = request.param == "sqlite"
        place = str(tmp_path / "s.db") if sqlite else request.getfixturevalue("postgres_url")
        url = keys_url(place)
        made = World(open_store(place), lambda pipeline, task: open_keys(url, pipeline, task))
    yield made
    for port in made.ports:
        port.close()
    made.store.close()


# -- one key


def test_a_key_is_got_put_and_swapped(world: World) -> None:
    port = world.task(lane_task(1))
    assert port.get(COUNT) is None
    assert not port.compare_and_swap(COUNT, "0", "1")
    assert port.compare_and_swap(COUNT, None, "1")
    assert not port.compare_and_swap(COUNT, None, "2")
    assert port.compare_and_swap(COUNT, "1", "2") and port.get(COUNT) == "2"
    port.put(COUNT, "3")
    assert port.get(COUNT) == "3"


@pytest.mark.parametrize(
    "text", ["", "é 日本 🐟", "nul\0in it", 'quote"\\', "x" * 1024, "ü" * 512, "%s ? :x"]
)
def test_any_text_is_a_key_a_value_and_an_owner(world: World, text: str) -> None:
    port, where = world.task(lane_task(1)), KeyAddress("stream", text, text)
    assert port.compare_and_swap(where, None, text) and port.get(where) == text
    assert not port.compare_and_swap(where, text + "\0", "other")
    assert port.compare_and_swap(where, text, text + "!")
    world.commit(CoveredKeys(lane_task(1), SHARED, port.checkpoint()))
    assert world.durable() == {where: text + "!"}


def test_a_value_has_a_megabyte_or_a_key_more_than_an_index_takes(world: World) -> None:
    port, big = world.task(lane_task(1)), "ab€" * 350_000
    where = KeyAddress("instance", "transform:1", "k" * 20_000)
    port.put(where, big)
    assert port.get(where) == big and port.compare_and_swap(where, big, big + "1")
    world.commit(CoveredKeys(lane_task(1), SHARED, port.checkpoint()))
    assert world.durable() == {where: big + "1"}


def test_scopes_owners_and_pipelines_share_no_key(world: World) -> None:
    """A pipeline's key named like a stream, or like ``stream:key``, collides with nothing."""
    places = [
        KeyAddress("pipeline", "", "users"),
        KeyAddress("pipeline", "", "users:offset"),
        KeyAddress("pipeline", "users", "offset"),
        KeyAddress("stream", "users", "offset"),
        KeyAddress("stream", "users:offset", ""),
        KeyAddress("stream", "", "users:offset"),
        KeyAddress("instance", "users", "offset"),
        KeyAddress("instance", "source", "offset"),
        KeyAddress("instance", "destination", "offset"),
    ]
    other = world.acquire("other")
    port, elsewhere = world.task("t"), world.task("t", lease=other)
    world.store.replace_states(world.lease, [saved(USERS.key, "cursor")])
    world.store.begin_keys(world.lease, "t")
    for number, place in enumerate(places):
        port.put(place, str(number))
    assert [port.get(place) for place in places] == [str(n) for n in range(len(places))]
    assert [elsewhere.get(place) for place in places] == [None] * len(places)
    world.commit(CoveredKeys("t", USERS.key, 1), CoveredKeys("t", SHARED, port.checkpoint()))
    assert world.durable() == {p: str(n) for n, p in sorted(enumerate(places), key=lambda e: e[1])}
    assert list(world.durable()) == sorted(places)
    states = {s.scope.key: s.blob for s in world.store.states("shop")}
    assert set(states) == {USERS.key, SHARED} and "0" not in states.values()


def test_a_key_is_deleted_and_made_again(world: World) -> None:
    port = world.task(lane_task(1))
    assert not port.delete(COUNT)
    port.put(COUNT, "1")
    world.commit(CoveredKeys(lane_task(1), SHARED, port.checkpoint()))
    assert port.delete(COUNT) and not port.delete(COUNT)
    assert port.get(COUNT) is None and world.durable() == {COUNT: "1"}
    assert not port.compare_and_swap(COUNT, "1", "2")
    world.commit(CoveredKeys(lane_task(1), SHARED, port.checkpoint()))
    assert world.durable() == {} and port.get(COUNT) is None
    assert port.compare_and_swap(COUNT, None, "3") and port.get(COUNT) == "3"
    world.commit(CoveredKeys(lane_task(1), SHARED, port.checkpoint()))
    assert world.durable() == {COUNT: "3"}


def test_a_deletion_that_is_given_up_brings_the_key_back(world: World) -> None:
    port = world.task("t", USERS.key)
    port.put(COUNT, "1")
    world.commit(CoveredKeys("t", USERS.key, port.checkpoint()))
    assert port.delete(COUNT)
    port.begin(USERS.key)
    assert port.get(COUNT) == "1"
    assert port.delete(COUNT)
    world.store.end_keys(world.lease, tasks=["t"])
    assert world.port("x").get(COUNT) == "1" and world.durable() == {COUNT: "1"}


def test_a_durable_deletion_still_hides_an_older_write_that_is_covered_later(world: World) -> None:
    one, two = world.task("one"), world.task("two")
    one.put(COUNT, "older")
    assert two.delete(COUNT)
    world.commit(CoveredKeys("two", SHARED, two.checkpoint()))
    assert one.get(COUNT) is None
    world.commit(CoveredKeys("one", SHARED, one.checkpoint()))
    assert world.durable() == {} and one.get(COUNT) is None


# -- keys that are found by how they begin


def path(key: str, owner: str = USERS.key) -> KeyAddress:
    return KeyAddress(PATH, owner, key)


def listed(port: KeyPort, under: KeyAddress) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    while page := port.page_under(under, found[-1][0] if found else None):
        assert len(page) <= PAGE_KEYS
        found += page
    assert [key for key, _ in found] == sorted(key for key, _ in found)
    assert port.count_under(under) == len(found)
    return found


@pytest.fixture(params=["store", "dry", "memory"])
def port(request: pytest.FixtureRequest, world: World) -> KeyPort:
    """Every kind of port; the dry one has some of the keys below it."""
    if request.param == "memory":
        return MemoryKeys()
    return world.task("t") if request.param == "store" else DryKeys(world.task("t"))


def test_keys_are_listed_counted_and_deleted_by_how_they_begin(port: KeyPort) -> None:
    for key in ("a,", "a,b,", "a,c,", "ab,", "A,", "a_,", "%,", "é,", "𝄞,", "\uffff,"):
        port.put(path(key), key)
    port.put(path("a,other", ORDERS.key), "o")
    port.put(KeyAddress("stream", USERS.key, "a,"), "s")
    assert listed(port, path("a,")) == [(key, key) for key in ("a,", "a,b,", "a,c,")]
    assert listed(port, path("a_")) == [("a_,", "a_,")]
    assert listed(port, path("%")) == [("%,", "%,")] and not listed(port, path("z"))
    assert [key for key, _ in listed(port, path(""))][-3:] == ["é,", "\uffff,", "𝄞,"]
    assert port.count_under(path("")) == 10 and port.count_under(path("a,", "none")) == 0
    assert port.delete(path("a,c,")) and port.delete_under(path("a,")) == 2
    assert port.delete_under(path("a,")) == 0 and not listed(port, path("a,"))
    assert port.get(path("a,b,")) is None and port.count_under(path("")) == 7
    port.put(path("a,b,"), "again")
    assert listed(port, path("a,")) == [("a,b,", "again")]
    assert port.delete_under(path("")) == 8
    assert listed(port, path("", ORDERS.key)) == [("a,other", "o")]
    assert port.get(KeyAddress("stream", USERS.key, "a,")) == "s"


def test_pages_are_bounded_in_keys_and_in_bytes(port: KeyPort) -> None:
    for number in range(PAGE_KEYS + 7):
        port.put(path(f"small{number:05}"), str(number))
    for number in range(4):
        port.put(path(f"large{number}"), "x" * (PAGE_BYTES * (2 if number == 1 else 1) // 2 + 1))
    assert len(port.page_under(path("small"))) == PAGE_KEYS
    assert len(listed(port, path("small"))) == PAGE_KEYS + 7
    assert [len(value) for _, value in port.page_under(path("large"))] == [PAGE_BYTES // 2 + 1]
    assert len(listed(port, path("large"))) == 4


def test_deleting_by_how_keys_begin_is_of_the_overlay_until_its_checkpoint(world: World) -> None:
    port = world.task("t")
    for key in ("a,1", "a,2", "b,1"):
        port.put(path(key), key)
    world.commit(CoveredKeys("t", SHARED, port.checkpoint()))
    port.put(path("a,3"), "new")
    assert port.delete_under(path("a,")) == 3
    assert listed(port, path("")) == [("b,1", "b,1")] and len(world.durable()) == 3
    other = world.task("u")
    other.put(path("a,2"), "back")
    assert listed(port, path("a,")) == [("a,2", "back")]
    world.commit(CoveredKeys("t", SHARED, port.checkpoint()))
    assert world.durable() == {path("b,1"): "b,1"} and other.get(path("a,2")) == "back"
    world.store.end_keys(world.lease)
    assert listed(world.port("x"), path("")) == [("b,1", "b,1")]


@pytest.mark.dear
def test_a_dry_run_lists_over_what_is_durable(world: World) -> None:
    below = world.task("t")
    for number in range(PAGE_KEYS * 2):
        below.put(path(f"k{number:05}"), str(number))
    dry = DryKeys(below)
    dry.put(path("k00000x"), "mine")
    assert dry.delete(path("k00001"))
    assert listed(dry, path("k0000"))[:3] == [("k00000", "0"), ("k00000x", "mine"), ("k00002", "2")]
    assert dry.count_under(path("")) == PAGE_KEYS * 2
    assert dry.delete_under(path("k")) == PAGE_KEYS * 2 and not listed(dry, path(""))
    dry.put(path("k99999"), "last")
    assert listed(dry, path("")) == [("k99999", "last")]
    assert below.count_under(path("")) == PAGE_KEYS * 2


def test_a_reset_of_a_stream_drops_its_paths(world: World) -> None:
    port = world.task("t", SHARED)
    port.put(path("a"), "1")
    port.put(path("a", ORDERS.key), "2")
    world.commit(CoveredKeys("t", SHARED, port.checkpoint()))
    reset = Reset((USERS,), lambda states: [s for s in states if s.scope.stream != USERS])
    world.store.replace_states(world.lease, reset.strip(world.store.states("shop")), reset)
    assert world.durable() == {path("a", ORDERS.key): "2"}


# -- a run's overlay


def test_what_one_task_writes_every_other_sees_at_once(world: World) -> None:
    lane, push = world.task(lane_task(1)), world.task(push_task("r", 1))
    lane.put(COUNT, "1")
    assert push.get(COUNT) == "1" and push.compare_and_swap(COUNT, "1", "2")
    assert lane.get(COUNT) == "2" and not lane.compare_and_swap(COUNT, "1", "9")
    assert world.durable() == {}


def test_exactly_what_came_before_a_committed_checkpoint_is_durable(world: World) -> None:
    port, other = world.task("t"), KeyAddress("pipeline", "", "other")
    port.put(COUNT, "1")
    first = CoveredKeys("t", SHARED, port.checkpoint())
    port.put(COUNT, "2")
    port.put(other, "a")
    second = CoveredKeys("t", SHARED, port.checkpoint())
    port.put(COUNT, "3")
    world.commit(first)
    assert world.durable() == {COUNT: "1"} and port.get(COUNT) == "3"
    world.commit(second)
    assert world.durable() == {COUNT: "2", other: "a"} and port.get(COUNT) == "3"
    world.commit(first)  # a segment sealed before, settled late
    assert world.durable() == {COUNT: "2", other: "a"}
    world.store.end_keys(world.lease)
    assert world.port("next").get(COUNT) == "2"


def test_a_checkpoint_without_a_write_between_covers_nothing_more(world: World) -> None:
    port = world.task("t")
    assert port.checkpoint() == 0
    port.put(COUNT, "1")
    one = port.checkpoint()
    assert port.checkpoint() == one > 0
    port.put(COUNT, "2")
    world.commit(CoveredKeys("t", SHARED, one))
    assert world.durable() == {COUNT: "1"}


def test_a_checkpoint_of_one_stream_covers_nothing_of_another(world: World) -> None:
    port = world.task("t", USERS.key)
    port.put(COUNT, "users")
    users = CoveredKeys("t", USERS.key, port.checkpoint())
    port.begin(ORDERS.key)
    assert port.checkpoint() == 0
    port.put(OFFSET, "orders")
    orders = CoveredKeys("t", ORDERS.key, port.checkpoint())
    world.commit(orders)
    assert world.durable() == {OFFSET: "orders"}
    world.commit(users)
    assert world.durable() == {COUNT: "users", OFFSET: "orders"}


def test_a_checkpoint_of_one_transform_covers_nothing_of_another_or_of_the_source(
    world: World,
) -> None:
    """They work at the same time in one task, and one is ahead of the other."""
    source = world.task("t", USERS.key)
    ports = {"": source, "transform:0": world.port("t"), "transform:1": world.port("t")}
    for place, port in ports.items():
        port.begin(covers(USERS.key, place))
        port.put(KeyAddress("instance", place, "at"), "1")
    for place, port in reversed(ports.items()):
        world.commit(CoveredKeys("t", USERS.key, port.checkpoint(), place))
        assert KeyAddress("instance", place, "at") in world.durable()
        port.put(KeyAddress("instance", place, "at"), "2")
    assert set(world.durable().values()) == {"1"} and len(world.durable()) == 3


def test_an_attempt_that_is_given_up_takes_its_uncovered_writes_along(world: World) -> None:
    port = world.task("t", USERS.key)
    port.put(COUNT, "1")
    first = CoveredKeys("t", USERS.key, port.checkpoint())
    port.put(COUNT, "lost")
    port.begin(USERS.key)  # the stream is tried again
    assert port.get(COUNT) == "1"
    port.put(OFFSET, "again")
    second = CoveredKeys("t", USERS.key, port.checkpoint())
    assert second.upto > first.upto
    world.commit(second)
    assert world.durable() == {COUNT: "1", OFFSET: "again"}


def test_a_lost_task_leaves_what_its_sealed_checkpoints_cover(world: World) -> None:
    world.task("before").put(COUNT, "0")
    world.commit(CoveredKeys("before", SHARED, world.ports[-1].checkpoint()))
    lane, push = world.task(lane_task(1)), world.task(push_task("r", 1))
    lane.put(COUNT, "1")
    sealed = CoveredKeys(lane_task(1), SHARED, lane.checkpoint())
    lane.put(COUNT, "2")
    unsealed = lane.checkpoint()
    lane.put(COUNT, "3")
    push.put(OFFSET, "push")
    world.store.end_keys(world.lease, [sealed], [lane_task(1)])
    assert push.get(COUNT) == "1" and push.get(OFFSET) == "push"
    assert world.durable() == {COUNT: "0"}
    world.commit(CoveredKeys(lane_task(1), SHARED, unsealed))
    assert world.durable() == {COUNT: "1"}
    world.store.end_keys(world.lease)
    assert world.port("x").get(OFFSET) is None and world.port("x").get(COUNT) == "1"


def test_l12_a_task_that_was_given_up_writes_no_more(world: World) -> None:
    port = world.task("t")
    port.put(COUNT, "1")
    world.store.end_keys(world.lease, tasks=["other"])
    port.put(COUNT, "2")
    world.store.end_keys(world.lease, tasks=["t"])
    for write in (lambda: port.put(COUNT, "3"), lambda: port.compare_and_swap(COUNT, None, "3")):
        with pytest.raises(StateError) as refused:
            write()
        assert refused.value.code == "state.keys_closed" and refused.value.hint
    assert port.get(COUNT) is None
    with pytest.raises(StateError):
        world.port("never told").put(COUNT, "1")


def test_an_older_write_that_is_covered_later_never_overtakes(world: World) -> None:
    one, two = world.task("one"), world.task("two")
    one.put(COUNT, "older")
    two.put(COUNT, "newer")
    world.commit(CoveredKeys("two", SHARED, two.checkpoint()))
    assert world.durable() == {COUNT: "newer"}
    world.commit(CoveredKeys("one", SHARED, one.checkpoint()))
    assert world.durable() == {COUNT: "newer"} and one.get(COUNT) == "newer"


def test_two_tasks_with_a_lost_swap_on_top_keep_the_committed_value(world: World) -> None:
    one, two = world.task("one"), world.task("two")
    one.put(COUNT, "1")
    assert two.compare_and_swap(COUNT, "1", "2")
    one.put(COUNT, "3")  # in the place of its "1", above "2"
    world.commit(CoveredKeys("two", SHARED, two.checkpoint()))
    assert one.get(COUNT) == "3" and world.durable() == {COUNT: "2"}
    world.store.end_keys(world.lease, tasks=["one"])
    assert two.get(COUNT) == "2"


def test_ports_of_one_task_that_follow_each_other_share_no_checkpoint(world: World) -> None:
    first = world.task("t", USERS.key)
    first.put(COUNT, "1")
    one = first.checkpoint()
    again = world.port("t")
    again.begin(USERS.key)
    again.put(COUNT, "2")
    assert again.checkpoint() > one
    world.commit(CoveredKeys("t", USERS.key, one))
    assert world.durable() == {COUNT: "1"} and again.get(COUNT) == "2"


# -- with the ledger (L1)


def test_l1_keys_of_a_group_are_durable_with_its_last_load_and_its_states(world: World) -> None:
    port = world.task("t")
    port.put(COUNT, "1")
    keys = CoveredKeys("t", SHARED, port.checkpoint())
    (group,) = world.store.intend(world.lease, [world.group(keys, loads=[USERS, ORDERS])], merge)
    world.store.loaded(world.lease, [(group.id, group.loads[0])], merge)
    assert world.durable() == {} and world.store.states("shop") == []
    finish(world, group)
    assert world.durable() == {COUNT: "1"} and len(world.store.states("shop")) == 1


def test_l1_a_group_behind_an_unfinished_one_makes_nothing_durable(world: World) -> None:
    """Not even one that has no state: the end of a clean run is a checkpoint too."""
    port = world.task("t", USERS.key)
    port.put(COUNT, "1")
    one = CoveredKeys("t", USERS.key, port.checkpoint())
    port.put(COUNT, "2")
    two = CoveredKeys("t", USERS.key, port.checkpoint())
    tail = msgspec.structs.replace(world.group(two, loads=[USERS]), states=())
    old, new = world.store.intend(world.lease, [world.group(one, loads=[USERS]), tail], merge)
    finish(world, new)
    assert world.durable() == {}
    finish(world, old)
    assert world.durable() == {COUNT: "2"}


def test_l5_what_a_written_group_covers_survives_the_crash_of_the_run(world: World) -> None:
    port = world.task(lane_task(1))
    port.put(COUNT, "1")
    keys = CoveredKeys(lane_task(1), SHARED, port.checkpoint())
    port.put(COUNT, "uncovered")
    world.store.intend(world.lease, [world.group(keys, loads=[USERS])], merge)
    world.store.release(world.lease)
    world.lease = world.acquire("shop")
    world.store.end_keys(world.lease)
    assert world.task(lane_task(2)).get(COUNT) == "1"
    (group,) = world.store.open_groups("shop")
    world.store.forget(world.lease, [1])
    finish(world, group)
    assert world.durable() == {COUNT: "1"}


def test_l1_a_merge_that_refuses_makes_nothing_durable(world: World) -> None:
    port = world.task("t")
    port.put(COUNT, "1")
    keys = CoveredKeys("t", SHARED, port.checkpoint())

    def refuse(_: Sequence[StoredState], __: Sequence[StoredState]) -> list[StoredState]:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        world.store.settle(world.lease, [world.group(keys)], refuse)
    assert world.durable() == {}
    world.commit(keys)
    assert world.durable() == {COUNT: "1"}


def test_an_epoch_that_is_forgotten_leaves_nothing_uncovered(world: World) -> None:
    lane, other = world.task(lane_task(1)), world.task(lane_task(11))
    lane.put(COUNT, "1")
    other.put(OFFSET, "1")
    world.store.forget(world.lease, [1])
    assert other.get(COUNT) is None and other.get(OFFSET) == "1"


def test_l12_a_lost_lease_opens_and_ends_no_task(world: World) -> None:
    old = Lease("shop", "another token", world.lease.state_id)
    port = world.task("t")
    port.put(COUNT, "1")
    for write in (
        lambda: world.store.begin_keys(old, "x"),
        lambda: world.store.end_keys(old),
        lambda: world.commit(CoveredKeys("t", SHARED, 1), lease=old),
    ):
        with pytest.raises(LeaseLost):
            write()
    assert port.get(COUNT) == "1" and world.durable() == {}


# -- resets


def fill(world: World) -> tuple[KeyAddress, CoveredKeys]:
    """Durable keys in all three scopes for two streams; and one of users' that is only sealed."""
    port = world.task("t", ORDERS.key)
    for place in (COUNT, OFFSET, KeyAddress("stream", ORDERS.key, "offset")):
        port.put(place, "d")
    world.commit(CoveredKeys("t", ORDERS.key, port.checkpoint()))
    port.begin(USERS.key)
    sealed = KeyAddress("instance", "source", "sealed")
    port.put(sealed, "s")
    return sealed, CoveredKeys("t", USERS.key, port.checkpoint())


def test_a_reset_of_everything_drops_every_key(world: World) -> None:
    sealed, keys = fill(world)
    world.store.replace_states(world.lease, [])
    assert world.durable() == {} and world.port("x").get(sealed) is None
    world.commit(keys)
    assert world.durable() == {}


def test_a_reset_of_one_stream_drops_its_keys_and_what_its_states_covered(world: World) -> None:
    sealed, keys = fill(world)
    world.store.intend(world.lease, [world.group(keys, loads=[USERS])], merge)
    reset = Reset((USERS,), lambda states: [s for s in states if s.scope.stream != USERS])
    world.store.replace_states(world.lease, reset.strip(world.store.states("shop")), reset)
    assert world.port("x").get(sealed) is None
    finish(world, world.store.open_groups("shop")[0])
    assert world.durable() == {COUNT: "d", KeyAddress("stream", ORDERS.key, "offset"): "d"}


def test_a_reset_takes_what_transforms_kept_of_that_stream_and_of_no_other(world: World) -> None:
    """Streams of one name, in namespaces that differ in case, are different streams."""
    mine, other = StreamId("a", "users"), StreamId("A", "users")
    places = {s: KeyAddress("stream", s.key, "offset") for s in (mine, other)}
    shared = {s: KeyAddress("pipeline", "", f"of {s}") for s in (mine, other)}
    ports = {s: world.task("t") for s in (mine, other)}
    for stream, port in ports.items():
        port.begin(covers(stream.key, "transform:0"))
        port.put(places[stream], "1")
    keys = [CoveredKeys("t", s.key, ports[s].checkpoint(), "transform:0") for s in (mine, other)]
    world.commit(*keys)
    for stream, port in ports.items():
        port.put(shared[stream], "2")  # sealed by nobody yet
    reset = Reset((mine,), lambda states: [s for s in states if s.scope.stream != mine])
    world.store.replace_states(world.lease, reset.strip(world.store.states("shop")), reset)
    assert world.durable() == {places[other]: "1"}
    seen = world.port("x")
    assert seen.get(shared[mine]) is None and seen.get(shared[other]) == "2"


def test_an_import_keeps_durable_keys_and_nothing_of_checkpoints_before_it(world: World) -> None:
    sealed, keys = fill(world)
    before = world.durable()
    world.store.replace_states(world.lease, [saved(USERS.key, "mine")])
    assert world.port("x").get(sealed) is None
    world.commit(keys)
    assert world.durable() == before != {}


# -- dry runs


def test_a_dry_run_sees_keys_and_leaves_none(world: World) -> None:
    port = world.task("t")
    port.put(COUNT, "1")
    world.commit(CoveredKeys("t", SHARED, port.checkpoint()))
    dry = DryKeys(world.port("not known to the store"))
    assert dry.get(COUNT) == "1" and dry.compare_and_swap(COUNT, "1", "2")
    dry.put(OFFSET, "x")
    assert dry.checkpoint() == 0
    dry.put(COUNT, "3")
    dry.put(KeyAddress("pipeline", "", "new"), "3")
    dry.begin(SHARED)
    assert (dry.get(COUNT), dry.get(OFFSET)) == ("2", "x")
    assert dry.get(KeyAddress("pipeline", "", "new")) is None
    world.store.end_keys(world.lease)
    assert world.durable() == {COUNT: "1"} and world.port("x").get(OFFSET) is None
    dry.close()


def test_a_port_in_memory_is_a_port() -> None:
    port: KeyPort = MemoryKeys()
    port.begin(USERS.key)
    port.put(COUNT, "1")
    assert port.checkpoint() == 0 and port.get(COUNT) == "1"
    port.close()


# -- any order of events

TASKS = st.integers(0, 2)
PLACES = [COUNT, OFFSET, KeyAddress("instance", "source", "k")]
STEPS = st.one_of(
    st.tuples(st.just("write"), TASKS, st.integers(0, 2)),
    st.tuples(st.just("write"), TASKS, st.integers(0, 2)),
    st.tuples(st.just("delete"), TASKS, st.integers(0, 2)),
    st.tuples(st.just("checkpoint"), TASKS, st.just(0)),
    st.tuples(st.just("begin"), TASKS, st.integers(0, 2)),
    st.tuples(st.just("commit"), st.integers(0, 9), st.just(0)),
    st.tuples(st.just("intend"), st.integers(0, 9), st.just(0)),
    st.tuples(st.just("finish"), st.integers(0, 9), st.just(0)),
    st.tuples(st.just("lose"), TASKS, st.integers(0, 3)),
)


class Written:
    """One write as it happened, in a list that forgets nothing; None: a deletion."""

    def __init__(self, place: KeyAddress, value: str | None, task: str, scope: str) -> None:
        self.place, self.value, self.task, self.scope = place, value, task, scope
        self.checkpoint: int | None = None  # place in the list of checkpoints
        self.durable = self.gone = False


_pipelines = count()


@settings(
    max_examples=40,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(st.lists(STEPS, min_size=5, max_size=30))
def test_durable_is_what_committed_checkpoints_cover_in_any_order_of_events(
    world: World, steps: list[tuple[str, int, int]]
) -> None:
    lease = world.acquire(f"any{next(_pipelines)}")
    scopes = [SHARED, USERS.key, ORDERS.key]
    names, numbers = ["t0", "t1", "t2"], count(3)
    scope = dict.fromkeys(names, SHARED)
    ports = [world.task(name, lease=lease) for name in names]
    log: list[Written] = []
    sealed: list[
        tuple[int, CoveredKeys]
    ] = []  # (place in the order of checkpoints, what it covers)
    open_groups: list[tuple[Group, int, CoveredKeys]] = []

    def covered(w: Written, keys: CoveredKeys, at: int) -> bool:
        same = (w.task, w.scope) == (keys.task, keys.scope)
        return same and w.checkpoint is not None and w.checkpoint <= at

    def commit(keys: CoveredKeys, at: int) -> None:
        for w in log:
            w.durable |= not w.gone and covered(w, keys, at)

    for number, (what, which, argument) in enumerate(steps):
        if what == "write":
            place, value = PLACES[argument], str(number)
            newest = next((w.value for w in reversed(log) if w.place == place and not w.gone), None)
            assert ports[which].get(place) == newest
            assert not ports[which].compare_and_swap(place, "never", value)
            if number % 2:
                ports[which].put(place, value)
            else:
                assert ports[which].compare_and_swap(place, newest, value)
            log.append(Written(place, value, names[which], scope[names[which]]))
        elif what == "delete":
            place = PLACES[argument]
            newest = next((w.value for w in reversed(log) if w.place == place and not w.gone), None)
            assert ports[which].delete(place) == (newest is not None)
            if newest is not None:
                log.append(Written(place, None, names[which], scope[names[which]]))
        elif what == "checkpoint":
            keys = CoveredKeys(names[which], scope[names[which]], ports[which].checkpoint())
            for w in log:
                if (w.task, w.checkpoint) == (names[which], None):
                    w.checkpoint = number
            sealed.append((number, keys))
        elif what == "begin":
            ports[which].begin(scopes[argument])
            for w in log:
                w.gone |= (w.task, w.checkpoint) == (names[which], None)
            scope[names[which]] = scopes[argument]
        elif what == "commit" and sealed and not open_groups:
            at, keys = sealed[which % len(sealed)]
            world.commit(keys, lease=lease)
            commit(keys, at)
        elif what == "intend" and sealed and not open_groups:
            at, keys = sealed[which % len(sealed)]
            (group,) = world.store.intend(lease, [world.group(keys, loads=[USERS])], merge)
            open_groups.append((group, at, keys))
        elif what == "finish" and open_groups:
            group, at, keys = open_groups.pop()
            world.store.loaded(lease, [(group.id, load) for load in group.loads], merge)
            commit(keys, at)
        elif what == "lose":
            kept = [(at, keys) for at, keys in sealed if keys.task == names[which]][:argument]
            world.store.end_keys(lease, [keys for _, keys in kept], [names[which]])
            kept += [(at, keys) for _, at, keys in open_groups]
            for w in log:
                mine = w.task == names[which] and not w.durable
                w.gone |= mine and not any(covered(w, keys, at) for at, keys in kept)
            names[which] = f"t{next(numbers)}"
            scope[names[which]] = SHARED
            ports[which].close()
            ports[which] = world.task(names[which], lease=lease)
        last = {w.place: w.value for w in log if w.durable}
        durable = {place: value for place, value in last.items() if value is not None}
        assert world.store.connector_keys(lease.pipeline) == durable
    for place in PLACES:
        newest = next((w.value for w in reversed(log) if w.place == place and not w.gone), None)
        assert ports[0].get(place) == newest
    for port in ports:
        port.close()
