"""Defines ``penstock.write``: writes the rows of a DataFrame to any destination, by a normal run.

The rows are a model (``spark:``), so the rules of queries apply: staged once, then transforms,
rejects, acks and report. A Spark DataFrame is read as a global view, which a session of the run's
own on the same Spark can see; other tables as a Parquet file. Not here: the run (``engine``).
Neighbours: ``frames`` makes the file, ``verbs``.
"""

import secrets
import shutil
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

import msgspec

from penstock.api.frames import untyped_fields
from penstock.api.handed_rows import stage
from penstock.api.pipelines import pipeline_of
from penstock.api.showing import shown
from penstock.api.staging import staging_folder
from penstock.api.value_kinds import unfit
from penstock.api.verbs import (
    RunKeywords,
    agree,
    explained,
    home_of,
    options_of,
    split,
    stoppable,
    succeeded,
)
from penstock.config.home import Home
from penstock.config.modes import mode as modes_of
from penstock.config.pipeline import Pipeline
from penstock.errors import ConfigError, DestinationError
from penstock.model.catalog import DestinationSyncMode, StreamId
from penstock.model.report import Report
from penstock.runtimes.owner import this_owner

if TYPE_CHECKING:
    from penstock.spark.model import Model

_SOURCE = "spark:dataframe"  # what the pipeline's state is keyed by
_ROWS = "rows"
_MODES = {
    "append": "append",
    "overwrite": "overwrite",
    "upsert": "append_dedup",
}


class ParquetRows(msgspec.Struct, frozen=True):
    """Rows in existing Parquet files (``spark_source``): all files of ``folder``."""

    folder: Path


@explained
def write(
    rows: Any,
    destination: str,
    stream: str,
    *,
    allow_empty: bool = False,
    **given: Unpack[RunKeywords],
) -> Report:
    """Writes rows to a destination connector or table, as the stream ``stream``, and returns the
    run's report. ``rows``: a DataFrame (Spark, pandas, Polars), an Arrow table or reader, or a list
    or generator of dicts or of tables.

    ``config``: the destination's. ``mode``: ``append`` (the default); ``overwrite``: the rows
    replace the stream's; ``upsert``: they replace those with the same ``primary_key``; ``insert``,
    ``update`` or ``mirror``: write only rows that differ from those that this ``name`` wrote
    before. ``allow_empty``: a mirror of no rows removes all that were written, and an overwrite by
    a reader or generator that gives no rows empties the table. Other keywords as for ``run``.
    Raises ``PenstockError``; ``Locked`` while another write of the name runs."""
    changes, how = split(given)
    name = changes.pop("name", None)
    changes["destination_config"] = changes.get("config", {})
    changes["config"] = {"stream": stream, "allow_empty": allow_empty}
    mode = changes.pop("mode", "append")
    if mode in _MODES:
        changes["destination_sync_mode"] = _MODES[mode]
    else:
        changes["mode"] = mode
    pipeline = pipeline_of(_SOURCE, destination, options_of(changes))
    _refuse_keyless(pipeline, stream, mode)
    own = name or f"write-{stream}-{pipeline.pipeline}"
    pipeline = msgspec.structs.replace(pipeline, pipeline=own)
    home = home_of(how)
    agree(pipeline, home, yes=how.get("yes", False))
    with (
        _model(rows, stream, home, may_be_empty=allow_empty or not _replaces(mode)) as model,
        shown(how.get("progress"), pipeline.secret_values) as observer,
        stoppable() as cancel,
    ):
        from penstock.engine.run.start import run_pipeline

        report = run_pipeline(
            pipeline, home, observer=observer, daemon=True, cancel=cancel, model=model,
            yes=how.get("yes", False),
        )  # fmt: skip
    return _read(succeeded(report))


def _read(report: Report) -> Report:
    """Returns the report, unless these rows were not even read: the next run cannot read them,
    unlike a source's."""
    if any(stream.attempts for stream in report.streams):
        return report
    error = DestinationError(
        "these rows were not written: the destination halted before it took all rows of an "
        "earlier write of this name",
        code="destination.halted",
        hint="these rows are not kept: write them again once the destination takes rows",
    )
    error.report = report
    raise error


def _refuse_keyless(pipeline: Pipeline, stream: str, mode: str) -> None:
    """Raises ``ConfigError`` before Spark starts, as the run's plan would do after it."""
    settings = pipeline.stream_settings(StreamId(None, stream))
    keyed = modes_of(mode).destination_sync_mode is DestinationSyncMode.append_dedup
    if keyed and not (settings and settings.primary_key):
        raise ConfigError(
            f"mode {mode!r} needs a primary_key",
            code="write.primary_key",
            hint='give the columns that identify a row, as primary_key=["id"], or use append',
        )


def _replaces(mode: str) -> bool:
    modes = modes_of(mode)
    return modes.replaces or modes.destination_sync_mode is DestinationSyncMode.overwrite


@contextmanager
def _model(rows: Any, stream: str, home: Home, *, may_be_empty: bool) -> "Generator[Model]":
    """Yields what Spark reads: the view of a Spark DataFrame, or the file of other rows. Raises
    ``ConfigError`` (``write.rows``) where an object that can be read once gives no rows, unless
    ``may_be_empty``: the program may have read it already."""
    from penstock.spark.model import HANDED_OVER, Model

    if hasattr(rows, "createOrReplaceGlobalTempView"):
        view = f"penstock_{secrets.token_hex(8)}"
        try:
            rows.createOrReplaceGlobalTempView(view)
        except Exception as failure:  # py4j's and gRPC's errors have no common base
            raise ConfigError(
                "this DataFrame cannot be read: was its Spark session stopped?",
                code="write.rows",
                hint="make the DataFrame again, in a session that is open",
            ) from failure
        try:
            yield Model(name=stream, query=f"SELECT * FROM global_temp.{view}", where=HANDED_OVER)
        finally:
            with suppress(Exception):
                rows.sparkSession.catalog.dropGlobalTempView(view)
        return
    if isinstance(rows, ParquetRows):
        untyped = untyped_fields(rows.folder)
        yield Model(
            name=stream, format="parquet", path=str(rows.folder), untyped=untyped, where=HANDED_OVER
        )
        return
    folder = staging_folder(home, this_owner()).within(_ROWS).path
    try:
        staged = stage(rows, folder)
        if staged.once and not staged.rows and not may_be_empty:
            raise unfit(
                f"this {type(rows).__name__} gave no rows: the table would be emptied",
                "it can be read once: make it again; allow_empty=True empties the table",
            )
        yield Model(
            name=stream,
            format="parquet",
            path=str(folder),
            untyped=staged.untyped,
            where=HANDED_OVER,
        )
    finally:
        shutil.rmtree(folder.parent, ignore_errors=True)
