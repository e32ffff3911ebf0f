"""Real, unmodified taps, targets and sources from the package registry, through Penstock (issue 4,
Real): tap-postgres into Delta, source-faker into target-jsonl and into our stub of an Airbyte
destination, a tap into target-postgres.

Their environments are built once for all tests here, by Penstock itself.
"""

import importlib.util
import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from connector_sites import Push, TapSite
from pipelines import NAME, Site

from penstock.config.load import load_pipeline
from penstock.engine.run.start import run_pipeline
from penstock.engine.specs.observer import NullObserver
from postgres_cluster import tcp_port

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [
    pytest.mark.network,
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.timeout(900),
]

_place = Path(__file__).parents[1] / "store" / "conftest.py"
_spec = importlib.util.spec_from_file_location("postgres_fixture", _place)
assert _spec is not None and _spec.loader is not None
_fixture = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(_fixture)
postgres_cluster = _fixture.postgres_cluster
postgres_url = _fixture.postgres_url

TAP = "singer:meltanolabs-tap-postgres"
TARGET = "singer:meltanolabs-target-postgres"
JSONL = "singer:target-jsonl@0.1.4"
FAKER = "airbyte:source-faker@7.2.1"
FAKER_CONFIG = {"count": 200, "seed": 1, "always_updated": False, "parallelism": 1}
FULL = {"sync_mode": "full_refresh", "destination_sync_mode": "overwrite"}


@pytest.fixture
def real(
    tmp_path: Path, shared_spark: "SparkSession", connector_environments: Path
) -> Callable[..., Site]:
    del shared_spark
    made: list[Site] = []

    def make(kind: type[Site] = Site, format: str = "parquet", **stub: Any) -> Site:
        here = kind(tmp_path / f"real-{len(made)}", format, **stub)
        here.with_connectors(connector_environments)
        made.append(here)
        return here

    return make


@pytest.fixture
def database(postgres_cluster: str, postgres_url: str) -> Iterator[Any]:
    """A connection whose search path is an empty schema; ``schema`` names it."""
    import psycopg

    name = postgres_url.rpartition("%3D")[2]
    with psycopg.connect(f"host={postgres_cluster} user=penstock dbname=postgres") as connection:
        connection.autocommit = True
        connection.execute(f"SET search_path TO {name}")
        yield connection, name


@pytest.fixture
def port(postgres_cluster: str) -> Iterator[int]:
    with tcp_port(postgres_cluster) as number:
        yield number


def test_tap_postgres_into_delta_full_incremental_and_with_a_new_column(
    real: Callable[..., Site], port: int, database: Any
) -> None:
    """The second run of an increment begins with the catalogue of the first, beside its discovery:
    it reads the column that the table got."""
    connection, schema = database
    connection.execute(
        "CREATE TABLE orders (id int PRIMARY KEY, total numeric(20, 4), note text, paid boolean,"
        " changed timestamptz NOT NULL, tags jsonb)"
    )
    connection.execute(
        "INSERT INTO orders SELECT n, n * 1.5, 'note ' || n, n % 2 = 0,"
        " timestamptz '2026-01-01 00:00:00+00' + n * interval '1 hour', '{\"a\": [1, null]}'"
        " FROM generate_series(1, 500) AS n"
    )
    name = f"{schema}-orders"
    asked = {
        "use": TAP,
        "config": {
            "sqlalchemy_url": f"postgresql://penstock:none@127.0.0.1:{port}/postgres",
            "filter_schemas": [schema],
        },
    }
    full = real(TapSite, "delta")
    for _ in range(2):
        ran = full.run(**asked, defaults=FULL)
        assert (ran.status, ran.guarantee) == ("succeeded", "exactly-once"), ran.error
        assert ran.counts(name) == ("complete", 500, 500, 0)
    (table,) = full.tables()
    rows = full.rows(table, "id")
    assert [row["id"] for row in rows] == list(range(1, 501))
    first = rows[0]
    assert (float(first["total"]), first["note"], first["paid"]) == (1.5, "note 1", False)
    assert str(first["changed"]).startswith("2026-01-01 01:00:00")
    assert json.loads(first["tags"]) == {"a": [1, None]}

    here = real(TapSite, "delta")
    streams = [{"name": name, "sync_mode": "incremental", "cursor_field": "changed",
                "destination_sync_mode": "append_dedup"}]  # fmt: skip
    ran = here.run(**asked, streams=streams)
    assert ran.counts(name) == ("complete", 500, 500, 0), ran.error
    connection.execute("ALTER TABLE orders ADD COLUMN city text")
    connection.execute(
        "INSERT INTO orders SELECT n, n, 'new', true,"
        " timestamptz '2026-02-01 00:00:00+00' + n * interval '1 hour', NULL, 'Delft'"
        " FROM generate_series(501, 520) AS n"
    )
    connection.execute("UPDATE orders SET note = 'changed', changed = '2026-03-01' WHERE id = 7")
    again = here.run(**asked, streams=streams)
    assert again.status == "succeeded", again.error
    assert 21 <= again.stream(name).read <= 22  # the bookmark's own row may come again
    rows = here.rows(table, "id")
    assert [row["id"] for row in rows] == list(range(1, 521))
    assert rows[6]["note"] == "changed"
    assert [row["city"] for row in rows] == [None] * 500 + ["Delft"] * 20
    shown = here.cli("state", "show", NAME, "--json").json
    assert [s["name"] for s in shown["streams"]] == [name]
    assert "2026-03-01" in json.dumps(shown["streams"][0]["state"])


def test_source_faker_into_target_jsonl(real: Callable[..., Site]) -> None:
    here = real()
    folder = here.folder / "out"
    folder.mkdir()
    told = {
        "use": JSONL,
        "config": {"destination_path": str(folder), "do_timestamp_file": False},
    }
    ran = here.run(use=FAKER, config=FAKER_CONFIG, destination=told)
    assert (ran.status, ran.guarantee) == ("succeeded", "at-least-once"), ran.error
    for stream in ran.report.streams:
        text = (folder / f"{stream.name}.jsonl").read_text().splitlines()
        ids = [json.loads(line)["id"] for line in text]
        assert len(ids) == len(set(ids)) == stream.read == stream.committed
    assert set(here.saved()) == {"products", "purchases", "users"}
    again = here.run(use=FAKER, config=FAKER_CONFIG, destination=told)
    assert again.status == "succeeded", again.error
    assert sum(s.read for s in again.report.streams) == 0


def test_source_faker_into_an_airbyte_destination(real: Callable[..., Site]) -> None:
    there = Push(real(), "airbyte")
    ran = there.run(use=FAKER, told={})
    assert ran.status == "succeeded", ran.error
    (heard,) = there.runs()
    assert heard.statuses() == dict.fromkeys(("products", "purchases", "users"), "COMPLETE")
    for stream in ran.report.streams:
        ids = [row["id"] for row in heard.records(stream.name)]
        assert len(ids) == len(set(ids)) == stream.committed > 0


def test_a_tap_into_target_postgres(
    real: Callable[..., Site], postgres_cluster: str, database: Any
) -> None:
    """Rows, upserts by key, and the tap's own state."""
    connection, schema = database
    here = real(TapSite)
    told = {
        "use": TARGET,
        "config": {
            "sqlalchemy_url": f"postgresql+psycopg://penstock@/postgres?host={postgres_cluster}",
            "default_target_schema": schema,
        },
    }
    defaults = {"destination_sync_mode": "append_dedup"}
    first = here.run({"key_space": 40}, destination=told, defaults=defaults)
    assert first.status == "succeeded", first.error
    assert first.counts("s0") == ("complete", 100, 100, 0)
    query = "SELECT count(*), count(DISTINCT id), max(seq), min(seq) FROM s0"
    assert connection.execute(query).fetchone() == (40, 40, 100, 61)
    assert here.bookmarks() == {"s0": 100, "s1": 100}
    here.run({"key_space": 40, "records": 120}, destination=told, defaults=defaults)
    assert connection.execute(query).fetchone() == (40, 40, 120, 81)


EXAMPLES = Path(__file__).parents[2] / "examples" / "pipelines"


def test_the_examples_with_postgres_run(
    real: Callable[..., Site],
    port: int,
    postgres_cluster: str,
    database: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    connection, schema = database
    connection.execute("CREATE TABLE orders (id int PRIMARY KEY, note text, changed timestamptz)")
    fill = "INSERT INTO orders SELECT n, 'old', timestamptz '2026-01-01Z' + n * interval '1 h' "
    connection.execute(fill + "FROM generate_series(1, 30) AS n")
    here = real()
    monkeypatch.chdir(here.folder)
    variables = {
        "SHOP_HOST": "127.0.0.1", "SHOP_PORT": str(port), "SHOP_USER": "penstock",
        "SHOP_PASSWORD": "none", "SHOP_DATABASE": "postgres", "SHOP_SCHEMA": schema,
        "WAREHOUSE_URL": f"postgresql+psycopg://penstock@/postgres?host={postgres_cluster}",
        "WAREHOUSE_SCHEMA": f"{schema}_copy",
    }  # fmt: skip

    def run(name: str) -> None:
        file = shutil.copy(EXAMPLES / f"{name}.yaml", here.folder)  # its paths start there
        pipeline = load_pipeline(file, env=variables)
        report = run_pipeline(pipeline, here.home, observer=NullObserver())
        assert report.status == "succeeded", report.error

    run("singer-to-parquet")
    assert len(here.rows(here.tables()[0], "id")) == 30
    run("postgres-to-postgres")
    connection.execute("UPDATE orders SET note = 'new', changed = '2026-03-01Z' WHERE id < 4")
    run("postgres-to-postgres")
    (copied,) = connection.execute(
        "SELECT table_name FROM information_schema.tables WHERE table_schema = %s",
        [f"{schema}_copy"],
    ).fetchall()
    count = (
        f"SELECT count(*), count(*) FILTER (WHERE note = 'new') FROM {schema}_copy.\"{copied[0]}\""
    )
    assert connection.execute(count).fetchone() == (30, 3)
