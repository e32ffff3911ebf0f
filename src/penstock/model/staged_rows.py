"""Defines what a Spark job has written for a lane to read in place of a connector's messages.

Data only. Neighbours: ``engine.sync.model_rows`` has it written, ``protocols.spark`` reads it.
"""

import msgspec

KEY = "staged"
"""Where :class:`StagedRows` stands in the configuration of a lane that reads one."""


class StagedRows(msgspec.Struct, frozen=True, kw_only=True):
    """``files``: Parquet files, in the order in which their rows are read; their columns are called
    by position (``c0``, ``c1``, ...) and are those of ``columns``, the original names.
    ``required``: of these, the columns that Spark says are never null. ``state``: the one that
    holds once all of them are committed; None: none. ``at``: when they were read, epoch
    milliseconds."""

    files: tuple[str, ...]
    columns: tuple[str, ...]
    at: int
    required: tuple[str, ...] = ()
    state: str | None = None
