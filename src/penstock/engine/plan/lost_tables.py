"""Finds tables that lack loads which the ledger committed before a run: they were moved or deleted,
or belong to another home (L3). Notes tables that exist though the store has no load of them, and
finds those whose rows of another pipeline a run would replace.

Reads the load numbers that the tables store, without Spark. Not here: the comparison that each load
makes again (``tables.contract.already_committed``), which folder a pipeline means (``place``).
Neighbours: ``place``, ``engine.run`` and ``engine.inspect.plan_check`` call.
"""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from penstock.config.home import Home
from penstock.config.pipeline import Pipeline
from penstock.engine.channel.named_pipeline import run_command, state_command
from penstock.engine.plan.destination import table_of
from penstock.engine.specs.plan import PlannedStream
from penstock.errors import ConfigError, DestinationError
from penstock.model.catalog import DestinationSyncMode, StreamId
from penstock.model.names import split_table
from penstock.store.contract import ExpectedLoad, Store
from penstock.tables.contract import TableFormat, TableName

Expected = Mapping[StreamId, ExpectedLoad]
_REPORTS = 20  # how many of the newest runs are searched for the tables' last folder


class Lake:
    """The tables of a pipeline in one folder, whether or not they exist there. ``path``: the
    folder, absolute."""

    def __init__(self, pipeline: Pipeline, path: str, store: Store) -> None:
        config = {**pipeline.destination.config, "path": path}
        destination = replace(pipeline.destination, config=config)
        self.path = path
        self._tables: TableFormat = table_of(replace(pipeline, destination=destination))
        self._names = store.remembered(pipeline.pipeline, ()).tables.tables

    def numbers(self, expected: Expected) -> dict[StreamId, int | None]:
        """Returns the number of the last load in each stream's table, as
        ``TableFormat.last_number``."""
        return {
            stream: self._tables.last_number(self._table(stream), load.key)
            for stream, load in expected.items()
            if stream.key in self._names
        }

    def has_any(self, expected: Expected) -> bool:
        """Whether a table has the ledger's last number, or can only be read with Spark."""
        found = self.numbers(expected)
        return any(n is None or n >= expected[s].number for s, n in found.items())

    def has_all(self, expected: Expected) -> bool:
        """Whether there are tables, and each provably has the ledger's last number."""
        found = self.numbers(expected)
        return bool(found) and all(
            n is not None and n >= expected[s].number for s, n in found.items()
        )

    def exists(self, stream: StreamId) -> bool:
        """Whether anything exists at the path of the stream's table."""
        return os.path.exists(self._tables.location(self._table(stream)))

    def has_files(self, table: TableName) -> bool:
        """Whether anything is in the folder of ``table``."""
        try:
            return any(os.scandir(self._tables.location(table)))
        except OSError:
            return False

    def _table(self, stream: StreamId) -> TableName:
        return TableName(*split_table(self._names[stream.key]))


def lost_tables(
    pipeline: Pipeline, store: Store, home: Home, planned: Sequence[PlannedStream]
) -> list[str]:
    """Returns the problems of tables that would refuse the loads of these streams: they lack the
    ledger's last loads, or have another home's. Skips tables that the run replaces, and those that
    can only be read with Spark."""
    if pipeline.place is None or pipeline.place.lake is None:
        return []
    waits = {load.stream for g in store.open_groups(pipeline.pipeline) for load in g.loads}
    wanted = _of_run(pipeline, store, planned)
    found = Lake(pipeline, pipeline.place.lake, store).numbers(wanted)
    known = {s: n for s, n in found.items() if n is not None}
    behind = [s for s, n in known.items() if n < wanted[s].number]
    ahead = [s for s, n in known.items() if n > wanted[s].number and s not in waits]
    problems = [_lost(pipeline, store, home, behind)] if behind else []
    if ahead:
        adopt = state_command("adopt", pipeline, home)
        problems.append(
            f"{_named(ahead, 'has', 'have')} loads that this home did not begin, in "
            f"{pipeline.place.lake}: this home is a copy or was restored, or another home loaded "
            f"later. Go on with the newer home; or `{adopt}` takes the tables as they are, and "
            "rows beyond this home's states come again"
        )
    return problems


def refuse_moved(
    pipeline: Pipeline, store: Store, home: Home, planned: Sequence[PlannedStream]
) -> None:
    """Raises ``DestinationError`` (``destination.table_behind``), before anything is read, where
    the pipeline means another folder than before and none of the run's tables is there."""
    lake, old = pipeline.place and pipeline.place.lake, old_lake(pipeline, store)
    if lake is None or old is None or old == lake:
        return
    wanted = _of_run(pipeline, store, planned)
    if wanted and not Lake(pipeline, lake, store).has_any(wanted):
        raise DestinationError(
            _lost(pipeline, store, home, list(wanted)),
            code="destination.table_behind",
            where=lake,
            hint="nothing was read, loaded or marked",
        )


def found_tables(pipeline: Pipeline, store: Store, planned: Sequence[PlannedStream]) -> list[str]:
    """Returns notes on the tables, in local folders, that exist before this pipeline's first load:
    those of another pipeline, of another home of this one, or of another program."""
    if pipeline.place is None or pipeline.place.lake is None:
        return []
    path, expected = pipeline.place.lake, store.expected_loads(pipeline.pipeline)
    lake, known = Lake(pipeline, path, store), store.remembered(pipeline.pipeline, ()).tables.tables
    found: dict[str, list[StreamId]] = {}
    for stream in planned:
        new = stream.id not in expected and stream.id.key not in known
        if new and lake.has_files(stream.table):
            found.setdefault(_what_becomes(stream), []).append(stream.id)
    return [
        f"{_named(streams, 'exists', 'exist')} in {path}, and this home knows no load of this "
        f"pipeline there: {what}. Another `path:` keeps the rows apart"
        for what, streams in found.items()
    ]


def _what_becomes(stream: PlannedStream) -> str:
    if stream.replaces_table:
        return "the rows there are replaced"
    if stream.disposition.mode is DestinationSyncMode.append_dedup:
        return "the rows there stay, and those of a key that comes are replaced"
    return "the rows there stay, and rows are added"


def replaced_rows(
    pipeline: Pipeline,
    store: Store,
    home: Home,
    planned: Sequence[PlannedStream],
    location: Callable[[TableName], str],
) -> ConfigError | None:
    """Returns the error (``config.other_pipeline``) where this pipeline's first load of a table
    would replace rows that another pipeline of this store committed: that one continues from its
    state, and never reads them again. None: there are no such tables. ``location``: of a table, as
    reports name it."""
    expected = store.expected_loads(pipeline.pipeline)
    firsts = {
        place: s.id
        for s in planned
        if s.replaces_table and s.id not in expected and _may_be_there(place := location(s.table))
    }
    if firsts:  # a reset pipeline has no loads that are expected, and wrote the table all the same
        for each in _reported_streams(store, pipeline.pipeline):
            if each.get("written"):
                firsts.pop(str(each.get("table")), None)
    if not firsts:
        return None
    wrote = {
        name: streams
        for name in store.pipelines()
        if name != pipeline.pipeline and (streams := _written_by(store, name, firsts))
    }
    if not wrote:
        return None
    streams = sorted({s for found in wrote.values() for s in found}, key=lambda s: s.key)
    others = f"the pipeline{'s' if len(wrote) > 1 else ''} {', '.join(map(repr, wrote))}"
    again = run_command(pipeline, home, "--yes")
    replaces = "The same run with `--yes`" if again is None else f"`{again}`"
    return ConfigError(
        f"{_named(streams, 'has', 'have')} rows of {others}, which this run would replace: whoever "
        "wrote them continues from its state and does not read them again",
        code="config.other_pipeline",
        hint="write another `path:`, `namespace:` or `prefix:` to keep the rows apart. "
        f"{replaces} replaces them; a run of the other pipeline with `--recreate` brings its rows "
        "back",
    )


def _reported_streams(store: Store, pipeline: str) -> Iterator[dict[str, Any]]:
    """Yields the streams in the reports of the newest runs."""
    for report in store.runs(pipeline, _REPORTS):
        yield from report.get("streams") or ()


def _may_be_there(place: str) -> bool:
    """False for a folder that does not exist; True for a table that only Spark can reach."""
    return not os.path.isabs(place) or os.path.exists(place)


def _written_by(store: Store, other: str, tables: Mapping[str, StreamId]) -> list[StreamId]:
    """Returns the streams of ``tables`` into whose table the other pipeline committed loads."""
    loaded, found = store.expected_loads(other), set[StreamId]()
    if loaded:
        for each in _reported_streams(store, other):
            written = StreamId(each.get("namespace"), each["name"]) in loaded
            if written and each.get("table") in tables:
                found.add(tables[each["table"]])
    return sorted(found, key=lambda s: s.key)


def old_lake(pipeline: Pipeline, store: Store) -> str | None:
    """Returns the folder that the pipeline's tables were in; None: unknown."""
    known = store.remembered(pipeline.pipeline, ()).place
    if known is not None:
        return known.lake
    return None if pipeline.place is None else pipeline.place.before


def _of_run(
    pipeline: Pipeline, store: Store, planned: Sequence[PlannedStream]
) -> dict[StreamId, ExpectedLoad]:
    expected = store.expected_loads(pipeline.pipeline)
    return {s.id: expected[s.id] for s in planned if s.id in expected and not s.replaces_table}


def _lost(pipeline: Pipeline, store: Store, home: Home, streams: Sequence[StreamId]) -> str:
    """Describes what the tables lack, where they were last, and what to do."""
    lake, old = str(pipeline.place and pipeline.place.lake), old_lake(pipeline, store)
    here = Lake(pipeline, lake, store)
    is_there = [stream for stream in streams if here.exists(stream)]
    what = (
        "the table was made again, rolled back or belongs to another pipeline"
        if is_there
        else ("nothing is there, it was moved or deleted")
    )
    text = (
        f"{_named(streams, 'lacks', 'lack')} loads that this pipeline committed, in {lake}: {what}"
    )
    if old is not None and old != lake:
        expected = store.expected_loads(pipeline.pipeline)
        has = Lake(pipeline, old, store).has_any({s: expected[s] for s in streams})
        still = f", which still has them: write `path: {old}` to go on with them" if has else ""
        text += f". The last run wrote to {old}{still}"
    elif reported := _reported(store.runs(pipeline.pipeline, _REPORTS), streams):
        text += f". The last run wrote {reported}"
    again = run_command(pipeline, home, "--recreate")
    adopt = state_command("adopt", pipeline, home)
    reads = "the same run with `--recreate`" if again is None else f"`{again}`"
    return f"{text}. {reads} reads from the start, `{adopt}` takes the tables as they are"


def _reported(reports: Iterable[Mapping[str, Any]], streams: Sequence[StreamId]) -> str | None:
    """Returns the location of a table of these streams by the newest report that has one."""
    for report in reports:
        for each in report.get("streams") or ():
            if each.get("table") and StreamId(each.get("namespace"), each["name"]) in streams:
                return str(each["table"])
    return None


def _named(streams: Sequence[StreamId], one: str, many: str) -> str:
    if len(streams) == 1:
        return f"the table of {streams[0]} {one}"
    return f"the tables of {', '.join(sorted(map(str, streams)))} {many}"
