"""Real, unmodified targets from the package registry, fed as the engine feeds them (issue 4, Real).

Their environments are built once for all tests, by the code that builds them for users.
"""

import importlib.util
import json
from collections.abc import Iterator
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from singer_feed import SHARED, mark, rows, schema, stream, users, write

from penstock.connectors.destination import DestinationConnector
from penstock.connectors.resolve import resolve
from penstock.model.catalog import DestinationSyncMode, SyncMode
from penstock.model.events import ConnectorExited, Error
from penstock.model.types import DataType, Field, Kind
from penstock.protocols.singer.destination import SingerTarget
from penstock.protocols.writing import END, Ack, Acks, Answer, Feed, StreamDone
from penstock.protocols.writing import WriteStream as Write
from penstock.runtimes.contract import RunTimeouts
from penstock.runtimes.process import ProcessRuntime

pytestmark = [pytest.mark.network, pytest.mark.timeout(600)]

_place = Path(__file__).parents[2] / "store" / "conftest.py"
_spec = importlib.util.spec_from_file_location("postgres_fixture", _place)
assert _spec is not None and _spec.loader is not None
_fixture = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(_fixture)
postgres_cluster = _fixture.postgres_cluster
postgres_url = _fixture.postgres_url

S = [{"bookmarks": {"users": {"at": n}}} for n in range(5)]


def _target(reference: str, environments: Path) -> ProcessRuntime:
    target = resolve(DestinationConnector, reference, environments)
    return ProcessRuntime(target.launch().command)


@pytest.fixture(scope="module")
def jsonl(connector_environments: Path) -> ProcessRuntime:
    return _target("singer:target-jsonl@0.1.4", connector_environments)


@pytest.fixture(scope="module")
def postgres(connector_environments: Path) -> ProcessRuntime:
    return _target("singer:meltanolabs-target-postgres", connector_environments)


def acked(answers: list[Answer]) -> list[int]:
    assert not [a for a in answers if isinstance(a, Error)]
    assert isinstance(answers[-1], ConnectorExited) and answers[-1].code == 0, answers[-1]
    return [a.seq for a in answers if isinstance(a, Ack)]


# -- target-jsonl: every record at once, one state at the end, only if nothing follows it


def test_jsonl_writes_what_it_is_fed_and_acks_the_last_state(
    jsonl: ProcessRuntime, tmp_path: Path
) -> None:
    of = schema(
        id=Kind.integer,
        price=DataType(Kind.decimal, precision=38, scale=9),
        at=Kind.timestamp,
        text=Kind.string,
        any=Kind.json,
        tags=DataType(Kind.array, item=DataType(Kind.string)),
        inner=DataType(Kind.struct, fields=(Field("x_y", "x y", DataType(Kind.number)),)),
    )
    one = stream("users", of)
    record: dict[str, Any] = {
        "id": 1,
        "price": Decimal("12345678901234567890.123456789"),
        "at": datetime.fromisoformat("2024-02-29T12:00:00.000001+00:00"),
        "text": 'q" \\ \n \u2028 😀',
        "any": '{"a":1.5,"b":[null]}',
        "tags": ["a", None],
        "inner": {"x_y": 0.1},
    }
    feed: list[Feed] = [rows(one, record, {"id": 2}), mark(1, S[1]), rows(one, {"id": 3})]
    feed += [mark(2, S[2])]
    config = {"destination_path": str(tmp_path), "do_timestamp_file": False}
    assert acked(write(jsonl, [one], feed, config=config)) == [2, END]
    found = [json.loads(line) for line in (tmp_path / "users.jsonl").read_text().splitlines()]
    assert [r["id"] for r in found] == [1, 2, 3]
    assert found[0] == {
        **record,
        "price": "12345678901234567890.123456789",
        "at": "2024-02-29T12:00:00.000001Z",
        "any": {"a": 1.5, "b": [None]},
        "inner": {"x y": 0.1},
    }
    assert set(found[1].values()) == {2, None}


def test_jsonl_acks_rows_that_follow_the_last_state(jsonl: ProcessRuntime, tmp_path: Path) -> None:
    """Reference §0.4: it forgets a state as soon as a RECORD follows it."""
    one = stream("users")
    config = {"destination_path": str(tmp_path), "do_timestamp_file": False}
    feed: list[Feed] = [users(one, 1, 2), mark(1, S[1]), users(one, 3, 2)]
    assert acked(write(jsonl, [one], list(feed), config=config)) == [1, END]
    assert acked(write(jsonl, [one], list(feed[:1]), config=config)) == [END]
    assert acked(write(jsonl, [one], list(feed), config=config, acks=Acks.at_end)) == [END]
    assert len((tmp_path / "users.jsonl").read_text().splitlines()) == 10


def test_jsonl_answers_spec_and_check(jsonl: ProcessRuntime, tmp_path: Path) -> None:
    """It does not know --about."""
    target, bounds = SingerTarget(), RunTimeouts(stop=2)
    assert target.spec(jsonl, bounds, lambda event: None).config_schema["type"] == "object"
    assert target.check(jsonl, {"destination_path": "."}, bounds, lambda event: None).succeeded
    assert not list(tmp_path.iterdir())


# -- target-postgres of MeltanoLabs: the Singer SDK's rules


@pytest.fixture
def database(postgres_cluster: str, postgres_url: str) -> Iterator[Any]:
    import psycopg

    name = postgres_url.rpartition("%3D")[2]
    with psycopg.connect(f"host={postgres_cluster} user=penstock dbname=postgres") as connection:
        connection.autocommit = True
        connection.execute(f"SET search_path TO {name}")
        yield connection


@pytest.fixture
def config(postgres_cluster: str, postgres_url: str) -> dict[str, Any]:
    url = f"postgresql+psycopg://penstock@/postgres?host={postgres_cluster}"
    return {
        "sqlalchemy_url": url,
        "default_target_schema": postgres_url.rpartition("%3D")[2],
        "activate_version": True,
        "hard_delete": True,
    }


def all_kinds() -> Write:
    of = schema(
        id=Kind.integer,
        price=DataType(Kind.decimal, precision=38, scale=9),
        big=DataType(Kind.decimal, precision=38, scale=0),
        born=Kind.date,
        at=Kind.timestamp,
        wall=Kind.timestamp_ntz,
        clock=Kind.time,
        yes=Kind.boolean,
        any=Kind.json,
        blob=Kind.binary,
        score=Kind.number,
        tags=DataType(Kind.array, item=DataType(Kind.string)),
        inner=DataType(Kind.struct, fields=(Field("x_y", "x y", DataType(Kind.number)),)),
    )
    return stream("kinds", of)


def test_postgres_takes_every_type_and_upserts(
    postgres: ProcessRuntime, config: dict[str, Any], database: Any
) -> None:
    one = all_kinds()
    record: dict[str, Any] = {
        "id": 1,
        "price": Decimal("12345678901234567890.123456789"),
        "big": Decimal("99999999999999999999999999999999999999"),
        "born": date(2024, 2, 29),
        "at": datetime.fromisoformat("2024-02-29T12:00:00.000001+00:00"),
        "wall": datetime(2024, 2, 29, 12),
        "clock": "12:30:00",
        "yes": True,
        "any": '{"a":1.5,"b":[null]}',
        "blob": b"\x00\xff",
        "score": 0.1,
        "tags": ["a", "b"],
        "inner": {"x_y": 0.1},
    }
    feed: list[Feed] = [rows(one, {"id": 1}, {"id": 2}), mark(1, S[1]), rows(one, record)]
    feed += [mark(2, S[2])]
    assert acked(write(postgres, [one], feed, config=config)) == [2, END]
    columns = 'price, big, born, at, wall, yes, "any", score, tags, "inner"'
    found = database.execute(f"SELECT {columns} FROM kinds ORDER BY id").fetchall()
    assert found[1] == (None,) * 10
    assert found[0] == (
        record["price"],
        record["big"],
        record["born"],
        datetime(2024, 2, 29, 12, 0, 0, 1),
        record["wall"],
        True,
        {"a": 1.5, "b": [None]},
        Decimal("0.1"),
        ["a", "b"],
        {"x y": 0.1},
    )


def test_postgres_replaces_a_generation_when_it_is_complete(
    postgres: ProcessRuntime, config: dict[str, Any], database: Any
) -> None:
    """L6: what is incomplete deletes nothing."""
    full = {"mode": DestinationSyncMode.overwrite, "sync_mode": SyncMode.full_refresh}
    one = stream("users", **full, generation_id=1)
    feed: list[Feed] = [users(one, 1, 5), mark(1, S[1]), StreamDone(one.id)]
    assert acked(write(postgres, [one], feed, config=config)) == [1, END]
    count = "SELECT count(*) FROM users"
    assert database.execute(count).fetchone() == (5,)
    two = stream("users", **full, generation_id=2)
    incomplete: list[Feed] = [users(two, 1, 2), mark(1, S[1])]
    assert acked(write(postgres, [two], incomplete, config=config)) == [1, END]
    assert database.execute(count).fetchone() == (5,)
    complete: list[Feed] = [users(two, 1, 2), mark(1, S[1]), StreamDone(two.id)]
    assert acked(write(postgres, [two], complete, config=config)) == [1, END]
    assert database.execute(count).fetchone() == (2,)


def test_postgres_dies_in_its_own_words(postgres: ProcessRuntime, config: dict[str, Any]) -> None:
    one = stream("users")
    wrong = {**config, "sqlalchemy_url": "postgresql+psycopg://nobody@/nowhere?host=/nowhere"}
    answers = write(postgres, [one], [users(one, 1, 5), mark(1, S[1])], config=wrong)
    told = next(a for a in answers if isinstance(a, Error))
    assert "nowhere" in told.message
    assert not [a for a in answers if isinstance(a, Ack)]


def test_postgres_answers_spec_and_check(postgres: ProcessRuntime, config: dict[str, Any]) -> None:
    target, bounds = SingerTarget(), RunTimeouts(stop=2)
    spec = target.spec(postgres, bounds, lambda event: None)
    assert "sqlalchemy_url" in spec.config_schema["properties"]
    assert "activate-version" in spec.abilities["capabilities"]
    assert target.check(postgres, config, bounds, lambda event: None).succeeded
    refused = target.check(postgres, {"port": "many"}, bounds, lambda event: None)
    assert not refused.succeeded
    assert SHARED.stream is None
