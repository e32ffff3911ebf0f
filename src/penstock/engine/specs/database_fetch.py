"""Defines the job of a task that writes the rows of a database's query to files, which Spark then
compares with those that were sent before, or shows, and its result.

The job holds the database's password (see ``specs.lane``). Neighbours:
``engine.query.query_reader`` has it done, ``engine.worker.database_files`` does it.
"""

from typing import Any

import msgspec

from penstock.model.database_query import DatabaseRead
from penstock.model.types import Field


class FetchJob(msgspec.Struct, frozen=True, kw_only=True):
    """``folder``: where a new folder is made for the files. ``run``, ``log_root``: of the run, with
    which the task ends."""

    run: str
    log_root: str
    folder: str
    read: DatabaseRead


class FetchResult(msgspec.Struct, frozen=True, kw_only=True):
    """``folder``: of Parquet files whose columns are called ``c0``, ``c1``, ... ``fields``: the
    columns. ``error``: of a read that failed (``PenstockError.as_dict``)."""

    folder: str = ""
    fields: tuple[Field, ...] = ()
    error: dict[str, Any] | None = None
