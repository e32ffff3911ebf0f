"""A home, a lake and a real source for the Python interface."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import penstock

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

STUB = Path(__file__).parents[1] / "stubs" / "stub_source.py"
SOURCE = f"airbyte:{sys.executable} {STUB}"


class Api:
    """What a user's program would write, with a home of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.home = folder, folder / "home"
        self.source = SOURCE
        self.lake = f"parquet:{folder / 'lake'}"

    def run(self, config: dict[str, Any] | None = None, **given: Any) -> penstock.Report:
        told: dict[str, Any] = {"name": "shop", "home": self.home, "daemon": False, **given}
        return penstock.run(self.source, self.lake, config=config or {}, **told)


@pytest.fixture
def api(tmp_path: Path) -> Api:
    return Api(tmp_path)


@pytest.fixture
def spark_api(tmp_path: Path, shared_spark: "SparkSession") -> Api:
    """With a Spark session that runs of this process join."""
    del shared_spark
    return Api(tmp_path)
