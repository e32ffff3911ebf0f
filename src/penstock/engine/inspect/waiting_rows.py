"""Counts the rows that a run sealed and that no destination has yet, and gives them up
(``penstock state reset --sealed``).

The next run delivers these rows as they are, before it reads. A destination connector that refuses
one refuses it in each run; after a reset the source sends them a second time. Given up, they come
from their source again, and only from there. Neighbours: ``cli.state`` prints, ``engine.inspect``'s
``states`` and ``plan_check`` show them, ``engine.log.sealed_rows`` counts.
"""

from contextlib import suppress
from pathlib import Path
from typing import Any

from penstock.config.home import Home
from penstock.config.pipeline import Pipeline
from penstock.connectors.reference import RefKind, parse_ref
from penstock.engine.inspect.pipelines import OpenPipeline
from penstock.engine.log.log import FileLog
from penstock.engine.log.sealed_rows import give_up_sealed, sealed_rows
from penstock.engine.specs.observer import counted
from penstock.errors import PenstockError, StateError
from penstock.model.catalog import StreamId, SyncMode
from penstock.store.contract import Store


def refuse(pipeline: Pipeline, known: OpenPipeline, *, yes: bool) -> None:
    """Raises ``LogError`` for a log that cannot be read, and ``StateError``
    (``state.removed_at_source``) for waiting rows of streams read by cdc, whose source may have
    removed them. ``yes``: these are given up too."""
    rows = _rows(known.store, known.name, _log(pipeline, known.home))
    modes = known.store.remembered(known.name).modes
    gone = [s for s in sorted(rows) if (m := modes.get(s)) and m.sync_mode is SyncMode.cdc]
    if gone and not yes:
        raise StateError(
            f"{', '.join(map(str, gone))}: read from a change log, which may not have these rows"
            " any more",
            code="state.removed_at_source",
            hint="with --yes they are given up, and may be lost; nothing was changed",
        )


def give_up(pipeline: Pipeline, known: OpenPipeline) -> list[dict[str, Any]]:
    """Gives up all rows that wait, except retried rejects, whatever :func:`refuse` says. Returns a
    list of ``{"namespace", "name", "rows"}``. Raises ``LogError``, ``Locked`` during a run."""
    store, log = known.store, _log(pipeline, known.home)
    with known.lease("reset") as lease:
        rows = _rows(store, known.name, log)
        give_up_sealed(store, lease, log, log.segments())
    return _listed(rows)


def _rows(store: Store, name: str, log: FileLog) -> dict[StreamId, int]:
    return sealed_rows(store, name, log, lambda _, part: not part.disposition.retried)


def is_table(pipeline: Pipeline) -> bool:
    """Returns whether the pipeline writes a table, whose rows are given up with the state only: a
    part of those that the saved state is behind may be in the table."""
    return parse_ref(pipeline.destination.use).kind is RefKind.table


def waiting(known: OpenPipeline) -> list[dict[str, Any]]:
    """Returns the rows that wait, as a list of ``{"namespace", "name", "rows"}``; empty where the
    log cannot be read, which a run reports."""
    pipeline = known.what
    if isinstance(pipeline, Pipeline):
        place = known.home.log_place(known.name, pipeline.log)
    else:
        last = known.store.remembered(known.name, ()).log
        place = known.home.log_place(known.name) if last is None else last.path
    return _listed(_of_place(known.store, known.name, place))


def _listed(rows: dict[StreamId, int]) -> list[dict[str, Any]]:
    return [{"namespace": s.namespace, "name": s.name, "rows": n} for s, n in sorted(rows.items())]


def waiting_note(pipeline: Pipeline, store: Store, home: Home) -> list[str]:
    """Returns a note about rows that the next run delivers before it reads; none where the log
    cannot be read, which the run reports."""
    rows = _of_place(store, pipeline.pipeline, home.log_place(pipeline.pipeline, pipeline.log))
    each = ", ".join(f"{counted(n, 'row')} of {s}" for s, n in sorted(rows.items()))
    waits = f"an earlier run sealed {each}: the next run delivers them as they are, first"
    return [waits] if rows else []


def _of_place(store: Store, name: str, place: str) -> dict[StreamId, int]:
    """Returns the rows that wait in a log; none where it cannot be read. Creates nothing."""
    with suppress(PenstockError, OSError):
        return {} if "://" in place else sealed_rows(store, name, FileLog(Path(place)))
    return {}


def _log(pipeline: Pipeline, home: Home) -> FileLog:
    return FileLog(home.log_folder(pipeline.pipeline, pipeline.log))
