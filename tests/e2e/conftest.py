"""Fixtures of the end-to-end tests: a place for a pipeline, and Spark for runs in this process."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pipelines import MASTER, Site

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def shared_spark(tmp_path_factory: pytest.TempPathFactory) -> "Iterator[SparkSession]":
    """A session that can write Delta, held open: every run of this process joins it, which takes
    the start of a JVM off each of them."""
    from penstock.spark.session import close_session, open_session
    from penstock.tables.open import open_table

    scratch = tmp_path_factory.mktemp("spark")
    needs = open_table("delta", str(scratch / "lake")).needs()
    conf = {"spark.sql.shuffle.partitions": "2"}
    session = open_session(needs, master=MASTER, conf=conf, scratch_dir=scratch)
    yield session
    close_session(session)


@pytest.fixture
def site(tmp_path: Path, shared_spark: "SparkSession") -> Callable[..., Site]:
    """``site(format="parquet", **stub options)``: a pipeline from the stub, run in this process."""
    del shared_spark
    made: list[Site] = []

    def make(format: str = "parquet", **stub: Any) -> Site:
        made.append(Site(tmp_path / f"site-{len(made)}", format, **stub))
        return made[-1]

    return make


@pytest.fixture
def quiet(tmp_path: Path) -> Site:
    """A pipeline that only the command line runs: no Spark in this process."""
    return Site(tmp_path / "site")
