"""Fixtures of the end-to-end tests: a place for a pipeline, and Spark for runs in this process."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pipelines import Site

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


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
