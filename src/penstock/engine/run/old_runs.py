"""Deletes logs and reports of a pipeline's past runs that are older than the file's ``keep``.

Rejects stay, and with them the run's entry in the store, by which ``penstock rejects`` finds them.
The newest run stays. Nothing is deleted while the log has sealed segments: a later run may still
copy their rejects. Segments and parts belong to the log (``engine.log``), and are not touched.
"""

import shutil
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from penstock.config.home import Home
from penstock.engine.inspect.runs import attempts
from penstock.engine.log.log import FileLog
from penstock.store.contract import Lease, Store

_REJECTS = "rejects"
_MOST = 1_000_000
_FIRST = datetime(1970, 1, 1, tzinfo=UTC)


def end_old_runs(
    store: Store, lease: Lease, home: Home, log: FileLog, seconds: float, now: datetime
) -> list[str]:
    """Ends runs that began more than ``seconds`` before ``now``; returns the ids of those that the
    store no longer has. Also ends runs that failed before they began, which the store never had.
    ``now``: with a zone. Raises ``StateError``, ``LeaseLost``."""
    known = store.runs(lease.pipeline, _MOST)[1:]
    before = now - timedelta(seconds=min(seconds, (now - _FIRST).total_seconds()))
    for attempt in attempts(home, lease.pipeline, _MOST):
        folder = home.runs / str(attempt["run"])
        if _began(attempt, now) < before and not (folder / _REJECTS).exists():
            shutil.rmtree(folder, ignore_errors=True)
    old = [run for run in known if run["status"] != "running" and _began(run, now) < before]
    if not old or log.segments():
        return []
    ended = [str(run["run"]) for run in old if _end_files(home.runs / str(run["run"]), run)]
    if ended:
        store.forget_runs(lease, ended)
    return ended


def _began(run: Mapping[str, Any], now: datetime) -> datetime:
    """Returns when a run began; ``now`` where no time is known."""
    try:
        began = datetime.fromisoformat(str(run["started_at"]))
    except ValueError:
        return now
    return began if began.tzinfo is not None else began.replace(tzinfo=UTC)


def _end_files(folder: Path, run: Mapping[str, Any]) -> bool:
    """Deletes a run's files except its rejects. Returns whether the run has no rejects, neither
    here nor, by its report, on another machine that ran it."""
    if not folder.is_dir():
        counts = [stream["rejected"] for stream in run["streams"]]
        return bool(counts) and not any(counts)
    with suppress(OSError):
        for entry in folder.iterdir():
            if entry.name != _REJECTS:
                _delete(entry)
        with suppress(FileNotFoundError):
            (folder / _REJECTS).rmdir()  # if it is empty
        folder.rmdir()
    return not folder.exists()


def _delete(entry: Path) -> None:
    if entry.is_dir() and not entry.is_symlink():
        shutil.rmtree(entry, ignore_errors=True)
    else:
        entry.unlink(missing_ok=True)
