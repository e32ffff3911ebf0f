"""Pages whose blocks read from Postgres, or write to it, followed with a real one."""

import json
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from doc_blocks import blocks
from doc_follow import AS_FAKER, OWN_FAKER, SHOP, STUBS, Folder, Heard, people

import penstock
import warm_spark
from penstock.spark.session import LENT_SLOTS
from postgres_cluster import running_cluster, tcp_port

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.network, pytest.mark.slow]


@pytest.fixture(scope="module")
def server() -> Iterator[tuple[str, int]]:
    """The folder of its socket, and its port. Two databases have three small tables."""
    with running_cluster() as folder, tcp_port(folder) as port:
        address = f"host={folder} user=penstock"
        with psycopg.connect(f"{address} dbname=postgres", autocommit=True) as connection:
            connection.execute("CREATE DATABASE shop")
            connection.execute("CREATE USER app SUPERUSER PASSWORD 'word-44'")
        for name in ("postgres", "shop"):
            with psycopg.connect(f"{address} dbname={name}", autocommit=True) as connection:
                connection.execute(
                    "CREATE TABLE users (id int PRIMARY KEY, email text, updated_at timestamptz);"
                    "INSERT INTO users SELECT n, n || '@x.io', timestamptz '2026-01-01' + n *"
                    " interval '1 day' FROM generate_series(1, 5) n;"
                    "CREATE TABLE orders AS SELECT *, 1 AS shop FROM users;"
                    "ALTER TABLE orders ADD PRIMARY KEY (id);"
                    "CREATE TABLE clicks AS SELECT id, updated_at AS at FROM users;"
                    "CREATE TABLE countries AS SELECT 'AT' AS code"
                )
        yield folder, port


@pytest.fixture
def shop(equipped: Folder, server: tuple[str, int]) -> Folder:
    _, port = server
    url = f"postgresql://penstock:none@127.0.0.1:{port}/postgres"
    equipped.environ |= {
        "SHOP_URL": url,
        "PG_URL": url,
        "PGHOST": "127.0.0.1",
        "PGPORT": str(port),
        "PGPASSWORD": "word-44",
    }
    equipped.file("tap.json", f'{{"sqlalchemy_url": "{url}", "filter_schemas": ["public"]}}')
    return equipped


def test_the_tours_taps(shop: Folder) -> None:
    shop.file("destination.json", "{}")
    taps = [b for b in blocks("sh", page="tour.md") if "singer:meltanolabs" in b.text]
    assert len(taps) == 2
    shop.replaced = {**AS_FAKER}
    for block in taps:
        shop.run(block)


def test_models(shop: Folder) -> None:
    people(shop)
    shop.replaced = {
        "airbyte:./my-destination": "airbyte:./destination",
        "penstock run spark:shop.users": "true",  # a catalog that lasts: e2e/test_models.py
    }
    shop.file("people.csv", "id,email\n1,a@x.io\n")
    shop.file("contacts.csv", "id;phone\n1;0049\n")
    shop.file("active_users.sql", "SELECT id FROM delta.`./lake/users`")
    shop.follow("models.md", "models-files.md")


def test_incremental(shop: Folder) -> None:
    _, ranged = blocks("yaml", page="incremental.md")
    shop.replaced = {
        "pipeline: shop\nsource:\n  use: airbyte": "pipeline: r\nsource:\n  use: airbyte"
    }
    shop.follow(
        "incremental.md",
        before={"--with y2023": lambda: shop.file("shop.yaml", ranged.text)},
        written={"singer:meltanolabs-tap": ("shop.yaml", "penstock run shop.yaml")},
    )


def test_the_pipeline_file(shop: Folder, server: tuple[str, int], tmp_path: Path) -> None:
    shop.program("notify.sh", "true")
    with Heard() as heard:
        shop.environ["ALERT_URL"] = heard.url
        shop.replaced = {
            # of a catalog of Hive each table costs seconds
            'airbyte:source-faker }\ndestination: { use: "delta:catalog': (
                f"'{OWN_FAKER}', streams: [users], config: {{ count: 50 }} }}\n"
                'destination: { use: "delta:catalog'
            ),
            "airbyte:source-faker,": f"'{OWN_FAKER}',",
            "airbyte:source-faker }": f"'{OWN_FAKER}', config: {{ count: 50 }} }}",
            **AS_FAKER,
            "{ count: 1000": "{ count: 100",
            "count: 10000": "count: 100",
            "/data/warehouse": f"{tmp_path}/warehouse",
            "/shared/penstock": f"{tmp_path}/shared",
            "delta:s3a://lake/tables": "delta:./big",
            "spark://master:7077": f"local[{LENT_SLOTS}]",  # that of the Spark that stays
            "spark.executor.memory: 2g": "spark.sql.shuffle.partitions: 2",
            "@db/penstock": f"@127.0.0.1:{server[1]}/postgres",
        }
        shop.follow(
            "pipeline-file.md",
            "pipeline-source.md",
            "pipeline-streams.md",
            "pipeline-destination.md",
            "pipeline-run.md",
        )


def test_python(
    shop: Folder, shared_spark: "SparkSession", monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(shop.path)
    monkeypatch.setenv("PENSTOCK_HOME", str(shop.path / "home"))
    for name, value in warm_spark.environ().items():  # for runs in Spark's Python workers
        monkeypatch.setitem(shared_spark.sparkContext.environment, name, value)
    got = shop.path / "got.jsonl"  # what the target was sent
    said = json.dumps({"save": str(got)})
    shop.program("target-postgres", sys.executable, STUBS / "stub_target.py", said)
    shop.file("pipelines/shop.yaml", SHOP)
    shop.file("shop.yaml", SHOP.replace("pipeline: shop", "pipeline: other"))
    shop.file(".env", "A=1\n")
    shop.file("faker.json", '{"count": 20}')
    shop.file("postgres.json", "{}")
    taken: list[Any] = []
    frame = shared_spark.createDataFrame([(1, "a"), (2, "b")], "id long, name string")
    home = f'.option("home", "{shop.path}/home")'
    shop.names = {
        "penstock": penstock,
        "spark": shared_spark,
        "source": OWN_FAKER,
        "take": taken.append,
        "frame": frame,
        "api": SimpleNamespace(pages=lambda: [[{"id": 1, "total": 9.9}], [{"id": 2, "note": "x"}]]),
    }
    shop.replaced = {
        **dict.fromkeys(AS_FAKER, f"airbyte:{shop.path}/source-faker"),
        "singer:meltanolabs-target-postgres": f"singer:{shop.path}/target-postgres",
        "config={...}": "config={}",
        '"@faker.json")': f'"@{shop.path}/faker.json"){home}',
        '"@postgres.json")': f'"@{shop.path}/postgres.json"){home}',
    }
    shop.follow("python.md", "python-write.md", "python-spark.md")
    assert taken[0].num_rows == 1000
    rows = Counter(m["stream"] for m in map(json.loads, got.open()) if m["type"] == "RECORD")
    assert rows == {"orders": 2, "users": 20}
