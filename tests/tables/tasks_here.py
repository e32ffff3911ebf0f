"""Runs the process of a merge in the test's own process, where Spark's tasks are not the point."""

import importlib
import threading
from typing import Any

import msgspec

from penstock.tables.contract import LoadTasks
from penstock.tables.files.merge_job import MergeTaskJob


def run_here(module: str, job: bytes) -> bytes:
    """As ``tasks.spark_job.Submit``."""
    run: Any = importlib.import_module(module).run
    return msgspec.json.encode(run(msgspec.json.decode(job, type=MergeTaskJob), threading.Event()))


LOCAL = LoadTasks(run_here, at_once=1, token="lease", elsewhere=False, prove_lease=lambda: None)
