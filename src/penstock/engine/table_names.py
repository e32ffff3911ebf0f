"""What each stream's table is called: decided once, kept by the store for ever.

Pure functions over the pipeline file and the names that the store has. ``model.targets`` says what
a stream is called at the destination, ``model.names`` makes a name of it that every table can
carry. A connector gets the target itself (``engine.ends``). Neighbours: ``engine.plan`` and
``engine.planner`` ask; ``engine.preparation`` keeps the answer.
"""

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from penstock.config.pipeline import Destination
from penstock.connectors.reference import RefKind, parse_ref
from penstock.model.catalog import StreamId
from penstock.model.names import clean_tables
from penstock.model.targets import KEEP, clashes, targets_of

TABLES, TARGETS = "tables", "targets"
"""Kinds of the store's names: the table of a stream; its target, where that is not its own name."""


class TableNames(msgspec.Struct, frozen=True):
    """Both by ``StreamId.key``. ``tables``: see ``clean_tables``. ``targets``: of every stream."""

    tables: dict[str, str]
    targets: dict[str, str]

    def kept(self, streams: Iterable[StreamId]) -> dict[str, dict[str, str]]:
        """What the store is to remember of these streams."""
        keys = [s.key for s in streams]
        kept = {TABLES: {key: self.tables[key] for key in keys}}
        renamed = {key: self.targets[key] for key in keys if self.targets[key] != key}
        return {**kept, TARGETS: renamed} if renamed else kept


def table_names(
    told: Destination,
    streams: Sequence[StreamId],
    names: Mapping[str, Mapping[str, str]],
) -> TableNames:
    """``names``: the store's, which always win."""
    targets = _targets(told, streams)
    before = _before(names)
    taken = {before[key]: text for key, text in names.get(TABLES, {}).items()}
    cleaned = clean_tables(targets.values(), taken)
    return TableNames(
        tables={s.key: cleaned[target.key] for s, target in targets.items()},
        targets={s.key: target.key for s, target in targets.items()},
    )


def misnamed(
    told: Destination,
    streams: Sequence[StreamId],
    names: Mapping[str, Mapping[str, str]],
) -> list[str]:
    """A sentence for each table that would move, or be that of several streams."""
    targets = _targets(told, streams)
    before = _before(names)
    owners = {target: key for key, target in before.items()}
    problems = clashes(targets)
    for stream, target in targets.items():
        had, owner = before.get(stream.key), owners.get(target.key)
        if had is not None and had != target.key:
            problems.append(
                f"the table of stream {stream} is that of {str(_of(had))!r} at the destination and "
                f"cannot become {str(target)!r}: leave destination.namespace and "
                "destination.prefix as they were, or give the pipeline another name"
            )
        elif owner is not None and owner != stream.key:
            problems.append(
                f"stream {stream} would be {str(target)!r} at the destination, which is the table "
                f"of stream {_of(owner)}"
            )
    return problems


def _targets(told: Destination, streams: Sequence[StreamId]) -> dict[StreamId, StreamId]:
    if parse_ref(told.use).kind is not RefKind.table:
        return targets_of(streams, KEEP, "")
    return targets_of(streams, told.namespace, told.prefix)


def _before(names: Mapping[str, Mapping[str, str]]) -> dict[str, str]:
    """The target of each stream that has a table."""
    renamed = names.get(TARGETS, {})
    return {key: renamed.get(key, key) for key in names.get(TABLES, {})}


def _of(key: str) -> StreamId:
    return StreamId(*msgspec.json.decode(key, type=tuple[str | None, str]))
