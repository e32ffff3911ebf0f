"""A query that a real Postgres runs: every type, and nothing lost or written (L8, L11)."""

import datetime
import subprocess
import sys
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
from postgres_cluster import running_cluster, server_processes, sessions, stopped

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


def test_decimals_keep_every_digit_L9(read: Callable[..., Rows]) -> None:
    nines = "9" * 29 + "." + "9" * 9
    texts = (nines, f"-{nines}", "0.000000001", "-0.000000001", "0", "1.5")
    values = ", ".join(f"({n}, '{text}'::numeric(38, 9))" for n, text in enumerate(texts))
    found = read(
        f"SELECT a::numeric(38, 9) AS a FROM (VALUES {values}, (99, NULL)) v (n, a) ORDER BY n"
    )
    assert [row["a"] for row in found] == [*map(Decimal, texts), None]


def test_the_reader_of_rows_imports_no_frames(url: str) -> None:
    """ADBC's own DBAPI does, where they are installed."""
    code = (
        "import sys\nfrom penstock.databases import postgres, postgres_rows\n"
        "from penstock.model.database_query import DatabaseRead\n"
        f"query = postgres.query_of('SELECT 1 AS a', {url!r}, 'q')\n"
        "tables = postgres_rows.DatabaseRows(DatabaseRead(query=query), 0.1).tables()\n"
        "assert sum(t.num_rows for t in tables if t is not None) == 1\n"
        "print([m for m in ('pandas', 'polars', 'pyarrow.dataset') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == "[]", done.stdout + done.stderr


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


MATRIX = [
    ("1::smallint", 1),
    ("'-9223372036854775808'::bigint", -(2**63)),
    ("4294967295::oid", 2**32 - 1),
    ("'t'::bool", True),
    ("0.1::real", 0.1),
    ("'-Infinity'::real", float("-inf")),
    ("3.4028235e38::real", 3.4028235e38),
    ("2.2250738585072014e-308::float8", 2.2250738585072014e-308),
    ("-0.0::float8", 0.0),
    ("1::numeric(38, 0)", Decimal(1)),
    ("'-0.5'::numeric(5, 5)", Decimal("-0.50000")),
    ("(10::numeric ^ 37)::numeric(38, 0)", Decimal(10**37)),
    ("12345::numeric(2, -3)", "12000"),
    ("1.10::numeric", "1.10"),
    ("'NaN'::numeric", "NaN"),
    ("'-Infinity'::numeric", "-Infinity"),
    ("1::numeric(39, 0)", "1"),
    ("1e-20::numeric", "0.00000000000000000001"),
    ("'0001-01-01'::date", datetime.date(1, 1, 1)),
    ("'9999-12-31'::date", datetime.date(9999, 12, 31)),
    ("'0001-01-01 00:00:00'::timestamp", datetime.datetime(1, 1, 1)),
    (
        "'9999-12-31 23:59:59.999999Z'::timestamptz",
        datetime.datetime(9999, 12, 31, 23, 59, 59, 999999, UTC),
    ),
    ("''::bytea", b""),
    ("'\\x00ff'::bytea", b"\x00\xff"),
    ("' {\"a\" : 1.0}'::json", ' {"a" : 1.0}'),
    ('\'{"b":1,"a":[1e2]}\'::jsonb', '{"a": [100], "b": 1}'),
    ("'null'::jsonb", "null"),
    ("ARRAY[]::int[]", "[]"),
    ("ARRAY[[1,2],[3,NULL]]", "[[1,2],[3,null]]"),
    ("ARRAY['infinity'::timestamptz]", '["infinity"]'),
    ("ARRAY['\\x01'::bytea]", '["\\\\x01"]'),
    ("ROW(1, NULL)::pair", '{"a":1,"b":null}'),
    ("ROW(NULL, NULL)::pair", '{"a":null,"b":null}'),
    ("ROW(1, 'x')", "(1,x)"),
    ("ROW(NULL, NULL)", "(,)"),
    ("'ab'::char(5)", "ab   "),
    ("'x'::\"char\"", "x"),
    ("'n'::name", "n"),
    ("'Ab'::varchar(2)", "Ab"),
    ("E'\\x01\\u00e9\\U0001F600\\r\\n\\t\"\\\\'", '\x01é😀\r\n\t"\\'),
    ("'\\N'", "\\N"),
    ("''", ""),
    ("' '", " "),
    ("'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11'::uuid", "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"),
    ("'-1 mon 3 days 04:05:06.7'::interval", "P-1M3DT4H5M6.7S"),
    ("'24:00'::time", "24:00:00"),
    ("'04:05:06.789+05:30'::timetz", "04:05:06.789+05:30"),
    ("'ok'::mood", "ok"),
    ("5::positive", 5),
    ("'a@b'::address", "a@b"),
    ("1.5::price", Decimal("1.50")),
    ("'[1,5)'::int4range", "[1,5)"),
    ("'empty'::tsrange", "empty"),
    ("'[2026-01-01 00:00Z,)'::tstzrange", '["2026-01-01 00:00:00+00",)'),
    ("'{[1,2),[5,9)}'::int4multirange", "{[1,2),[5,9)}"),
    ("B'0101'", "0101"),
    ("B'1'::varbit", "1"),
    ("'1234.50'::money", "$1,234.50"),
    ("'1.2.3.4'::inet", "1.2.3.4"),
    ("'1.2.3.0/24'::cidr", "1.2.3.0/24"),
    ("'::1/128'::inet", "::1"),
    ("'08:00:2b:01:02:03'::macaddr", "08:00:2b:01:02:03"),
    ("'(1,2)'::point", "(1,2)"),
    ("'a b'::tsvector", "'a' 'b'"),
    ("'<a/>'::xml", "<a/>"),
    ("'t'::regclass", "t"),
    ("'1 2'::int2vector", "[1,2]"),
    ("'16/B374D848'::pg_lsn", "16/B374D848"),
]


def test_a_matrix_of_types_and_their_null(url: str, read: Callable[..., Rows]) -> None:
    """L9: the value that Postgres's own text of it has, beside a row of NULLs."""
    with psycopg.connect(url, autocommit=True) as connection:
        for made in (
            "DROP TYPE IF EXISTS pair", "CREATE TYPE pair AS (a int, b text)",
            "CREATE DOMAIN positive AS int CHECK (VALUE > 0)", "CREATE DOMAIN address AS text",
            "CREATE DOMAIN price AS numeric(10, 2)",
        ):  # fmt: skip
            connection.execute(made.encode())
    chosen = ", ".join(f"{text} AS c{n}" for n, (text, _) in enumerate(MATRIX))
    first, second = read(
        f"SELECT * FROM (SELECT 1 AS n, {chosen}) one RIGHT JOIN generate_series(1, 2) n USING (n)"
        " ORDER BY n"
    )
    wrong = {
        text: first[f"c{n}"] for n, (text, value) in enumerate(MATRIX) if first[f"c{n}"] != value
    }
    assert wrong == {}
    assert second == dict.fromkeys(second) | {"n": 2}


def test_bytes_that_are_no_text_are_refused(url: str) -> None:
    """L9: a database without an encoding keeps any bytes as text."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("CREATE DATABASE bytes ENCODING 'SQL_ASCII' TEMPLATE template0")
    plain = url.replace("/postgres?", "/bytes?")
    assert rows_of("SELECT 'plain' AS a", plain, stopped=lambda: False) == [{"a": "plain"}]
    with pytest.raises(SourceError, match="invalid byte sequence") as failed:
        rows_of("SELECT convert_from('\\xff', 'SQL_ASCII') AS a", plain, stopped=lambda: False)
    assert failed.value.code == "source.query_failed"


READER = """
import sys
from penstock.databases import postgres, postgres_rows
from penstock.model.database_query import DatabaseRead
query = postgres.query_of("SELECT pg_sleep(3000)::text AS a", sys.argv[1], "s")
for _ in postgres_rows.DatabaseRows(DatabaseRead(query=query), 0.1).tables():
    print("waits", flush=True)
"""


def test_l11_the_server_ends_the_query_of_a_reader_that_was_killed(url: str) -> None:
    folder = url.rpartition("host=")[2]
    before = set(sessions(folder))
    reader = subprocess.Popen([sys.executable, "-c", READER, url], stdout=subprocess.PIPE)
    try:
        assert reader.stdout is not None
        for _ in range(20):
            assert reader.stdout.readline()
        assert set(sessions(folder)) - before
    finally:
        reader.kill()
        reader.wait(10)
    until = time.monotonic() + 30
    while set(sessions(folder)) - before and time.monotonic() < until:
        time.sleep(0.2)
    assert not set(sessions(folder)) - before
