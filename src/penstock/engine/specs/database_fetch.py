"""Defines the job and the result of a task that writes the rows of a database's query to files.
Spark then compares them with the rows sent before, or shows them.

The job holds the database's password (see ``specs.lane``). Neighbours:
``engine.query.query_reader`` orders it, ``engine.worker.database_files`` does it.
"""

from typing import Any

import msgspec

from penstock.model.database_query import DatabaseRead
from penstock.model.types import Field


class FetchJob(msgspec.Struct, frozen=True, kw_only=True):
    """The job. ``folder``: where a new folder for the files is made. ``run``, ``log_root``: of the
    run, with which the task ends."""

    run: str
    log_root: str
    folder: str
    read: DatabaseRead


class FetchResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result. ``folder``: of Parquet files with the columns ``c0``, ``c1``, ... ``fields``: the
    columns. ``error``: of a failed read (``PenstockError.as_dict``)."""

    folder: str = ""
    fields: tuple[Field, ...] = ()
    error: dict[str, Any] | None = None
