"""A query that a real Postgres runs: every type, and nothing lost or written (L8, L11)."""

import datetime
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from decimal import Decimal
from typing import Any

import psycopg
import pytest

from penstock.databases import postgres, postgres_rows, postgres_session
from penstock.errors import ConfigError, PenstockError, SourceError
from penstock.model.database_query import DatabaseRead
from penstock.model.types import Kind
from postgres_cluster import running_cluster, server_processes, stopped

pytestmark = pytest.mark.dear

UTC = datetime.UTC
DIGITS = "1.23456789012345678901234567890123456789012345"
TABLE = f"""
CREATE SEQUENCE s;
CREATE TYPE mood AS ENUM ('sad', 'ok');
CREATE TABLE t (id int, b bool, big bigint, n numeric(10, 2), wide numeric, r real, d float8,
  day date, wall timestamp, at timestamptz, raw bytea, j json, jb jsonb, list int[], texts text[],
  t text, empty varchar(10), u uuid, m mood, gap interval, clock time);
INSERT INTO t VALUES (1, true, 9007199254740993, '1.50', '{DIGITS}', 0.1, 'Infinity',
  '1582-10-15', '2026-01-02 03:04:05.123456', '2026-01-02 03:04:05.123456+05', '\\x0102ff',
  '{{"a": 1.10}}', '{{"k": [1, null]}}', '{{1,2,NULL}}', '{{"a,b",NULL}}',
  E'two\\nlines, "quoted" \\\\.', '', '00000000-0000-0000-0000-000000000001', 'ok',
  '1 day 2 hours', '03:04:05');
INSERT INTO t (id) VALUES (2);
"""
Rows = list[dict[str, Any]]


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with running_cluster() as folder:
        found = f"postgresql://penstock@/postgres?host={folder}"
        with psycopg.connect(found, autocommit=True) as connection:
            connection.execute(TABLE.encode())
        yield found


def rows_of(query: str, url: str, *, stopped: Callable[[], bool], **more: Any) -> Rows:
    found: Rows = []
    read = DatabaseRead(query=postgres.query_of(query, url, "users"), **more)
    with closing(postgres_rows.DatabaseRows(read, 0.1).tables()) as tables:
        for table in tables:
            if stopped():
                break
            found += table.to_pylist() if table is not None else []
    return found


@pytest.fixture
def read(url: str) -> Callable[..., Rows]:
    def rows(query: str, **more: Any) -> Rows:
        return rows_of(query, url, **{"stopped": lambda: False, **more})

    return rows


def test_every_type_comes_as_it_is(read: Callable[..., Rows]) -> None:
    first, second = read("SELECT * FROM t ORDER BY id -- the end;\n;")
    assert first == {
        "id": 1, "b": True, "big": 9007199254740993, "n": Decimal("1.50"), "wide": DIGITS,
        "r": 0.1, "d": float("inf"), "day": datetime.date(1582, 10, 15),
        "wall": datetime.datetime(2026, 1, 2, 3, 4, 5, 123456),
        "at": datetime.datetime(2026, 1, 1, 22, 4, 5, 123456, UTC), "raw": b"\x01\x02\xff",
        "j": '{"a": 1.10}', "jb": '{"k": [1, null]}', "list": "[1,2,null]",
        "texts": '["a,b",null]', "t": 'two\nlines, "quoted" \\.', "empty": "",
        "u": "00000000-0000-0000-0000-000000000001", "m": "ok", "gap": "P1DT2H",
        "clock": "03:04:05",
    }  # fmt: skip
    assert second == dict.fromkeys(first) | {"id": 2}


def test_a_null_in_the_only_column_no_rows_and_a_long_row(read: Callable[..., Rows]) -> None:
    """L8."""
    assert [row["t"] is None for row in read("SELECT t FROM t ORDER BY id")] == [False, True]
    assert read("SELECT * FROM t WHERE id > 2") == []
    long = read("SELECT repeat('x', 20000000) AS a, E'1\\n2' AS b FROM generate_series(1, 2)")
    assert [(len(row["a"]), row["b"]) for row in long] == [(20_000_000, "1\n2")] * 2


@pytest.mark.parametrize(
    ("column", "value", "found"),
    [
        ("at", "2026-01-01T22:04:05.123455Z", 1), ("at", "2026-01-01T22:04:05.123456Z", 0),
        ("t", "it's'; DROP TABLE t; --", 1), ("t", "u", 0), ("n", "1.49", 1), ("id", "0", 1),
        ("day", "1582-10-14", 1), ("u", "00000000-0000-0000-0000-000000000000", 1),
    ],
)  # fmt: skip
def test_the_cursor_is_bound(
    read: Callable[..., Rows], column: str, value: str, found: int
) -> None:
    query = (
        f"SELECT * FROM t /* :cursor */ WHERE ':cursor' = $$:cursor$$ AND"
        f" (:cursor IS NULL OR {column} > :cursor) AND id::text > ''"
    )
    assert len([row for row in read(query, cursor=(column, value)) if row["id"] == 1]) == found
    assert len(read(query)) == 2


def test_a_cursor_without_an_order_is_refused(url: str) -> None:
    model = postgres.query_of("SELECT * FROM t", url, "users")
    columns = postgres.describe(model)
    kinds = {c.field.name: c.field.type.kind for c in columns}
    assert (kinds["n"], kinds["wide"], kinds["list"]) == (Kind.decimal, Kind.string, Kind.json)
    for name in ("wide", "m", "list", "gap", "b"):
        with pytest.raises(ConfigError, match=f"the cursor {name} is"):
            postgres.refuse_cursor(model, columns, name)
    postgres.refuse_cursor(model, columns, "at")


@pytest.mark.parametrize(
    ("query", "code", "said"),
    [
        ("SELECT 1; SELECT 2", "source.query", "one statement"),
        (" -- nothing", "source.query", "is empty"),
        ("SELCT 1", "source.query", "syntax error"),
        ("SELECT nope FROM t", "source.query", "does not exist"),
        ("SELECT 1 AS a, 2 AS \"A\"", "source.query", "comes 2 times"),
        
        ("SELECT nextval('s') AS a", "source.query_failed", "read-only transaction"),
        ("DELETE FROM t RETURNING id", "source.query", "syntax error"),
        ("SELECT 1 / (id - 2) AS a FROM t", "source.query_failed", "division by zero"),
        ("SELECT 'NaN'::numeric(5, 2) AS a", "source.query_failed", "fits no column"),
        ("SELECT 'infinity'::date AS a", "source.query_failed", "fits no column"),
    ],
)  # fmt: skip
def test_what_fails_says_so_in_the_databases_words(
    read: Callable[..., Rows], query: str, code: str, said: str
) -> None:
    with pytest.raises(PenstockError, match=said) as failed:
        read(query)
    assert failed.value.code == code and failed.value.hint


def test_l11_a_query_ends_when_its_reader_does(url: str, read: Callable[..., Rows]) -> None:
    began = time.monotonic()
    query = "SELECT pg_sleep(600)::text AS a"
    assert read(query, stopped=lambda: time.monotonic() > began + 0.5) == []
    assert time.monotonic() - began < 60
    with psycopg.connect(url) as connection:
        running = "SELECT count(*) FROM pg_stat_activity WHERE query LIKE '%pg_sleep(600)%'"
        others = f"{running} AND pid <> pg_backend_pid() AND state = 'active'"
        assert connection.execute(others.encode()).fetchone() == (0,)


@pytest.mark.parametrize("how", ["stopped by the user", "noticed"])
def test_l11_a_server_that_is_stopped_ends_a_query(
    url: str, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It takes no order to cancel the query, and answers nobody; a query that only takes long goes
    on, since the server answers others."""
    monkeypatch.setattr(postgres_session, "_ANSWER_SECONDS", 0.3)
    monkeypatch.setattr(postgres_session, "CANCEL_SECONDS", 0.5)
    monkeypatch.setattr(postgres_rows, "CANCEL_SECONDS", 0.5)
    folder = url.rpartition("host=")[2]
    assert rows_of("SELECT pg_sleep(2)::text AS a", url, stopped=lambda: False)
    began = time.monotonic()

    def cancelled() -> bool:
        return how == "stopped by the user" and time.monotonic() > began + 2

    with ExitStack() as stack:
        pause = threading.Timer(1, lambda: stack.enter_context(stopped(server_processes(folder))))
        pause.start()
        if how == "noticed":
            with pytest.raises(SourceError, match="cannot be reached") as failed:
                rows_of("SELECT pg_sleep(600)::text AS a", url, stopped=cancelled)
            assert failed.value.code == "source.unreachable"
        else:
            assert rows_of("SELECT pg_sleep(600)::text AS a", url, stopped=cancelled) == []
        assert time.monotonic() - began < 20


def test_no_password_is_told() -> None:
    """L10."""
    secret = "s3cret-password"
    model = postgres.query_of("SELECT 1 AS a", f"postgres://u:{secret}@127.0.0.1:1/x", "users")
    with pytest.raises(SourceError, match="cannot be reached") as failed:
        postgres.describe(model)
    assert secret not in f"{failed.value.as_dict()}{model!r}"
    with pytest.raises(ConfigError, match="mysql:// cannot be queried"):
        postgres.query_of("SELECT 1", f"mysql://u:{secret}@h/d", "users")
