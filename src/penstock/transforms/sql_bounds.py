"""A query of ``transform-sql`` run in bounds: of memory, of time, and until somebody wants it to
end.

DataFusion runs on threads of its own and looks up only between batches, so a query runs beside its
caller, who waits with a clock. One that is given up goes on for as long as its process lives, in
its bound of memory. Neighbours: ``sql`` says what is run.
"""

import threading
import time
from collections.abc import Callable
from typing import TypeVar

import msgspec
import pyarrow as pa
from datafusion import DataFrame, RuntimeEnvBuilder

from penstock.codec.untyped import Table

T = TypeVar("T")
_LOOK = 0.25
_TICK = 1.0
Tick = Callable[[], None]


class QueryBounds(msgspec.Struct, frozen=True, kw_only=True):
    """``memory``: bytes that its operators may hold, and as many that may come out. ``seconds``: of
    one batch."""

    memory: int = 1 << 30
    seconds: float = 300.0


class OutOfTime(Exception):
    """It took longer than its bound."""


class TooLarge(Exception):
    """More came out than its bound."""


class Failed(Exception):
    """The query failed, as ``cause`` says."""

    def __init__(self, cause: BaseException) -> None:
        super().__init__(cause)
        self.cause = cause


def environment(bounds: QueryBounds) -> RuntimeEnvBuilder:
    """A pool of memory; nothing is spilled to disk."""
    return RuntimeEnvBuilder().with_disk_manager_disabled().with_greedy_memory_pool(bounds.memory)


def collected(frame: DataFrame, bounds: QueryBounds) -> Table:
    """Its rows. Raises :class:`TooLarge`, and what DataFusion does."""
    batches: list[object] = []
    size = 0
    for found in frame.execute_stream():
        batch = found.to_pyarrow()
        size += batch.nbytes
        if size > bounds.memory:
            raise TooLarge
        batches.append(batch)
    return pa.Table.from_batches(batches, frame.schema())


def within(work: Callable[[], T], seconds: float, tick: Tick) -> T:
    """What ``work`` gives. ``tick`` is called every second while it lasts, and may raise to give it
    up. Raises :class:`Failed`, :class:`OutOfTime`, and what ``tick`` does."""
    answers: list[T] = []
    failures: list[BaseException] = []
    done = threading.Event()

    def run() -> None:
        try:
            answers.append(work())
        except BaseException as e:  # a panic of DataFusion is no ``Exception``
            failures.append(e)
        finally:
            done.set()

    threading.Thread(target=run, name="penstock-query", daemon=True).start()
    began = ticked = time.monotonic()
    while not done.wait(_LOOK):
        now = time.monotonic()
        if now - began > seconds:
            raise OutOfTime
        if now - ticked >= _TICK:
            ticked = now
            tick()
    if failures:
        raise Failed(failures[0])
    return answers[0]
