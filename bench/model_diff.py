"""Seconds that Spark needs to tell which of a million rows changed: ``python bench/model_diff.py``.

Two runs of a model of ``--rows`` rows into a table: all of them, then the same with ``--changed``
per cent changed. Printed is what the second one's comparison took, the whole run beside it.
"""

import argparse
import tempfile
import time
from pathlib import Path

from penstock.config.command_line import pipeline_from_arguments
from penstock.config.home import Home
from penstock.engine.run import run_pipeline
from penstock.engine.sync import model_rows

QUERY = (
    "spark:SELECT id, concat('user', id, '@example.com') AS email, id % 97 AS plan, "
    "CAST(id * 1.25 AS DECIMAL(18, 2)) AS amount, timestamp_micros(id * 1000000) AS seen, "
    "CASE WHEN id % {step} = 0 THEN '{word}' ELSE 'same' END AS word FROM range({rows})"
)


class Quiet:
    """A run's observer that says nothing."""

    def __getattr__(self, name: str) -> object:
        return lambda *_: None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--changed", type=float, default=1.0, help="per cent")
    told = parser.parse_args()
    seconds: list[float] = []
    stage = model_rows.ModelRows._staged

    def timed(*args: object) -> object:
        began = time.monotonic()
        try:
            return stage(*args)
        finally:
            seconds.append(time.monotonic() - began)

    model_rows.ModelRows._staged = timed
    with tempfile.TemporaryDirectory() as folder:
        for word in ("first", "second"):
            query = QUERY.format(rows=told.rows, step=int(100 / told.changed), word=word)
            pipeline = pipeline_from_arguments(
                query, f"delta:{folder}/lake", mode="upsert", primary_key="id", name="bench"
            )
            began = time.monotonic()
            report = run_pipeline(pipeline, Home(Path(folder) / "home"), observer=Quiet())
            assert report.exit_code == 0, report.error
            print(
                f"{word}: {report.streams[0].read:,} of {told.rows:,} rows sent, diff "
                f"{seconds[-1]:.1f} s, run {time.monotonic() - began:.1f} s"
            )


if __name__ == "__main__":
    main()
