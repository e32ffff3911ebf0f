"""``spark.read.format("penstock")`` and ``df.write.format("penstock")`` in a user's program: a
connector runs once for a ``load()``, whatever Spark tries again (docs/python.md)."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import types as T

import warm_spark
from penstock.api.spark_source import PenstockSource
from penstock.errors import ConfigError

HERE = Path(__file__).parent


@pytest.mark.spark
def test_a_connector_runs_once_and_only_counted_attempts_are_written(tmp_path: Path) -> None:
    command = [sys.executable, str(HERE / "as_a_format.py"), str(tmp_path)]
    command.append(str(HERE.parent / "stubs" / "stub_source.py"))
    environ = warm_spark.as_environment()  # for the runs of Spark's tasks; its own Java is another
    done = subprocess.run(command, capture_output=True, text=True, timeout=540, env=environ)
    assert done.returncode == 0, done.stderr[-4000:]
    said = json.loads(done.stdout)
    assert "seq" in said["columns"] and "_airbyte_raw_id" in said["columns"]
    assert said["sums"][0] == said["sums"][1] and said["union"] == 40 and said["retried"] == 20
    assert said["reads"] == 1  # three actions, a retry
    assert said["written"] == [*range(100)]  # an attempt failed after it had written rows
    assert said["frames"] == 0
    for name, says in {
        "no_stream": "nosuch",
        "missing": "'stream' is missing",
        "unknown": "did you mean 'config'?",
        "schema": "takes no schema",
        "no_key": "primary",
    }.items():
        assert says in said[name], said[name]
    assert "hidden-word" not in said["plan"]
    assert "hidden-word" not in done.stderr


@pytest.mark.parametrize(
    "kind", [T.DayTimeIntervalType(), T.YearMonthIntervalType(), T.VariantType()]
)
def test_types_that_would_come_as_others_are_refused(tmp_path: Path, kind: T.DataType) -> None:
    """An interval would be a column of integers, a variant one of its bytes."""
    told = {"destination": "parquet:lake", "stream": "s", "home": str(tmp_path)}
    for column in (kind, T.ArrayType(kind)):
        schema = T.StructType().add("id", T.LongType()).add("gap", column)
        with pytest.raises(ConfigError, match="'gap'") as refused:
            PenstockSource(told).writer(schema, False)
        assert refused.value.code == "spark.type"


def test_streaming_is_refused_with_what_to_use_instead() -> None:
    source = PenstockSource({})
    for work in (
        lambda: source.streamReader(T.StructType()),
        lambda: source.streamWriter(T.StructType(), False),
    ):
        with pytest.raises(ConfigError) as refused:
            work()
        assert refused.value.code == "spark.streaming" and "penstock." in (refused.value.hint or "")
