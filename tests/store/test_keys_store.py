"""What a port on a database adds: weight, places, failures, secrets, and stores of before."""

import os
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from sqlalchemy import text
from sqlalchemy.engine import Connection

from penstock.errors import ConfigError, StateError
from penstock.model.catalog import StreamId
from penstock.model.segments import Group, SegmentId
from penstock.store import database, database_url, schema
from penstock.store.keys import SHARED, KeyAddress, KeyPort
from penstock.store.lock_holder import this_holder
from penstock.store.open import open_store
from penstock.store.task_keys import keys_url, open_keys

pytestmark = pytest.mark.dear

SECRET = "hunter2-very-secret"
KEY = KeyAddress("pipeline", "", SECRET)


def database_of(place: str) -> database.Database:
    if "://" in place:
        return database.open_postgres(place)
    return database.open_sqlite(Path(place))


@pytest.fixture
def port(place: str) -> Iterator[KeyPort]:
    store = open_store(place)
    store.begin_keys(store.acquire("shop", this_holder("r"), 600), "t")
    store.close()
    made = open_keys(keys_url(place), "shop", "t")
    yield made
    made.close()


def run(code: str, *arguments: str, **environment: str) -> str:
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code), *arguments],
        capture_output=True,
        text=True,
        check=True,
        env={k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"} | environment,
    ).stdout


def test_a_lane_imports_it_in_150_ms_and_no_driver(tmp_path: Path) -> None:
    """In CPU seconds, so that a busy machine does not decide."""
    code = """
    import sys, time
    began = time.process_time()
    import penstock.store.task_keys
    taken = time.process_time() - began
    assert not {"sqlalchemy", "psycopg"} & set(sys.modules)
    print(taken)
    """
    taken = [float(run(code, PYTHONPYCACHEPREFIX=str(tmp_path))) for _ in range(4)]
    assert min(taken) < 0.15


def test_nothing_is_opened_before_the_first_call(tmp_path: Path) -> None:
    port = open_keys(f"sqlite:///{tmp_path}/none.db", "shop", "t")
    port.begin(SHARED)
    assert port.checkpoint() == 0
    port.close()
    with pytest.raises(StateError) as refused:
        port.get(KEY)
    assert refused.value.code == "state.not_writable" and "none.db" in refused.value.message
    assert not list(tmp_path.iterdir())  # a worker that does not see the file makes no other


def test_urls_are_absolute_and_name_no_python_driver(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", "/home/me")
    assert keys_url("a.db") == f"sqlite:///{tmp_path}/a.db"
    assert keys_url(Path("/x/a b?.db")) == "sqlite:////x/a b?.db"
    assert keys_url("sqlite:////x/a.db") == "sqlite:////x/a.db"
    assert keys_url("~/a.db") == "sqlite:////home/me/a.db"
    for scheme in ("postgres", "postgresql", "postgresql+psycopg"):
        assert keys_url(f"{scheme}://u:p@h/d?x=1") == "postgresql://u:p@h/d?x=1"
    with pytest.raises(ConfigError):
        keys_url("mysql://u:p@h/d")


def test_a_file_with_an_odd_name_is_that_file(tmp_path: Path) -> None:
    place = str(tmp_path / "a b?%41#.db")
    open_store(place).close()
    port = open_keys(keys_url(place), "shop", "t")
    assert port.get(KEY) is None
    port.close()
    assert not (tmp_path / "a b").exists()


def test_a_missing_driver_says_what_to_install() -> None:
    code = f"""
    import sys
    sys.modules["psycopg"] = None
    from penstock.errors import StateError
    from penstock.store.keys import KeyAddress
    from penstock.store.task_keys import open_keys
    try:
        open_keys("postgresql://me:{SECRET}@h/d", "shop", "t").get(KeyAddress("pipeline", "", "k"))
    except StateError as error:
        print(error.code, error.hint)
    """
    out = run(code)
    assert "state.driver_missing" in out and "psycopg[binary]" in out


def test_l10_a_postgres_that_is_not_there_is_named_without_its_password() -> None:
    for url in (f"postgresql://me:{SECRET}@127.0.0.1:1/db", f"postgresql://me:{SECRET}@h:x/d?y"):
        began = time.monotonic()
        with pytest.raises((StateError, ConfigError)) as refused:
            open_keys(url, "shop", "t").put(KEY, SECRET)
        assert time.monotonic() - began < 30
        assert SECRET not in str(refused.value.as_dict()) and refused.value.hint


def test_l10_no_key_and_no_value_reaches_an_error(port: KeyPort, place: str) -> None:
    port.put(KEY, SECRET)
    db = database_of(place)
    with db.writing() as conn:
        conn.execute(text("ALTER TABLE penstock_keys RENAME TO penstock_gone"))
    db.close()
    for call in (lambda: port.put(KEY, SECRET), lambda: port.get(KEY)):
        with pytest.raises(StateError) as failed:
            call()
        shown = "".join([str(failed.value.as_dict()), repr(failed.value.__cause__)])
        assert SECRET not in shown and failed.value.__suppress_context__


def test_l11_a_store_that_stays_busy_is_reported_in_bounded_time(
    port: KeyPort, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database_url, "BUSY_SECONDS", 1)
    db = database_of(place)
    with db.writing() as conn:
        conn.execute(text("UPDATE penstock_key_tasks SET marks = marks"))
        assert port.get(KEY) is None  # who reads waits for nobody
        with pytest.raises(StateError) as busy:
            port.put(KEY, "1")
    assert busy.value.code == "state.busy"
    db.close()
    port.put(KEY, "1")
    assert port.get(KEY) == "1"


def test_a_connection_that_was_cut_while_it_was_quiet_is_made_again(
    postgres_url: str,
) -> None:
    store = open_store(postgres_url)
    lease = store.acquire("shop", this_holder("r"), 600)
    store.begin_keys(lease, "t")
    port = open_keys(keys_url(postgres_url), "shop", "t")
    port.put(KEY, "1")
    cut(postgres_url)
    port.put(KEY, "2")
    cut(postgres_url)
    assert port.get(KEY) == "2"
    cut(postgres_url)
    port.put(KEY, "3")
    assert port.get(KEY) == "3"
    port.close()
    store.close()


def cut(url: str) -> None:
    """Every other connection to this server."""
    db = database.open_postgres(url)
    with db.writing() as conn:
        conn.execute(
            text(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                "WHERE pid <> pg_backend_pid() AND backend_type = 'client backend'"
            )
        )
    db.close()


def test_a_key_that_is_written_in_a_loop_stays_one_row(port: KeyPort, place: str) -> None:
    for number in range(50):
        port.put(KEY, str(number))
    port.checkpoint()
    port.put(KEY, "last")
    db = database_of(place)
    with db.reading() as conn:
        assert conn.scalar(text("SELECT count(*) FROM penstock_keys")) == 2
    db.close()


def test_a_store_of_before_keeps_its_groups_and_gets_keys(
    place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Groups that were written down without keys are carried out as they stand."""
    stream = StreamId(None, "users")
    group = Group(id=1, loads=(), states=(), epoch=1, consumes=((SegmentId(1, 1), stream),))
    with monkeypatch.context() as patch:
        patch.setattr(schema, "MIGRATIONS", schema.MIGRATIONS[:2])
        db = database_of(place)
        with db.writing() as conn:
            fill_as_before(conn, msgspec.json.encode(group).decode())
        db.close()
    store = open_store(place)
    assert [g.consumes for g in store.open_groups("shop")] == [group.consumes]
    lease = store.acquire("shop", this_holder("r"), 600)
    store.begin_keys(lease, "t")
    port = open_keys(keys_url(place), "shop", "t")
    port.put(KEY, "1")
    store.end_keys(lease)
    assert port.get(KEY) is None and store.connector_keys("shop") == {}
    port.close()
    store.close()


def fill_as_before(conn: Connection, body: str) -> None:
    conn.exec_driver_sql(
        "INSERT INTO penstock_pipelines (name, state_id, epoch, last_group, last_history, floors) "
        "VALUES ('shop', 'id', 1, 1, 0, '{}')"
    )
    conn.execute(
        text("INSERT INTO penstock_groups (pipeline, id, done, body) VALUES ('shop', 1, 0, :b)"),
        {"b": body},
    )
