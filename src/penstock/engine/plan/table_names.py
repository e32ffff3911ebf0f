"""Names each stream's table, once: the store keeps the name for ever.

Pure functions over the pipeline file and the store's names. ``model.targets`` names a stream at the
destination, ``model.names`` cleans that name for tables. A connector gets the target itself
(``engine.plan.destination_endpoint``). Neighbours: ``engine.plan.streams`` and
``engine.plan.replan`` call; ``engine.plan.prepare`` stores the result.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from penstock.config.pipeline import Destination
from penstock.connectors.reference import RefKind, parse_ref
from penstock.model.catalog import Stream, StreamId
from penstock.model.names import clean_tables
from penstock.model.targets import KEEP, clashes, targets_of
from penstock.store.remembered import TableNames


def record_names(streams: Iterable[Stream], names: TableNames) -> dict[StreamId, str]:
    """Returns the table names of streams whose records carry a name of their own: that name, unless
    another stream has it too. ``streams``: the source's catalog; ``names``: the store's, which
    always win: a table keeps its name."""
    given = {key: names.records.get(key) for key in names.tables}
    streams = list(streams)
    found = {s.id: given.get(s.id.key) if s.id.key in given else s.record_name for s in streams}
    others = [name or _of(key).name for key, name in given.items() if _of(key) not in found]
    others += [s.record_name for s in streams if s.record_name and s.record_name != found[s.id]]
    while True:
        used = Counter(map(str.casefold, [*others, *(n or s.name for s, n in found.items())]))
        shared = [
            s
            for s, name in found.items()
            if name is not None and s.key not in given and used[name.casefold()] > 1
        ]
        if not shared:
            return {s: name for s, name in found.items() if name is not None}
        found.update(dict.fromkeys(shared))


def table_names(
    section: Destination,
    streams: Sequence[StreamId],
    names: TableNames,
    records: Mapping[StreamId, str] | None = None,
) -> TableNames:
    """Returns the table names of these streams. ``names``: the store's, which always win.
    ``records``: from :func:`record_names`."""
    targets = _targets(section, streams, records)
    before = _before(names)
    taken = {before[key]: text for key, text in names.tables.items()}
    cleaned = clean_tables(targets.values(), taken)
    return TableNames(
        tables={s.key: cleaned[target.key] for s, target in targets.items()},
        targets={s.key: target.key for s, target in targets.items() if target != s},
        records={s.key: name for s, name in (records or {}).items()},
    )


def only(names: TableNames, streams: Iterable[StreamId]) -> TableNames:
    """Returns the names of these streams only."""
    keys = {s.key for s in streams}
    return TableNames(
        tables={key: name for key, name in names.tables.items() if key in keys},
        targets={key: name for key, name in names.targets.items() if key in keys},
        records={key: name for key, name in names.records.items() if key in keys},
    )


def misnamed(
    section: Destination,
    streams: Sequence[StreamId],
    names: TableNames,
    records: Mapping[StreamId, str] | None = None,
) -> list[str]:
    """Returns a sentence for each table that would be renamed, or shared by several streams."""
    targets = _targets(section, streams, records)
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


def _targets(
    section: Destination, streams: Sequence[StreamId], records: Mapping[StreamId, str] | None
) -> dict[StreamId, StreamId]:
    if parse_ref(section.use).kind is not RefKind.table:
        return targets_of(streams, KEEP, "")
    called = {s: StreamId(s.namespace, (records or {}).get(s, s.name)) for s in streams}
    targets = targets_of(called.values(), section.namespace, section.prefix)
    return {stream: targets[name] for stream, name in called.items()}


def _before(names: TableNames) -> dict[str, str]:
    """Returns the target of each stream that has a table."""
    return {key: names.targets.get(key, key) for key in names.tables}


def _of(key: str) -> StreamId:
    return StreamId(*msgspec.json.decode(key, type=tuple[str | None, str]))
