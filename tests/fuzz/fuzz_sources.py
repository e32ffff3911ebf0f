"""Sources for the planner fuzz: tables that change between runs, read by connectors of many habits.

A :class:`Case` holds what is random; :func:`script` plays the connector for one command line, as
``runtimes.memory`` wants it. Written from the protocols' texts and the habits of real connectors
(state shapes, names, statuses, catalogs with parts missing), not from what Penstock expects.
Not here: what is run with them (``fuzz_world``), what must come of it (``fuzz_model``).
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from penstock.runtimes.memory import Exit, StderrLine, Step

# Where a Singer tap keeps the bookmark of a stream.
BOOKMARKS = ("tap_stream_id", "stream", "dashed", "table")
SINGER_STATES = (*BOOKMARKS, "flat", "opaque")
AIRBYTE_STATES = ("STREAM", "GLOBAL", "LEGACY", "bare_legacy")
STATUSES = ("complete", "none", "started", "running")
EMITTED = ("int", "float", "null", "absent")


@dataclass
class Rows:
    """A table at the source: the newest version of each row, by id, with its place in the order of
    changes. ``first``: its ids are above this."""

    first: int = 0
    now: dict[int, int] = field(default_factory=dict[int, int])  # id -> place of its last change
    place: int = 0
    version: int = 0  # the newest that a Singer tap gave its rows

    def change(self, row: int) -> None:
        self.place += 1
        self.now[row] = self.place

    def since(self, place: int, *, inclusive: bool) -> list[tuple[int, int]]:
        """(id, place), in the order of change."""
        found = [(i, p) for i, p in self.now.items() if p > place or (inclusive and p == place)]
        return sorted(found, key=lambda item: item[1])


@dataclass
class Habits:
    """How a connector behaves. ``honours``: it reads a stream anew where its catalog says so,
    whatever state it is given. ``names_mode``, ``names_cursor``, ``names_key``: what its catalog
    says. ``every``: a state after so many records; ``last_state``: one more at its end.
    ``all_bad``: no record is one. ``says_first``: a state before the first record. ``some_bad``:
    what is wrong with some records (``null_key``, ``list``). ``interleaves``: streams are read side
    by side. ``by_log``: changes are read from one log's position, a GLOBAL state's shared part, and
    a stream without an entry is read whole first. ``keeps``: a state for all tells of streams that
    this run does not read. ``versions``: of a tap's rows. ``discovers``: a tap has a catalog.
    ``ignores``: it reads every stream, whichever were selected or configured."""

    protocol: str = "airbyte"
    state: str = "STREAM"
    status: str = "complete"
    emitted: str = "int"
    inclusive: bool = False
    honours: bool = True
    names_mode: bool = True
    names_cursor: bool = True
    names_key: bool = True
    full_only: bool = False
    resumable: bool = False
    every: int = 3
    last_state: bool = True
    ids: bool = False
    all_bad: bool = False
    says_first: bool = False
    some_bad: str = ""
    interleaves: bool = False
    by_log: bool = False
    keeps: bool = True
    versions: bool = False
    discovers: bool = True
    ignores: bool = False


@dataclass
class Fault:
    """Of one run: the source stops after so many records (None: it does not), with this code.
    ``kind``: ``dies``; ``transient`` says that it may pass; ``stream``: one stream fails, and the
    others are read. ``times``: so many starts of it fail; None: all."""

    after: int | None = None
    code: int = 1
    kind: str = "dies"
    times: int | None = None


def bad(row: int) -> bool:
    """Is it one of those that ``some_bad`` makes bad?"""
    return row % 4 == 3


def tap_id(name: str, habits: Habits) -> str:
    """What the catalog calls a stream; messages call it ``name``."""
    return name if habits.state in ("tap_stream_id", "flat", "opaque") else f"shop-{name}"


# -- discovery


def catalog(habits: Habits, names: Sequence[str]) -> dict[str, Any]:
    if habits.protocol == "singer":
        return {"streams": [_singer_entry(n, habits) for n in names]}
    return {"type": "CATALOG", "catalog": {"streams": [_airbyte_entry(n, habits) for n in names]}}


def _properties() -> dict[str, Any]:
    return {"id": {"type": "integer"}, "place": {"type": "integer"}, "note": {"type": "string"}}


def _airbyte_entry(name: str, habits: Habits) -> dict[str, Any]:
    modes = ["full_refresh"] if habits.full_only else ["full_refresh", "incremental"]
    entry: dict[str, Any] = {
        "name": name,
        "json_schema": {"type": "object", "properties": _properties()},
        "supported_sync_modes": modes,
        "is_resumable": habits.resumable,
    }
    if not habits.full_only:
        entry["source_defined_cursor"] = True
        if habits.names_cursor:
            entry["default_cursor_field"] = ["place"]
    if habits.names_key:
        entry["source_defined_primary_key"] = [["id"]]
    return entry


def _singer_entry(name: str, habits: Habits) -> dict[str, Any]:
    root: dict[str, Any] = {"inclusion": "available", "selected": True}
    if habits.names_mode:
        root["replication-method"] = "FULL_TABLE" if habits.full_only else "INCREMENTAL"
    if habits.names_cursor and not habits.full_only:
        root["replication-key"] = "place"
    entry: dict[str, Any] = {
        "tap_stream_id": tap_id(name, habits),
        "stream": name,
        "schema": {"type": "object", "properties": _properties()},
        "metadata": [{"breadcrumb": [], "metadata": root}],
    }
    if habits.names_key:
        root["table-key-properties"] = ["id"]
        entry["key_properties"] = ["id"]
    return entry


# -- a read


def script(
    habits: Habits, tables: dict[str, Rows], fault: Fault, arguments: Sequence[str | bytes]
) -> Iterator[Step]:
    """One start of the connector."""
    words = [a for a in arguments if isinstance(a, str)]
    if "discover" in words or "--discover" in words:
        if not habits.discovers:
            yield StderrLine("unrecognized arguments: --discover")
            yield Exit(2)
            return
        yield _line(catalog(habits, sorted(tables)))
        return
    if fault.times is not None:
        fault.times -= 1
        if fault.times < 0:
            fault = Fault()
    if habits.protocol == "singer":
        yield from _Tap(habits, tables, fault, _given(arguments)).run()
    else:
        yield from _Source(habits, tables, fault, _given(arguments)).run()


def _given(arguments: Sequence[str | bytes]) -> dict[str, Any]:
    """Option -> the content of its file."""
    found: dict[str, Any] = {}
    for option, value in pairwise(arguments):
        if isinstance(option, str) and option.startswith("--") and isinstance(value, bytes):
            found[option] = json.loads(value)
    return found


def _line(message: dict[str, Any]) -> bytes:
    return json.dumps(message).encode() + b"\n"


class _Reading:
    """What both protocols share: which streams, from where, in which order."""

    def __init__(
        self, habits: Habits, tables: dict[str, Rows], fault: Fault, given: dict[str, Any]
    ) -> None:
        self.habits, self.tables, self.fault, self.given = habits, tables, fault, given
        self.at: dict[str, int] = {}
        self.said = 0
        self.failed: str | None = None  # the stream that a fault hit

    def run(self) -> Iterator[Step]:
        chosen = self.chosen()
        self.at = dict(self.remembered())
        if not self.habits.keeps:
            self.at = {n: at for n, at in self.at.items() if n in chosen}
        for name in chosen:
            yield from self.opened(name)
        if self.habits.says_first and self.at and chosen:
            yield from self.state(next(iter(chosen)))
        reads = [self.stream(name, anew=anew) for name, anew in chosen.items()]
        while reads:
            read = reads.pop(0)
            if self.habits.interleaves:
                step = next(read, None)
                if step is not None:
                    yield step
                    reads.append(read)
            else:
                yield from read
            if self.failed is not None and self.fault.kind != "stream":
                break
        if self.failed is not None:
            yield StderrLine("the connection was lost")
            yield Exit(self.fault.code)
            return
        yield from self.ended()
        yield Exit(0)

    def _fails(self, name: str) -> bool:
        """The fault hits now."""
        after = self.fault.after
        if after is None or self.said < after or self.failed not in (None, name):
            return False
        self.failed = name
        return True

    def stream(self, name: str, *, anew: bool) -> Iterator[Step]:
        habits, table = self.habits, self.tables[name]
        if self.failed is not None and self.fault.kind != "stream":
            return
        begin = 0 if anew or name not in self.at else self.at[name]
        again = habits.inclusive and name in self.at and not anew
        rows = table.since(begin, inclusive=again)
        self.at[name] = begin
        yield from self.began(name, anew=anew)
        for count, (row, place) in enumerate(rows, 1):
            if self._fails(name):
                yield from self.broke(name)
                return
            self.said += 1
            yield self.record(name, row, place)
            self.at[name] = place
            if count % habits.every == 0:
                yield from self.state(name)
        if self._fails(name):
            yield from self.broke(name)
            return
        if habits.last_state:
            yield from self.state(name)
        yield from self.closed(name)

    def began(self, name: str, *, anew: bool) -> Iterator[Step]:
        yield from ()

    def broke(self, name: str) -> Iterator[Step]:
        yield from ()

    def ended(self) -> Iterator[Step]:
        yield from ()

    def chosen(self) -> dict[str, bool]:
        raise NotImplementedError

    def remembered(self) -> dict[str, int]:
        raise NotImplementedError

    def opened(self, name: str) -> Iterator[Step]:
        yield from ()

    def closed(self, name: str) -> Iterator[Step]:
        yield from ()

    def state(self, name: str) -> Iterator[Step]:
        raise NotImplementedError

    def record(self, name: str, row: int, place: int) -> bytes:
        raise NotImplementedError

    def _spoilt(self, row: int, data: dict[str, Any]) -> Any:
        if self.habits.all_bad or (self.habits.some_bad == "list" and bad(row)):
            return ["not", "an", "object"]
        if self.habits.some_bad == "null_key" and bad(row):
            return {**data, "id": None}
        return data


class _Source(_Reading):
    """An Airbyte source. It logs that it begins, as real ones do."""

    def run(self) -> Iterator[Step]:
        yield _line({"type": "LOG", "log": {"level": "INFO", "message": "starting"}})
        yield from super().run()

    def chosen(self) -> dict[str, bool]:
        entries = self.given["--catalog"]["streams"]
        others = sorted(self.tables) if self.habits.ignores else []
        return dict.fromkeys(others, self.habits.full_only) | {
            e["stream"]["name"]: e["sync_mode"] == "full_refresh"
            and (self.habits.honours or self.habits.full_only)
            and not self.habits.resumable
            for e in entries
        }

    def remembered(self) -> dict[str, int]:
        given = self.given.get("--state") or []
        if isinstance(given, dict):
            given = [{"data": given.get("data", given)}]
        found: dict[str, int] = {}
        shared: int | None = None
        for message in given:
            kind = message.get("type", "LEGACY")
            if kind == "LEGACY":
                found |= message.get("data") or {}
                continue
            entries = (
                [message["stream"]] if kind == "STREAM" else message["global"]["stream_states"]
            )
            for entry in entries:
                if entry.get("stream_state"):
                    name = entry["stream_descriptor"]["name"]
                    if self.habits.by_log:
                        found[name] = message["global"]["shared_state"]["lsn"][name]
                    else:
                        found[name] = entry["stream_state"]["at"]
            if kind == "GLOBAL" and not self.habits.by_log:
                shared = (message["global"].get("shared_state") or {}).get("lsn")
        if shared is not None and not found:
            # a log's position alone: all of it is read from there
            return dict.fromkeys(self.tables, shared)
        return found

    def opened(self, name: str) -> Iterator[Step]:
        if self.habits.status != "none":
            yield self._status(name, "STARTED")

    def closed(self, name: str) -> Iterator[Step]:
        if self.habits.status == "complete":
            yield self._status(name, "COMPLETE")

    def broke(self, name: str) -> Iterator[Step]:
        kind = self.fault.kind
        if kind == "dies":
            return
        if self.habits.status == "complete":
            yield self._status(name, "INCOMPLETE")
        told: dict[str, Any] = {
            "message": "it did not answer",
            "failure_type": "transient_error" if kind == "transient" else "system_error",
        }
        if kind == "stream":
            told["stream_descriptor"] = {"name": name}
        yield _line({"type": "TRACE", "trace": {"type": "ERROR", "emitted_at": 1.0, "error": told}})

    def ended(self) -> Iterator[Step]:
        if self.habits.by_log:
            yield from self._log_state()

    def _log_state(self) -> Iterator[Step]:
        """The log has been read to its end, whatever streams were wanted of it."""
        shared = {"lsn": {n: table.place for n, table in self.tables.items()}}
        entries = [
            {"stream_descriptor": {"name": n}, "stream_state": {"snapshot": "done"}}
            for n in self.at
        ]
        told = {"shared_state": shared, "stream_states": entries}
        yield _line({"type": "STATE", "state": {"type": "GLOBAL", "global": told}})

    def _status(self, name: str, status: str) -> bytes:
        told = {"stream_descriptor": {"name": name}, "status": status}
        trace = {"type": "STREAM_STATUS", "emitted_at": 1.0, "stream_status": told}
        return _line({"type": "TRACE", "trace": trace})

    def record(self, name: str, row: int, place: int) -> bytes:
        told: dict[str, Any] = {"stream": name, "data": {"id": row, "place": place, "note": "x"}}
        match self.habits.emitted:
            case "float":
                told["emitted_at"] = 1700000000000.0
            case "null":
                told["emitted_at"] = None
            case "int":
                told["emitted_at"] = 1700000000000
            case _:
                pass
        told["data"] = self._spoilt(row, told["data"])
        out = _line({"type": "RECORD", "record": told})
        if self.habits.status == "running" and self.said == 1:
            return self._status(name, "RUNNING") + out
        return out

    def state(self, name: str) -> Iterator[Step]:
        at = self.at
        if self.habits.by_log:
            return

        def one(n: str) -> dict[str, Any]:
            return {"stream_descriptor": {"name": n}, "stream_state": {"at": at.get(n, 0)}}

        match self.habits.state:
            case "STREAM":
                told: dict[str, Any] = {"type": "STREAM", "stream": one(name)}
            case "GLOBAL":
                shared = {"lsn": max(at.values(), default=0)}
                told = {
                    "type": "GLOBAL",
                    "global": {"shared_state": shared, "stream_states": [one(n) for n in at]},
                }
            case "LEGACY":
                told = {"type": "LEGACY", "data": at}
            case _:
                told = {"data": at}
        if self.habits.ids:
            told["id"] = self.said
        yield _line({"type": "STATE", "state": told})


class _Tap(_Reading):
    """A Singer tap."""

    def run(self) -> Iterator[Step]:
        self.versions: dict[str, int] = {}
        state = self.given.get("--state") or {}
        marks = state.get("bookmarks", {}) if isinstance(state, dict) else {}
        self._were = {n: (marks.get(self._mark(n)) or {}).get("version") for n in self.tables}
        yield from super().run()

    def began(self, name: str, *, anew: bool) -> Iterator[Step]:
        if not self.habits.versions:
            return
        before = None if anew else self._were.get(name)
        if before is None:
            self.tables[name].version += 1
        self.versions[name] = before or self.tables[name].version
        if before is None and self._were.get(name) is None:
            yield self._activate(name)

    def closed(self, name: str) -> Iterator[Step]:
        if name in self.versions:
            yield self._activate(name)

    def _activate(self, name: str) -> bytes:
        return _line({"type": "ACTIVATE_VERSION", "stream": name, "version": self.versions[name]})

    def _name_of(self, entry: dict[str, Any]) -> str:
        return entry["stream"]

    def chosen(self) -> dict[str, bool]:
        catalog = self.given.get("--catalog") or self.given.get("--properties")
        if catalog is None:
            return dict.fromkeys(sorted(self.tables), self.habits.full_only)
        found: dict[str, bool] = {}
        for entry in catalog["streams"]:
            root = next(
                (m["metadata"] for m in entry.get("metadata", []) if not m["breadcrumb"]), {}
            )
            unwanted = root.get("selected", entry.get("selected")) is False
            if unwanted and not self.habits.ignores:
                continue
            full = root.get("replication-method") == "FULL_TABLE" and self.habits.honours
            found[entry["stream"]] = full or self.habits.full_only
        return found

    def _mark(self, name: str) -> str:
        match self.habits.state:
            case "tap_stream_id":
                return tap_id(name, self.habits)
            case "dashed":
                return f"shop-{name}"
            case _:
                return name

    def remembered(self) -> dict[str, int]:
        state = self.given.get("--state") or {}
        kind = self.habits.state
        if kind == "opaque":
            return dict(zip(sorted(self.tables), state.get("p", []), strict=False))
        if kind == "flat":
            return {n: at for n, at in state.items() if n in self.tables}
        marks = state.get("bookmarks", {})
        return {n: marks[self._mark(n)]["at"] for n in self.tables if marks.get(self._mark(n))}

    def opened(self, name: str) -> Iterator[Step]:
        schema: dict[str, Any] = {
            "type": "SCHEMA",
            "stream": name,
            "schema": {"type": "object", "properties": _properties()},
            "key_properties": ["id"] if self.habits.names_key else [],
        }
        if self.habits.names_cursor:
            schema["bookmark_properties"] = ["place"]
        yield _line(schema)

    def record(self, name: str, row: int, place: int) -> bytes:
        told: dict[str, Any] = {
            "type": "RECORD",
            "stream": name,
            "record": {"id": row, "place": place, "note": "x"},
        }
        if self.habits.emitted == "int":
            told["time_extracted"] = "2026-01-02T03:04:05Z"
        elif self.habits.emitted == "null":
            told["time_extracted"] = None
        told["record"] = self._spoilt(row, told["record"])
        if name in self.versions:
            told["version"] = self.versions[name]
        return _line(told)

    def state(self, name: str) -> Iterator[Step]:
        match self.habits.state:
            case "flat":
                value: dict[str, Any] = dict(self.at)
            case "opaque":
                value = {"p": [self.at.get(n, 0) for n in sorted(self.tables)]}
            case _:
                value = {"bookmarks": {self._mark(n): self._bookmark(n) for n in self.at}}
        yield _line({"type": "STATE", "value": value})

    def _bookmark(self, name: str) -> dict[str, Any]:
        version = self.versions.get(name, self._were.get(name))
        return {"at": self.at[name], **({} if version is None else {"version": version})}
