"""Runs the process of a merge in the test's own process, where Spark's tasks are not the point."""

import importlib
import threading
from typing import Any

import msgspec

from penstock.tables.contract import LoadResult, LoadTasks
from penstock.tables.files.merge_job import MergeTaskJob


def run_here(module: str, job: bytes) -> bytes:
    """As ``tasks.spark_job.Submit``."""
    run: Any = importlib.import_module(module).run
    return msgspec.json.encode(run(msgspec.json.decode(job, type=MergeTaskJob), threading.Event()))


LOCAL = LoadTasks(run_here, at_once=1, token="lease", elsewhere=False, prove_lease=lambda: None)


def by_spark(outcome: LoadResult, reason: str = "") -> LoadResult:
    """The outcome of a load that Spark itself wrote, without the line that says so and why."""
    noted = [note for note in outcome.notes if "a Spark query, not a task, wrote loads" in note]
    assert len(noted) == 1 and reason in noted[0], outcome
    notes = tuple(note for note in outcome.notes if note not in noted)
    return msgspec.structs.replace(outcome, notes=notes)
