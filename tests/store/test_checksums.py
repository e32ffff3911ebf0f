"""A stored value of which one digit was changed is noticed before it decides anything (L1), by its
checksum; values without one, of earlier versions, are taken and get one."""

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest
from sqlalchemy import text

from penstock.errors import StateError
from penstock.model.catalog import DestinationSyncMode, StreamId
from penstock.model.segments import SegmentId, WriteDisposition
from penstock.model.state import StateScope, StateType, StoredState
from penstock.model.types import RowSchema
from penstock.store import checksums, database
from penstock.store.contract import GroupIntent, Lease, LoadIntent
from penstock.store.keys import CoveredKeys, KeyAddress, lane_task
from penstock.store.lock_holder import this_holder
from penstock.store.open import open_store
from penstock.store.remembered import Refresh, Remembered, TableNames
from penstock.store.sql import SqlStore
from penstock.store.task_keys import keys_url, open_keys

A, B = StreamId(None, "a"), StreamId("shop", "b")
BIG = (
    '{"at": 1700000000.12345678901234567890, "n": 123456789012345678901234567890, "t": "é\\u0000"}'
)


def state(stream: StreamId | None, blob: str, kind: StateType = StateType.stream) -> StoredState:
    return StoredState(StateScope(kind, stream), blob)


def merge(saved: Sequence[StoredState], new: Sequence[StoredState]) -> list[StoredState]:
    return [*({s.scope: s for s in saved} | {s.scope: s for s in new}).values()]


@contextmanager
def opened(place: str) -> Iterator[tuple[SqlStore, Lease]]:
    store = open_store(place)
    assert isinstance(store, SqlStore)
    lease = store.acquire("shop", this_holder("r"), 60)
    try:
        yield store, lease
    finally:
        store.release(lease)
        store.close()


def rows(place: str, sql: str, **values: object) -> list[tuple[object, ...]]:
    db = database.open_postgres(place) if "://" in place else database.open_sqlite(Path(place))
    with db.writing() as conn:
        done = conn.execute(text(sql), values)
        found = [tuple(row) for row in done] if done.returns_rows else []
    db.close()
    return found


def one_digit(value: str) -> str:
    """The value with its first digit changed."""
    at = next(n for n, character in enumerate(value) if character.isdigit())
    return value[:at] + str((int(value[at]) + 1) % 10) + value[at + 1 :]


def change(place: str, table: str, column: str, where: str = "1 = 1") -> None:
    """Changes one digit of a stored value, as a bad disk does."""
    ((before,),) = rows(place, f"SELECT {column} FROM penstock_{table} WHERE {where}")
    if isinstance(before, str):
        after: object = one_digit(before)
    else:
        raw = bytes(before)  # type: ignore[arg-type]
        after = bytes([raw[0] ^ 1]) + raw[1:]
    assert after != before
    rows(place, f"UPDATE penstock_{table} SET {column} = :after WHERE {where}", after=after)


def damaged(call: Callable[[], object]) -> StateError:
    with pytest.raises(StateError) as refused:
        call()
    assert refused.value.code == "state.damaged"
    return refused.value


@pytest.fixture
def full(place: str) -> str:
    """A store with a value of every kind."""
    with opened(place) as (store, lease):
        store.replace_states(lease, [state(A, '{"n": 1000}'), state(B, BIG)])
        epoch = store.new_epoch(lease, 0)
        store.begin_keys(lease, lane_task(epoch))
        port = open_keys(keys_url(place), "shop", lane_task(epoch))
        port.begin(A.key)
        port.put(KeyAddress("stream", A.key, "page"), "17")
        mark = port.checkpoint()
        port.close()
        covered = CoveredKeys(lane_task(epoch), A.key, mark)
        store.settle(lease, [GroupIntent(
            loads=(), states=(), epoch=epoch, keys=(covered,),
            consumes=((SegmentId(epoch, 1), A),),
        )], merge)  # fmt: skip
        at = SegmentId(epoch, 2)
        load = LoadIntent(
            stream=A, disposition=WriteDisposition(mode=DestinationSyncMode.append),
            segments=(at,), parts=(), schema_version=1, generation=1, replaces=True,
        )  # fmt: skip
        waits = GroupIntent(
            loads=(load,), states=(state(A, '{"n": 2000}'),), epoch=epoch, consumes=((at, A),)
        )
        store.intend(lease, [waits], merge)
        store.remember(lease, Remembered(
            tables=TableNames(tables={A.key: "a1"}), unread={B: '{"n": 5}'},
            refresh={A: Refresh(run="r", at="2026-11-20T10:00:00Z", after=3)},
        ))  # fmt: skip
        store.schema_version(lease, A, RowSchema(()))
        store.set_config_override(lease, "source", "h", {"start": 2020})
        store.verify("shop")
    return place


VALUES = {
    "a stream's state": ("states", "blob", f"scope = '{A.key}'"),
    "a load": ("groups", "body", "1 = 1"),
    "a pending refresh": ("names", "body", f"kind = 'refresh:{A.key}'"),
    "an unread bookmark": ("names", "body", f"kind = 'passed:{B.key}'"),
    "names of tables": ("names", "body", "kind = 'tables'"),
    "a schema": ("schemas", "body", "1 = 1"),
    "resets": ("pipelines", "floors", "1 = 1"),
    "a changed configuration": ("overrides", "config", "1 = 1"),
    "a connector's key": ("keys", "value", "1 = 1"),
}


@pytest.mark.parametrize("kind", VALUES)
def test_L1_one_changed_digit_stops_a_run_at_its_start(full: str, kind: str) -> None:
    change(full, *VALUES[kind])
    with opened(full) as (store, _):
        error = damaged(lambda: store.verify("shop"))
    assert error.exit_code == 6
    for way in ("state history shop", "state set", "state reset shop"):
        assert way in (error.hint or ""), way


@pytest.mark.parametrize("column", ["epoch = epoch + 1", "seq = seq + 1"])
def test_L8_a_changed_number_makes_no_segment_consumed(full: str, column: str) -> None:
    """Its rows would never be loaded, with exit code 0. A reset gets past it."""
    rows(full, f"UPDATE penstock_consumed SET {column} WHERE seq = 2")
    with opened(full) as (store, lease):
        error = damaged(lambda: store.consumed("shop", [1, 2, 3]))
        assert "state reset shop" in (error.hint or "")
        store.replace_states(lease, [])
        assert [x.segment.seq for x in store.consumed("shop", [1, 2, 3])] == [1]


def test_shares_that_an_earlier_version_wrote_are_taken(full: str) -> None:
    with opened(full) as (store, lease):
        before = store.consumed("shop", [1])
        rows(full, f"UPDATE penstock_consumed SET stream = '{A.key}' WHERE seq = 1")
        assert store.consumed("shop", [1]) == before and len(before) == 2
        again = GroupIntent(loads=(), states=(), epoch=1, consumes=((SegmentId(1, 1), A),))
        with pytest.raises(StateError) as refused:
            store.settle(lease, [again], merge)
        assert refused.value.code == "state.consumed_twice"


@pytest.mark.parametrize("changed", ["groups SET done", "loads SET committed"])
def test_L1_a_load_that_only_a_changed_digit_calls_committed_stops_a_run(
    full: str, changed: str
) -> None:
    """Its rows would be lost, and the state saved behind them."""
    rows(full, f"UPDATE penstock_{changed} = 1")
    with opened(full) as (store, _):
        error = damaged(lambda: store.verify("shop"))
    assert "are committed" in error.message and "state reset shop" in (error.hint or "")


@pytest.mark.parametrize("kind", [StateType.global_, StateType.legacy])
def test_L1_a_changed_shared_state_is_refused_and_reset_whole(place: str, kind: StateType) -> None:
    with opened(place) as (store, lease):
        store.replace_states(lease, [state(None, '{"bookmarks": {"a": {"v": 100}}}', kind)])
        change(place, "states", "blob")
        error = damaged(lambda: store.states("shop"))
        assert "all streams" in error.message and "--stream" not in (error.hint or "")
        assert store.states("shop", only_sound=True) == []
        store.replace_states(lease, [])
        assert store.states("shop") == []
        store.verify("shop")


def test_L1_a_damaged_state_is_replaced_and_no_other_changes(full: str) -> None:
    change(full, "states", "blob", f"scope = '{A.key}'")
    with opened(full) as (store, lease):
        assert [s.scope.stream for s in store.states("shop", only_sound=True)] == [B]
        assert [scope.stream for scope in store.damaged_states("shop")] == [A]
        # the very text that the damage made is a state again, once somebody says so
        ((raw,),) = rows(full, f"SELECT blob FROM penstock_states WHERE scope = '{A.key}'")
        given = str(raw).rstrip()
        store.replace_states(lease, [state(A, given), state(B, BIG)])
        assert [s.blob for s in store.states("shop")] == [given, BIG]
        store.verify("shop")


def test_L1_a_state_moved_to_another_stream_is_no_state_of_it(full: str) -> None:
    other = StreamId(None, "c").key
    rows(full, f"UPDATE penstock_states SET scope = '{other}' WHERE scope = '{A.key}'")
    with opened(full) as (store, _):
        damaged(lambda: store.states("shop"))


def test_a_damaged_entry_of_the_history_says_so_and_hides_no_other(full: str) -> None:
    change(full, "history", "blob", f"scope = '{A.key}'")
    with opened(full) as (store, _):
        b, a = store.state_history("shop")
        assert (a["blob"], a.get("damaged")) == (None, True)
        assert (b["blob"], b.get("damaged")) == (BIG, None)
        store.verify("shop")  # the history decides nothing


def test_a_state_is_kept_byte_for_byte_with_all_digits(full: str) -> None:
    with opened(full) as (store, _):
        assert [s.blob for s in store.states("shop")] == ['{"n": 1000}', BIG]
        assert store.connector_keys("shop") == {KeyAddress("stream", A.key, "page"): "17"}


def test_what_earlier_versions_wrote_is_taken_and_sealed_at_the_next_save(full: str) -> None:
    """They wrote no checksum; a state that does not change gets one, too."""
    for table, column in [(t, c) for t, c, _ in VALUES.values() if t != "keys"]:
        for (value,) in rows(full, f"SELECT DISTINCT {column} FROM penstock_{table}"):
            bare = str(value).rstrip()
            rows(full, f"UPDATE penstock_{table} SET {column} = :bare WHERE {column} = :value",
                 bare=bare, value=value)  # fmt: skip
    rows(full, "UPDATE penstock_keys SET value = :bare", bare=b"17")
    with opened(full) as (store, lease):
        store.verify("shop")
        assert store.connector_keys("shop") == {KeyAddress("stream", A.key, "page"): "17"}
        assert len(store.open_groups("shop")) == 1
        history = len(store.state_history("shop"))
        store.replace_states(lease, [state(A, '{"n": 3000}'), state(B, BIG)])
        assert len(store.state_history("shop")) == history + 1, "one state changed"
    sealed = rows(full, "SELECT blob FROM penstock_states")
    assert [checksums.is_sealed(str(blob)) for (blob,) in sealed] == [True, True]


def test_earlier_versions_read_what_this_one_writes(full: str) -> None:
    """They parse the whole value as JSON, or give it to a source that does; of connectors' keys,
    whose text they take as it is, they refuse it: it is no UTF-8. The tokens of writes decide
    nothing, and have no checksum."""
    for table, column in {(t, c) for t, c, _ in VALUES.values() if t != "keys"}:
        for (value,) in rows(full, f"SELECT {column} FROM penstock_{table}"):
            assert checksums.is_sealed(str(value)) or '{"token": ' in str(value), table
            assert json.loads(str(value)) == msgspec.json.decode(str(value))
    ((key,),) = rows(full, "SELECT value FROM penstock_keys")
    with pytest.raises(UnicodeDecodeError):
        bytes(key).decode()  # type: ignore[arg-type]


@pytest.mark.parametrize("value", ["{}", "null", '"x"', "12", BIG, "{}\n", " {} \n\t ", ""])
def test_every_change_of_one_character_is_noticed(value: str) -> None:
    sealed = checksums.sealed(value, "s")
    assert checksums.opened(sealed, "s") == value
    with pytest.raises(checksums.Mismatch):
        checksums.opened(sealed, "t")
    for at in range(len(sealed)):
        for other in ("7", " ", "\t", "x"):
            if other != sealed[at] and at != len(value):  # the line break: then there is none
                with pytest.raises(checksums.Mismatch):
                    checksums.opened(sealed[:at] + other + sealed[at + 1 :], "s")


def test_every_change_of_one_byte_of_a_key_is_noticed() -> None:
    for value in (b"", b"17", "é".encode() * 9):
        sealed = checksums.sealed_bytes(value, "k")
        assert checksums.opened_bytes(sealed, "k") == value
        assert checksums.opened_bytes(value, "k") == value
        for at in range(len(sealed)):
            wrong = sealed[:at] + bytes([sealed[at] ^ 1]) + sealed[at + 1 :]
            with pytest.raises((checksums.Mismatch, UnicodeDecodeError)):
                checksums.opened_bytes(wrong, "k").decode()
