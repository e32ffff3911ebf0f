"""Reads what past runs left: reports, the end of a run's log, rejected rows.

Read only. Reports come from the store; logs and rejects from the run's folder, which is on the
machine that ran it. Neighbours: ``engine.run`` writes reports, ``engine.channel.run_log`` logs,
``engine.log.kept_rejects`` copies rejects; ``cli.runs`` prints.
"""

import os
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from penstock.config.did_you_mean import hint
from penstock.config.home import Home
from penstock.config.pipeline import StreamOptions
from penstock.engine.channel.connector_log import LogLine
from penstock.engine.log.rejects import RejectLine
from penstock.engine.log.retries import KeptReject, ids_stored, ids_tried, kept_rejects
from penstock.errors import ConfigError, LogError
from penstock.model.catalog import StreamId
from penstock.store.contract import Store

_TAIL_BYTES = 256 * 1024
_SEARCHED = 1_000_000  # newest runs in which a run's id is looked up


ATTEMPT, LOG = "attempt.json", "log.jsonl"


def runs(store: Store, home: Home, pipeline: str | None, limit: int = 100) -> list[dict[str, Any]]:
    """Returns reports, newest first, including those of runs that failed before they began. A run
    without an end has status ``running``, or ``failed`` where its process is gone."""
    tried = {r["run"]: r for r in attempts(home, pipeline, limit)}
    known = [r for r in store.runs(pipeline, limit) if r["run"] not in tried]
    found = sorted([*known, *tried.values()], key=_began, reverse=True)
    return found[:limit]


def has_attempts(home: Home, pipeline: str) -> bool:
    """Whether a run of the pipeline failed before it began."""
    return next(attempts(home, pipeline, 1), None) is not None


def _began(report: dict[str, Any]) -> tuple[str, str]:
    return report["started_at"], report["run"]


def attempts(home: Home, pipeline: str | None, limit: int) -> Iterator[dict[str, Any]]:
    """Yields the newest runs of this machine that failed before they began, newest first."""
    found = 0
    for name in sorted(os.listdir(home.runs), reverse=True):
        try:
            report: dict[str, Any] = msgspec.json.decode((home.runs / name / ATTEMPT).read_bytes())
        except (OSError, msgspec.DecodeError):
            continue  # a run that began, or one that is being written
        if pipeline in (None, report["pipeline"]):
            yield report
            found += 1
        if found >= limit:
            return


def one_run(store: Store, home: Home, pipeline: str | None, run: str, lines: int) -> dict[str, Any]:
    """Returns a run's report with the additional key ``log_lines``: the last ``lines`` of its log.
    Raises ``ConfigError`` (``config.unknown_run``)."""
    known = runs(store, home, pipeline, _SEARCHED)
    found = next((r for r in known if r["run"] == run), None)
    if found is None:
        of = f" of pipeline {pipeline!r}" if pipeline else ""
        raise ConfigError(
            f"there is no run {run!r}{of}",
            code="config.unknown_run",
            hint=hint(run, [str(r["run"]) for r in known], "runs"),
        )
    return {**found, "log_lines": log_tail(log_path(home, found), lines)}


def log_path(home: Home, report: dict[str, Any]) -> Path:
    """Returns the path of a run's log, which a report names relative to the home or as an absolute
    path."""
    named = report.get("log")
    return home.path / named if named else home.run(str(report["run"])) / LOG


def log_tail(path: Path, lines: int) -> list[dict[str, Any]]:
    """Returns the last lines of a log (within 256 KiB), oldest first: ``{"at", "level", "origin",
    "message"}``. Empty where this machine has no such log."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - _TAIL_BYTES))
            raw = file.read(_TAIL_BYTES)
    except OSError:
        return []
    whole = raw.split(b"\n")[1 if size > _TAIL_BYTES else 0 :]
    kept: deque[dict[str, Any]] = deque(maxlen=lines)
    for line in whole:
        try:
            kept.append(msgspec.to_builtins(msgspec.json.decode(line, type=LogLine)))
        except msgspec.DecodeError:
            continue  # a line that is still being written
    return list(kept)


def runs_with_rejects(store: Store, pipeline: str, run: str | None) -> list[str]:
    """Returns the runs of a pipeline whose folders may have rejects, newest first. Raises
    ``ConfigError`` (``config.unknown_run``) where ``run`` is not one of them."""
    known = [str(r["run"]) for r in store.runs(pipeline, _SEARCHED)]
    if run is not None and run not in known:
        raise ConfigError(
            f"there is no run {run!r} of pipeline {pipeline!r}",
            code="config.unknown_run",
            hint=hint(run, known, "runs"),
        )
    return known


def earlier_reject_folders(store: Store, home: Home, pipeline: str, run: str) -> list[Path]:
    """Returns the folders of rejects of a pipeline's runs but ``run``, newest first."""
    known = runs_with_rejects(store, pipeline, None)
    return [home.run(each) / "rejects" for each in known if each != run]


def rejects(
    store: Store,
    home: Home,
    pipeline: str,
    *,
    run: str | None = None,
    stream: StreamOptions | None = None,
) -> Iterator[dict[str, Any]]:
    """Yields ``{"run", "stream", "reason", "field", "bytes", "at", "namespace", "name", "encoding",
    "file", "key", "attempt", "id", "retried"}`` for each reject of this machine's runs, newest run
    first; where several runs kept a copy of a reject, the newest one. ``bytes`` is the record as
    text, or as base64 where ``encoding`` is ``base64``; ``file``: a file that has the whole record;
    ``retried``: the run that retried it. Raises ``ConfigError`` for an unknown run, ``LogError``
    for a damaged file."""
    known = runs_with_rejects(store, pipeline, run)
    tried = ids_stored(store.remembered(pipeline, ()).tried.values())
    tried |= {id_: each for each in known for id_ in ids_tried(home.run(each) / "rejects")}
    seen: set[str] = set()
    for each in [run] if run is not None else known:
        for path in reject_files(home.run(each) / "rejects"):
            if path.name in seen:
                continue
            seen.add(path.name)
            for kept in rejects_of(each, path):
                if _wanted(kept.line, stream):
                    yield {**_shown(each, kept.line), "id": kept.id, "retried": tried.get(kept.id)}


def reject_files(folder: Path) -> list[Path]:
    """Returns the files of rejects in a run's folder, in the order in which they were written."""
    return sorted(folder.glob("*.jsonl"))


def rejects_of(run: str, path: Path) -> Iterator[KeptReject]:
    """Yields the rejects of a file. Raises ``LogError``, naming it, where it is damaged."""
    try:
        yield from kept_rejects(run, path)
    except (OSError, msgspec.DecodeError) as error:
        raise LogError(
            f"the file of rejects {path} cannot be read: {error}",
            code="log.corrupt",
            where=str(path),
            hint="the table is not affected; move the file away to see the other rejects",
        ) from None


def _wanted(reject: RejectLine, stream: StreamOptions | None) -> bool:
    if stream is None:
        return True
    return reject.name is not None and stream.matches(StreamId(reject.namespace, reject.name))


def _shown(run: str, reject: RejectLine) -> dict[str, Any]:
    known = None if reject.name is None else StreamId(reject.namespace, reject.name)
    return {
        "run": run,
        "stream": None if known is None else str(known),
        "reason": reject.reason,
        "field": reject.field,
        "bytes": reject.body,
        "at": reject.at,
        "namespace": reject.namespace,
        "name": reject.name,
        "encoding": reject.encoding,
        "file": reject.file,
        "key": reject.key,
        "attempt": reject.attempt,
    }
