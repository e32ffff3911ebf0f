"""Random values through random declarations: which row a table must hold for each key.

A case is a stream of a key (``id``, often ``id2`` too), one cursor (``at``), text (``v``, of which
no two records have the same), more columns, and runs that send records of them, between which the
source may declare other types. What the table must hold is decided here, from docs/incremental.md
and docs/reading-tables.md, by a left fold (``newest_oracle``), and never by the code under test:

* ``doubled``: a key has two rows; or keys that differ have one.
* ``lost``: a key has no row, or not that of its newest record; a row that is gone is there.
* ``value``: a column holds something else than the record said.
* ``rejected``: other records were rejected than those that nothing can hold or judge.
* ``told``: the report counts other rows as left out; an entry lacks the text of its value.
* ``stuck``: the run did not succeed.

Neighbours: ``fuzz_columns`` (what is sent and what a column makes of it), ``fuzz_tables`` (real
formats), ``fuzz_world`` (a run).
"""

import json
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from fuzz_columns import (
    CURSORS,
    CUT_CURSORS,
    INTEGER,
    KEYS,
    LIVE,
    MARKS,
    NESTED,
    NO_ROOM,
    STRING,
    TIME,
    VALUES,
    Column,
    cut_order,
    known_order,
    means,
    stored,
)
from fuzz_tables import FileTables, TypedMemoryTables
from fuzz_world import Outcome, World, reset, run_once

from newest_oracle import Folded, order_of
from penstock.engine.specs.lane import LaneBounds
from penstock.model.types import CHANGES
from penstock.runtimes.memory import Exit, Step

NAME = "t"
MARK = {"airbyte": "_ab_cdc_deleted_at", "singer": "_sdc_deleted_at"}
MEMORY = Path("/dev/shm")
CLOCK = (1700000000000, 1700000000, 0, 1699996400000)


@dataclass
class ValueRun:
    """``declared``: property -> its JSON schema; ``records``: property -> JSON text. ``reset``: the
    user forgets the stream's state before it."""

    declared: dict[str, dict[str, Any]]
    records: list[dict[str, str]]
    reset: bool = False


@dataclass
class ValueCase:
    """``columns``: of which kind the table's are, as its first run declares them. ``of_time``: the
    delete mark is declared a time, by run. ``format``: ``parquet``, ``delta`` or ``memory``.
    ``seals``: a state follows every record, and each is sealed. ``clocks``: times of extraction go
    to and fro, or are in seconds. ``as_text``: ``cursor_order: text``."""

    seed: int
    protocol: str
    format: str
    deletes: str
    columns: dict[str, Column]
    runs: list[ValueRun] = field(default_factory=list[ValueRun])
    seals: bool = False
    clocks: bool = False
    as_text: bool = False

    @property
    def mark(self) -> str:
        return MARK[self.protocol]

    @property
    def key(self) -> list[str]:
        return [name for name in ("id", "id2") if name in self.columns]

    @property
    def cut(self) -> bool:
        """Whether its cursors are, by their text, which tables in memory know nothing of."""
        return self.columns["at"] in CUT_CURSORS


class WrongValue(AssertionError):
    """``rule``: which of the rules above; ``at``: the run."""

    def __init__(self, rule: str, told: str, case: ValueCase, at: int) -> None:
        super().__init__(f"{rule} at run {at}: {told}\n{case}")
        self.rule, self.case, self.at = rule, case, at


def value_case(seed: int, *, on_disk: bool = False) -> ValueCase:
    """Every choice is a chance; most cases have few odd ones. ``on_disk``: in a real format."""
    chance = Random(seed)

    def odd(share: float) -> bool:
        return chance.random() < share

    columns = {"id": chance.choice(KEYS), "at": chance.choice(CURSORS), "v": Column("text")}
    if odd(0.4):
        columns["w"] = chance.choice(VALUES)
    nested, marked = odd(0.15), odd(0.4)
    case = ValueCase(
        seed,
        protocol=chance.choice(["airbyte", "singer"]),
        format=chance.choice(["parquet", "delta", "memory"]),
        deletes=chance.choice(["hard", "soft"]),
        columns=columns,
    )
    # across loads a hard delete leaves no trace
    case.seals = odd(0.3) and not (marked and case.deletes == "hard")
    case.clocks = odd(0.2)
    bare = case.deletes == "soft" and marked and odd(0.5)
    if bare:  # a delete of an older row than the newest that came would have no one answer
        columns["at"] = Column("integer", (INTEGER,), (["1"],))
    more = Random(f"{seed} more")
    if more.random() < 0.25:
        columns["id2"] = more.choice(KEYS)
    if more.random() < 0.2 and not bare and not marked:
        columns["at"], case.format = more.choice(CUT_CURSORS), more.choice(["parquet", "delta"])
        case.seals = False
    if on_disk and case.format == "memory":
        case.format = "delta"
    case.as_text = columns["at"].kind in ("text", "json") and more.random() < 0.15
    pools = {name: _few(chance, column) for name, column in columns.items()}
    mark_declared = chance.choice([STRING, TIME])
    number = 0
    for _ in range(chance.choice([2, 2, 3, 4])):
        turns = {n: chance.randrange(len(c.declared)) if c.changes and odd(0.4) else 0
                 for n, c in columns.items()}  # fmt: skip
        turns = {n: 0 if not case.runs else turn for n, turn in turns.items()}
        declared = {n: c.declared[turns[n]] for n, c in columns.items()}
        fields = chance.choice(NESTED)
        if nested:
            inside = dict.fromkeys(fields, STRING)
            declared["o"] = {"type": ["null", "object"], "properties": inside}
        if marked:
            declared[case.mark] = mark_declared
        records: list[dict[str, str]] = []
        for _ in range(chance.choice([0, 1, 3, 6] if case.runs else [1, 3, 6])):
            number += 1
            record = {n: chance.choice(pools[n][turns[n]]) for n in columns if n != "v"}
            record["v"] = f'"r{number}"'
            if number == 1:  # a row that is there makes the table, under the first declaration
                record |= {name: columns[name].values[0][0] for name in case.key}
            if bare:
                record["at"] = str(number)
            if nested:
                parts = [f'"{n}":"{i}{number}"' for n, i in fields.items()]
                record["o"] = "{" + ",".join(parts) + "}"
            if marked and number > 1 and odd(0.5):
                record[case.mark] = chance.choice(MARKS)
            if means(record.get(case.mark), of_time=mark_declared is TIME) == "gone":
                if case.deletes == "soft" and record["at"] == "null":
                    record["at"] = "5"
                if bare:
                    record = {n: record[n] for n in (*case.key, "at", case.mark)}
            records.append(record)
        again = bool(case.runs) and more.random() < 0.15
        case.runs.append(ValueRun(declared, records, again))
    return case


def _few(chance: Random, column: Column) -> list[list[str]]:
    """Some values of a column under each declaration, so that the same ones come again."""
    return [
        chance.sample(values, min(len(values), chance.choice([2, 3, 4])))
        for values in column.values
    ]


# -- the source


def _script(case: ValueCase, number: int, arguments: Sequence[str | bytes]) -> Iterator[Step]:
    run = case.runs[number]
    schema = {"type": "object", "properties": run.declared}
    discovers = "discover" in arguments or "--discover" in arguments
    if case.protocol == "singer":
        root = {"selected": True, "replication-method": "INCREMENTAL", "replication-key": "at",
                "table-key-properties": case.key}  # fmt: skip
        entry = {"tap_stream_id": NAME, "stream": NAME, "schema": schema,
                 "key_properties": case.key,
                 "metadata": [{"breadcrumb": [], "metadata": root}]}  # fmt: skip
        if discovers:
            yield _line({"streams": [entry]})
            return
        yield _line({"type": "SCHEMA", "stream": NAME, "schema": schema, "key_properties": case.key,
                     "bookmark_properties": ["at"]})  # fmt: skip
        state = _line({"type": "STATE", "value": {"bookmarks": {NAME: {"at": number}}}})
        for record in run.records:
            yield b'{"type": "RECORD", "stream": "t", "record": ' + _body(record) + b"}\n"
            yield from [state] * case.seals
        yield state
        yield Exit(0)
        return
    about = {"stream_descriptor": {"name": NAME}}
    if discovers:
        stream = {"name": NAME, "json_schema": schema, "source_defined_cursor": True,
                  "supported_sync_modes": ["full_refresh", "incremental"],
                  "default_cursor_field": ["at"],
                  "source_defined_primary_key": [[name] for name in case.key]}  # fmt: skip
        yield _line({"type": "CATALOG", "catalog": {"streams": [stream]}})
        return
    stream_state = {**about, "stream_state": {"at": number}}
    state = _line({"type": "STATE", "state": {"type": "STREAM", "stream": stream_state}})
    for place, record in enumerate(run.records):
        at = CLOCK[place % len(CLOCK) if case.clocks else 0]
        head = b'{"type": "RECORD", "record": {"stream": "t", "emitted_at": %d, "data": ' % at
        yield head + _body(record) + b"}}\n"
        yield from [state] * case.seals
    yield state
    status = {**about, "status": "COMPLETE"}
    trace = {"type": "STREAM_STATUS", "emitted_at": 1.0, "stream_status": status}
    yield _line({"type": "TRACE", "trace": trace})
    yield Exit(0)


def _line(message: dict[str, Any]) -> bytes:
    return json.dumps(message).encode() + b"\n"


def _body(record: dict[str, str]) -> bytes:
    return ("{" + ",".join(f'"{name}":{text}' for name, text in record.items()) + "}").encode()


# -- what must come of it


class Expected:
    """The table as it must be: a fold for each key that is there."""

    def __init__(self, case: ValueCase) -> None:
        self._case = case
        self.table: dict[Any, Folded] = {}
        self.rejected = self.superseded = 0

    def add(self, run: ValueRun) -> None:
        """Folds the records of one run, which are one load."""
        self.rejected = 0
        for record in run.records:
            self._add(record, run)
        newest = {id(f.row["record"]) for f in self.table.values()}
        taken = sum(id(record) in newest for record in run.records)
        self.superseded = len(run.records) - self.rejected - taken
        if self._case.cut:
            for fold in self.table.values():
                fold.order = known_order(self._case.columns["at"].kind, fold.row["sent"]["at"])
        if self._case.deletes == "hard":
            self.table = {k: f for k, f in self.table.items() if not f.row["gone"]}

    def _add(self, record: dict[str, str], run: ValueRun) -> None:
        case = self._case
        of_time = run.declared.get(case.mark) is TIME
        meaning = means(record.get(case.mark), of_time=of_time)
        key = tuple(stored(case.columns[name].kind, record[name]) for name in case.key)
        if None in key or NO_ROOM in key or meaning == "unknown":
            self.rejected += 1
            return
        kind = case.columns["at"].kind
        cursor = stored(kind, record.get("at", "null"))
        cursor = None if cursor is NO_ROOM else cursor
        gone = meaning == "gone"
        order = None if gone and cursor is None else order_of(cursor, as_text=case.as_text)
        if case.cut:
            order = cut_order(kind, record["at"])
        row = {"key": key, "at": cursor, "gone": gone, "sent": record, "record": record}
        fold = self.table.setdefault(key, Folded())
        before = fold.row
        fold.add(row, order)
        if fold.row is row and "v" not in record and before is not None:  # a bare delete
            kept = {n: t for n, t in before["sent"].items() if n not in record}
            row["sent"] = {**kept, **record}


# -- a case


def play_values(case: ValueCase, spark: Any = None) -> str:
    """Plays a case; returns where its tables were. ``spark``: a session that merges all loads.
    Raises :class:`WrongValue`."""
    if case.format != "memory":
        place = MEMORY if MEMORY.is_dir() else None
        folder = Path(tempfile.mkdtemp(prefix="penstock-fuzz-", dir=place))
        try:
            if _play(case, folder, spark):
                return case.format
        finally:
            shutil.rmtree(folder, ignore_errors=True)
    if case.cut:
        return "spark"
    _play(case, None)
    return "memory"


def _play(case: ValueCase, folder: Path | None, spark: Any = None) -> bool:
    """False: a load needed Spark."""
    bounds = LaneBounds(seal_bytes=1, part_bytes=40) if case.seals else LaneBounds()
    world = World(bounds=bounds, decodes=True, deletes=case.deletes)
    log = world.home.log
    tables = (
        TypedMemoryTables(log.parts)
        if folder is None
        else FileTables(case.format, folder, log, spark)
    )
    world.tables = tables
    expected = Expected(case)
    order = {"cursor_order": "text"} if case.as_text else {}
    for number, run in enumerate(case.runs):
        if run.reset and (refused := reset(world, NAME)) is not None:
            raise AssertionError(f"a reset was refused: {refused}")
        outcome = run_once(
            world,
            f"{case.protocol}:./shop",
            {"destination_sync_mode": "append_dedup"},
            lambda arguments, number=number: _script(case, number, arguments),
            full_refresh=False,
            settings=order,
        )
        if tables.needed_spark:
            return False
        expected.add(run)
        _judge(case, number, outcome, expected, tables.rows_of(NAME))
    return True


def _judge(
    case: ValueCase, at: int, outcome: Outcome, expected: Expected, rows: list[dict[str, Any]]
) -> None:
    def wrong(rule: str, told: str) -> WrongValue:
        return WrongValue(rule, f"{told}; {outcome.told()}", case, at)

    report = outcome.report
    rejected = -1 if report is None else sum(s.rejected for s in report.streams)
    if not outcome.good and not (expected.rejected and rejected == expected.rejected):
        raise wrong("stuck", "nothing odd was asked")
    if rejected != expected.rejected:
        raise wrong("rejected", f"{rejected} records, and not {expected.rejected}")
    superseded = 0 if report is None else sum(s.superseded for s in report.streams)
    found = Counter(_key(case, row) for row in rows)
    twice = [key for key, n in found.items() if n > 1]
    wanted = set(expected.table)
    if twice or found.keys() - wanted:
        raise wrong("doubled", f"twice: {twice}, unknown: {found.keys() - wanted}")
    if wanted - found.keys():
        raise wrong("lost", f"no row of {wanted - found.keys()}")
    for row in rows:
        _judge_row(case, row, expected.table[_key(case, row)].row, wrong)
    _judge_nested(rows, wrong)
    if superseded != expected.superseded and not case.seals:
        raise wrong("told", f"{superseded} rows left out, and not {expected.superseded}")


def _key(case: ValueCase, row: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(row[name] for name in case.key)


def _judge_row(case: ValueCase, row: dict[str, Any], want: dict[str, Any], wrong: Any) -> None:
    sent = want["sent"]
    newest = stored("text", sent.get("v", "null"))
    if row.get("v") != newest:
        raise wrong("lost", f"key {want['key']!r} has {row.get('v')}, and not {newest}: {sent}")
    mark = row.get(case.mark)
    if (means_stored(mark) == "gone") != want["gone"]:
        raise wrong("lost", f"key {want['key']!r} is marked {mark!r}: {sent}")
    for name in ("at", "w"):
        if name not in case.columns:
            continue
        value = stored(case.columns[name].kind, sent.get(name, "null"))
        if value is NO_ROOM:
            value, text = None, json.loads(sent[name])
            if not any(field == name and text in reason for field, reason in entries(row)):
                raise wrong("told", f"{entries(row)} lacks the text of {name}: {sent}")
        if row.get(name) != value:
            raise wrong("value", f"{name} is {row.get(name)!r}, and not {value!r}: {sent}")
    if "o" in sent:
        told = sorted(json.loads(sent["o"]).values())
        has = sorted(v for v in (row.get("o") or {}).values() if v is not None)
        if told != has:
            raise wrong("value", f"o is {row.get('o')}, and not {sent['o']}")


def entries(row: dict[str, Any]) -> list[tuple[str, str]]:
    """(field, reason) of each entry in a row's change list."""
    lists = [row.get(CHANGES), *(v.get("changes") for v in row.values() if isinstance(v, dict))]
    return [(e["field"], e["reason"]) for found in lists for e in found or ()]


def means_stored(mark: Any) -> str:
    """What a mark says that a table stores: a time, or text, which may be a JSON text."""
    if mark is None or mark in LIVE:
        return "there"
    return means(json.dumps(mark) if isinstance(mark, str) else "1", of_time=True)


def _judge_nested(rows: list[dict[str, Any]], wrong: Any) -> None:
    """A field has the values of one property: all begin with the same letter."""
    letters: dict[str, set[str]] = {}
    for row in rows:
        for name, value in (row.get("o") or {}).items():
            if value is not None:
                letters.setdefault(name, set()).add(value[0])
    if mixed := {name: found for name, found in letters.items() if len(found) > 1}:
        raise wrong("value", f"values of two properties are mixed: {mixed}")
