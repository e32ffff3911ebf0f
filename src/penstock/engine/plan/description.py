"""Describes planned streams as ``penstock plan`` prints them.

Pure. Neighbours: ``engine.plan.streams`` makes the plan; ``engine.inspect.plan_check`` puts the
description into its answer. Not here: how the answer is shown (``cli``).
"""

from collections.abc import Callable
from typing import Any

import msgspec

from penstock.engine.plan.streams import StreamsPlan
from penstock.engine.specs.plan import PlannedStream
from penstock.model.type_words import type_text
from penstock.model.types import Field
from penstock.short_texts import bounded, named
from penstock.tables.contract import PlannedDestination
from penstock.tables.load_way import PlannedWay


def describe(
    plan: StreamsPlan,
    destination: PlannedDestination,
    target: Callable[[PlannedStream], str] | None = None,
    way: Callable[[PlannedStream], PlannedWay | None] = lambda _: None,
) -> list[dict[str, Any]]:
    """Returns the ``streams`` of ``penstock plan``. ``target``: names what a destination connector
    writes a stream to; ``table`` and ``target`` are then as in a report. ``way``: how a stream's
    loads go into its table. ``columns_known``: false where the result of a query decides the
    columns, or Spark finds them as it reads the source. Long names are cut (``short_texts``)."""
    return [
        {
            "namespace": None if s.id.namespace is None else named(s.id.namespace),
            "name": named(s.id.name),
            "sync_mode": s.configured.sync_mode.value,
            "destination_sync_mode": s.disposition.mode.value,
            "mode_reason": s.configured.mode_reason,
            "newest_by": s.newest_by if target is None else _by_destination(s),
            "history": s.disposition.history,
            "cursor_field": [named(n) for n in s.configured.cursor_field],
            "primary_key": [[named(n) for n in p] for p in s.configured.primary_key],
            "lane": s.lane,
            "shards": s.shards,
            "hints": [msgspec.to_builtins(h) for h in s.hints],
            "table": None if target is not None else destination.location(s.table),
            "target": None if target is None else named(target(s)),
            "retry_rejected": s.retry_rejected,
            "undeclared": s.undeclared.value,
            "transformed": s.given is not None,
            "loads": "at the end of the sync" if s.deferred else "while the source reads",
            **_load_way(way(s)),
            "columns_known": _are_known(s),
            "columns": [
                {
                    "name": f.name,
                    "source": named(f.source),
                    "type": bounded(type_text(f.type)),
                    **_declared(s, f),
                }
                for f in (s.schema.fields if _are_known(s) else ())
            ],
        }
        for s in plan.streams
    ]


def _declared(stream: PlannedStream, field: Field) -> dict[str, str]:
    """Returns the source's type of a column that the table has with another type."""
    type_ = stream.declared.get(field.source)
    return {} if type_ is None else {"declared": bounded(type_text(type_))}


def _are_known(stream: PlannedStream) -> bool:
    """Returns whether the plan has the columns; not those of what Spark reads, before a run."""
    found = stream.configured.stream
    return not (stream.queried or (found.assumed and found.compared))


def _load_way(way: PlannedWay | None) -> dict[str, str | None]:
    if way is None:
        return {"load_way": None, "load_reason": None}
    return {"load_way": way.way and way.way.value, "load_reason": way.reason}


def _by_destination(stream: PlannedStream) -> dict[str, Any] | None:
    """As ``newest_by``, for a destination connector: it gets the cursor, and decides itself."""
    return None if stream.newest_by is None else {"by": "destination", "field": []}
