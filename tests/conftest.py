"""What all tests of a process share: one Spark session that can write Delta, and a Spark that stays
for the processes that they start (``warm_spark``)."""

import gc
import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import warm_spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytest_plugins = ["counts"]

# Half the processor time of every Java that a test starts: none lives long enough to be tuned, and
# no query is large enough to be worth code of its own (a quarter of what tables' tests cost).
INTERPRETED = "-Dspark.sql.codegen.wholeStage=false -Dspark.sql.codegen.factoryMode=NO_CODEGEN"
# In the 48 MB for code that C1 alone gets, a session of half an hour drops what it compiled.
COMPILED = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:ReservedCodeCacheSize=240m"
os.environ.setdefault("JDK_JAVA_OPTIONS", f"{COMPILED} {INTERPRETED}")

# A Spark that stays is for those tests that ask for it, and nothing is made for later runs.
os.environ["PENSTOCK_DAEMON"] = "0"
os.environ["CI"] = "true"

# What tests make is gone by their end: collecting it a thousand times finds little.
gc.set_threshold(50_000, 20, 50)


def pytest_sessionfinish() -> None:
    warm_spark.end_all()


@pytest.hookimpl(tryfirst=True)  # before marks choose
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """A test that is given a session is one with Spark, whoever forgot the mark. Where several
    processes share the tests by file, the longest files come first, so that all end together."""
    for item in items:
        if "shared_spark" in getattr(item, "fixturenames", ()):
            item.add_marker("spark")
    if not hasattr(config, "workerinput"):
        return
    slow = Counter(i.path for i in items if i.get_closest_marker("slow"))
    spark = Counter(i.path for i in items if i.get_closest_marker("spark"))
    tests = Counter(i.path for i in items)
    items.sort(key=lambda i: (-slow[i.path], -spark[i.path], -tests[i.path], i.path))


@pytest.fixture(scope="session")
def connector_environments(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home's ``connectors`` folder that all processes of the tests share: a connector of the
    registry is built once."""
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "connectors"
    folder.mkdir(exist_ok=True)
    return folder


@pytest.fixture(scope="session")
def shared_spark(tmp_path_factory: pytest.TempPathFactory) -> "Iterator[SparkSession]":
    """Held open: every run of this process joins it, which takes the start of a JVM off each. Its
    warehouse lasts as long as the tests, so that tables by name may be written."""
    from penstock.spark.session import close_session, open_session
    from penstock.tables.formats import open_table

    scratch = tmp_path_factory.mktemp("spark")
    needs = open_table("delta", str(scratch / "lake")).needs()
    conf = {
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.warehouse.dir": str(scratch / "lasting warehouse"),
    }
    session = open_session(needs, master="local[2]", conf=conf, scratch_dir=scratch)
    yield session
    close_session(session)
