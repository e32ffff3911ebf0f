"""What all tests of a process share: one Spark session that can write Delta."""

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Half the processor time of every Java that a test starts: none lives long enough to be tuned.
os.environ.setdefault("JDK_JAVA_OPTIONS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")

# A Spark that stays is for those tests that ask for it.
os.environ["PENSTOCK_DAEMON"] = "0"


@pytest.fixture(scope="session")
def shared_spark(tmp_path_factory: pytest.TempPathFactory) -> "Iterator[SparkSession]":
    """Held open: every run of this process joins it, which takes the start of a JVM off each. Its
    warehouse lasts as long as the tests, so that tables by name may be written."""
    from penstock.spark.session import close_session, open_session
    from penstock.tables.open import open_table

    scratch = tmp_path_factory.mktemp("spark")
    needs = open_table("delta", str(scratch / "lake")).needs()
    conf = {
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.warehouse.dir": str(scratch / "lasting warehouse"),
    }
    session = open_session(needs, master="local[2]", conf=conf, scratch_dir=scratch)
    yield session
    close_session(session)
