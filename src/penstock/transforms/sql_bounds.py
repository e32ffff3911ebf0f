"""Runs a query of ``transform-sql`` within bounds of memory and time, and until it is cancelled.

DataFusion runs on threads of its own and checks for a cancel only between batches, so a query runs
on a separate thread while the caller waits with a deadline (L11). A query that is given up runs on
until its process ends, within its bound of memory. Not here: which query (``sql``)."""

import threading
import time
from collections.abc import Callable
from typing import TypeVar

import msgspec
import pyarrow as pa
from datafusion import DataFrame, RuntimeEnvBuilder

from penstock.codec.untyped import Table

T = TypeVar("T")
_POLL_SECONDS = 0.25
_TICK_SECONDS = 1.0
Tick = Callable[[], None]


class QueryBounds(msgspec.Struct, frozen=True, kw_only=True):
    """A query's bounds. ``memory``: bytes that its operators may allocate, and as many that its
    result may have. ``seconds``: for one batch."""

    memory: int = 1 << 30
    seconds: float = 300.0


class QueryTimeout(Exception):
    """Raised if a query takes longer than its bound."""


class ResultTooLarge(Exception):
    """Raised if a query's result is larger than its bound."""


class QueryFailed(Exception):
    """Raised if a query fails; ``cause``: DataFusion's error, or :class:`ResultTooLarge`."""

    def __init__(self, cause: BaseException) -> None:
        super().__init__(cause)
        self.cause = cause


def environment(bounds: QueryBounds) -> RuntimeEnvBuilder:
    """DataFusion's runtime with a bounded memory pool and no spilling to disk."""
    return RuntimeEnvBuilder().with_disk_manager_disabled().with_greedy_memory_pool(bounds.memory)


def collect(frame: DataFrame, bounds: QueryBounds) -> Table:
    """Runs the query and returns its rows. Raises :class:`ResultTooLarge` and DataFusion's
    errors."""
    batches: list[object] = []
    size = 0
    for result in frame.execute_stream():
        batch = result.to_pyarrow()
        size += batch.nbytes
        if size > bounds.memory:
            raise ResultTooLarge
        batches.append(batch)
    return pa.Table.from_batches(batches, frame.schema())


def run_bounded(work: Callable[[], T], seconds: float, tick: Tick) -> T:
    """Runs ``work`` on a thread and returns its result. ``tick`` is called every second meanwhile,
    and may raise to give the work up. Raises :class:`QueryFailed`, :class:`QueryTimeout`, and what
    ``tick`` raises."""
    results: list[T] = []
    failures: list[BaseException] = []
    done = threading.Event()

    def run() -> None:
        try:
            results.append(work())
        except BaseException as e:  # a panic of DataFusion is no ``Exception``
            failures.append(e)
        finally:
            done.set()

    threading.Thread(target=run, name="penstock-query", daemon=True).start()
    began = ticked = time.monotonic()
    while not done.wait(_POLL_SECONDS):
        now = time.monotonic()
        if now - began > seconds:
            raise QueryTimeout
        if now - ticked >= _TICK_SECONDS:
            ticked = now
            tick()
    if failures:
        raise QueryFailed(failures[0])
    return results[0]
