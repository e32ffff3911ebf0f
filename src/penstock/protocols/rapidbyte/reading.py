"""The source role: what the engine asks of a source, of a WebAssembly component.

One stream after the other, each in an instance of its own; what it tells becomes events. Frames
stay columns. Not here: the conversation itself (``source``, ``conversation``). Source: the
protocol, sections 3.1, 5, 6 and 7.
"""

import random
import time
from collections.abc import Generator, Iterator, Mapping
from contextlib import closing
from datetime import UTC, datetime
from functools import cached_property
from typing import Any, cast

import msgspec
import pyarrow as pa

from penstock.codec.columns import Columns
from penstock.codec.untyped import Table
from penstock.codec.untyped import compute as pc
from penstock.errors import ConfigError, DestinationError, SourceError, StateError
from penstock.model.catalog import (
    Catalog,
    CheckResult,
    ConfiguredStream,
    ConnectorSpec,
    DestinationSyncMode,
    Stream,
    StreamId,
    SyncMode,
)
from penstock.model.events import (
    Batch,
    Counted,
    Error,
    Event,
    Exited,
    Log,
    Measured,
    Reject,
    Schema,
    State,
    Status,
    StreamStatus,
    Tick,
)
from penstock.model.state import SavedState, StateScope, StateType
from penstock.protocols.contract import EventSink, ReadRequest, StreamWish
from penstock.protocols.rapidbyte import messages, source
from penstock.protocols.rapidbyte.abi import PROTOCOL_VERSION
from penstock.protocols.rapidbyte.checked import decoding, table_of
from penstock.protocols.rapidbyte.configure import configure
from penstock.protocols.rapidbyte.conversation import (
    LONGEST_CHECK,
    LONGEST_DISCOVER,
    Stage,
    Within,
)
from penstock.protocols.rapidbyte.manifest import (
    Found,
    Manifest,
    config_schema,
    mode_problems,
)
from penstock.protocols.rapidbyte.messages import (
    CursorInfo,
    CursorValue,
    Role,
    StreamContext,
    WriteMode,
)
from penstock.protocols.rapidbyte.retries import delay, may_retry
from penstock.protocols.rapidbyte.schema import declared, retold
from penstock.protocols.rapidbyte.settings import Opened, Settings, opened
from penstock.protocols.rapidbyte.sharding import divided
from penstock.protocols.rapidbyte.state import cursor_of
from penstock.protocols.rapidbyte.told import Checkpoint, Ended, Frame, Logged, PutAside
from penstock.runtimes.contract import Runtime, Timeouts

WRITE_MODES = {
    DestinationSyncMode.append: "append",
    DestinationSyncMode.overwrite: "replace",
    DestinationSyncMode.append_dedup: "upsert",
}


OPERATION = "_rb_op"  # insert, update or delete (v4's Postgres source, cdc)
DELETED_AT = "_rb_deleted_at"


class RapidbyteSource:
    """``SourceRole`` of ``protocols.contract``."""

    def spec(self, runtime: Runtime, timeouts: Timeouts, log: EventSink) -> ConnectorSpec:
        return spec_of(opened(runtime).found, log)

    def check(
        self, runtime: Runtime, config: dict[str, Any], timeouts: Timeouts, log: EventSink
    ) -> CheckResult:
        stage = opened(runtime).stage("source", config, timeouts)
        within = Within.of(timeouts, LONGEST_CHECK)
        return result_of(source.check(stage, lambda told: log(line(told)), within), log)

    def discover(
        self, runtime: Runtime, config: dict[str, Any], timeouts: Timeouts, log: EventSink
    ) -> Catalog:
        what = opened(runtime)
        stage = what.stage("source", config, timeouts)
        within = Within.of(timeouts, LONGEST_DISCOVER)
        found = _catalog(source.discover(stage, lambda told: log(line(told)), within))
        return _named(found, what.found.manifest, log)

    def catalog_of(self, raw: Any) -> Catalog:
        try:
            return _catalog(msgspec.convert(raw, messages.Catalog))
        except msgspec.ValidationError as e:
            raise ConfigError(
                f"this is no Rapidbyte catalog: {e}",
                code="config.catalog",
                hint="give what the connector's discover gives",
            ) from None

    def configure(self, stream: Stream, wish: StreamWish) -> ConfiguredStream:
        return configure(stream, wish)

    def read(self, runtime: Runtime, request: ReadRequest) -> Iterator[Event]:
        what = opened(runtime)
        manifest = what.found.manifest
        modes = [s.sync_mode.value for s in request.streams]
        for problem in mode_problems(manifest, "source", sync_modes=modes) if manifest else ():
            yield Log("WARN", problem)  # of a preview: a run is refused before
        states = {s.scope.stream: s for s in request.states}
        failed = False
        for stream in request.streams:
            with closing(_Reading(what, request, stream, states.get(stream.id)).events()) as told:
                for event in told:
                    failed |= isinstance(event, Error)
                    yield event
        yield Exited(1 if failed else 0)


class _Reading:
    """One stream's read."""

    def __init__(
        self,
        what: Opened,
        request: ReadRequest,
        stream: ConfiguredStream,
        state: SavedState | None,
    ) -> None:
        self._what, self._request, self._stream = what, request, stream
        self._schema: Mapping[str, Any] = stream.stream.json_schema
        self._state = state
        self._frames: Any = None  # the Arrow schema of the last frame
        self._began = time.monotonic()

    @cached_property
    def _context(self) -> StreamContext:
        """Raises ``StateError``."""
        settings, request = self._what.settings, self._request
        context = context_of(settings, self._stream, self._state, request.limit)
        return divided(context, request.shards.get(self._stream.id), settings.resources)

    def events(self) -> Generator[Event]:
        """A failure is this stream's alone."""
        yield StreamStatus(self._stream.id, Status.started)
        try:
            yield from self._read()
        except (SourceError, StateError) as e:
            code = e.code
            if isinstance(e, SourceError):
                code = f"source.{code.removeprefix('connector.').removeprefix('source.')}"
            raw = {**(e.connector or {}), "code": code, "hint": e.hint}
            yield Error(e.message, "system_error", self._stream.id, raw)
            yield StreamStatus(self._stream.id, Status.incomplete)

    def _read(self) -> Iterator[Event]:
        stage = self._what.stage("source", self._request.config, self._request.timeouts)
        runtime = self._what.runtime
        stage.keys.begin(self._stream.id.key)
        with closing(stage.keys), closing(self._told(stage)) as told:
            waited = time.monotonic()
            for item in told:
                runtime.wait_seconds += time.monotonic() - waited
                yield from self._event(item)
                if self._over():
                    yield self._timed_out()
                    return
                waited = time.monotonic()

    def _told(self, stage: Stage) -> Any:
        asked = self._request
        return source.read(
            stage, self._context, asked.tick, dry_run=asked.dry_run, max_records=asked.limit
        )

    def _event(self, told: Any) -> Iterator[Event]:
        match told:
            case Frame():
                yield from self._frame(told)
            case Checkpoint():
                yield from self._checkpoint(told)
            case Logged():
                yield line(told)
            case PutAside():
                letter = told.letter
                yield Reject(
                    self._stream.id,
                    f"{letter.error_category}: {letter.error_message}",
                    letter.record_json.encode(),
                )
            case Ended():
                yield from self._ended(told)
            case _:
                yield Tick()

    def _frame(self, told: Frame) -> Iterator[Event]:
        try:
            table, size = table_of(told.data)
            schema = table.schema
            with decoding(told.data):
                table = _with_deletes(table)
        except messages.Refusal as e:
            raise broken_frame("source", e, self._stream.id) from None
        if self._frames is None or not schema.equals(self._frames):
            self._frames = schema
            new = retold(self._schema, table.schema)
            if new is not None:
                self._schema = new
                yield Schema(self._stream.id, new)
        runtime = self._what.runtime
        runtime.bytes += len(told.data)
        now = int(time.time() * 1000)
        if table.num_rows:
            yield Batch(self._stream.id, Columns(table), [now] * table.num_rows, size=size)

    def _checkpoint(self, told: Checkpoint) -> Iterator[Event]:
        payload = told.payload
        if payload is None:
            yield Log("WARN", f"a checkpoint that is none: {told.problem}")
            yield Counted("malformed:checkpoint")
        elif told.kind != 0 or payload.stream != self._context.stream_name:
            said = f"kind {told.kind} of stream {payload.stream!r}"
            yield Log("WARN", f"a checkpoint that is not this source's of this stream: {said}")
            yield Counted("foreign:checkpoint")
        elif payload.cursor_field is None or payload.cursor_value is None:
            yield Counted("checkpoint without a cursor")
        elif payload.cursor_value.text() is None:
            yield Counted("checkpoint whose cursor is null")
        else:
            yield from self._cursor_at(payload.cursor_field, payload.cursor_value, told)

    def _cursor_at(self, name: str, value: CursorValue, told: Checkpoint) -> Iterator[Event]:
        """The connector's own document. As in v4 its place is one in the configured column,
        whatever the connector calls that (``ID`` for ``id``)."""
        cursor = self._context.cursor_info
        if cursor is not None and (value.type == "lsn") is not (cursor.cursor_type == "lsn"):
            text = f"a checkpoint that is not this stream's: {value.type} for {cursor.cursor_type}"
            yield Log("WARN", text)
            yield Counted("foreign:checkpoint")
            return
        blob = messages.payload_of(told.text)
        if cursor is not None and name != cursor.cursor_field:
            document = {**msgspec.json.decode(blob), "cursor_field": cursor.cursor_field}
            blob = msgspec.json.encode(document)
        yield State(StateScope(StateType.stream, self._stream.id), blob.decode(), told.keys)

    def _ended(self, told: Ended) -> Iterator[Event]:
        self._what.runtime.spoke |= told.summary is not None
        if told.metrics:
            series: list[dict[str, Any]] = msgspec.to_builtins(told.metrics)
            yield Measured(self._stream.id, series)
        if told.error is None:
            yield StreamStatus(self._stream.id, Status.complete, keys=told.keys)
            return
        allowed = self._what.settings.resources.max_retries
        retry = retry_after(told, self._request.tries.get(self._stream.id, 0) + 1, allowed)
        yield error_of(told, self._stream.id, retry)
        yield StreamStatus(self._stream.id, Status.incomplete)

    def _over(self) -> bool:
        total = self._request.timeouts.total
        return total is not None and time.monotonic() - self._began > total

    def _timed_out(self) -> Error:
        total = self._request.timeouts.total
        return Error(
            f"the source was still running after {total:g} s",
            "system_error",
            self._stream.id,
            {"code": "source.timeout", "hint": "raise timeouts.total"},
        )


def _with_deletes(table: Table) -> Table:
    """v4's change rows say what they are; a delete also gets the time at which it was met, which
    is how the engine knows one."""
    if OPERATION not in table.column_names or DELETED_AT in table.column_names:
        return table
    now = pa.scalar(datetime.now(UTC), pa.timestamp("us", tz="UTC"))
    deleted = pc.equal(pc.cast(table.column(OPERATION), pa.string()), "delete")
    return table.append_column(DELETED_AT, pc.if_else(deleted, now, pa.scalar(None, now.type)))


def spec_of(found: Found, log: EventSink) -> ConnectorSpec:
    """What a manifest says; its faults go to the log."""
    for warning in found.warnings:
        log(Log("WARN", f"the connector's manifest: {warning}"))
    manifest = found.manifest
    if manifest is None:
        log(Log("WARN", f"the connector is granted nothing: {found.problem}"))
        return ConnectorSpec(protocol="rapidbyte", config_schema=found.schema or {})
    abilities: dict[str, Any] = msgspec.to_builtins(manifest)
    abilities.pop("config_schema", None)
    return ConnectorSpec(
        protocol="rapidbyte",
        config_schema=config_schema(manifest) or {},
        abilities={"manifest": abilities},
        protocol_version=manifest.protocol_version or PROTOCOL_VERSION,
    )


def result_of(report: messages.ValidationReport, log: EventSink) -> CheckResult:
    for warning in report.warnings:
        log(Log("WARN", warning))
    if report.status == "warning":
        log(Log("WARN", report.message))
    return CheckResult(report.status != "failed", report.message or None)


def line(told: Logged) -> Log:
    return Log(told.level, told.message)


def retry_after(told: Ended, attempt: int, allowed: int) -> float | None:
    """Seconds until it may be tried again; None: never."""
    if told.fault is None or attempt > allowed or not may_retry(told.fault, told.told):
        return None
    return delay(told.fault, attempt, random.random())


def error_of(told: Ended, stream: StreamId, retry: float | None, role: Role = "source") -> Error:
    """Its failure, in its own words where it gave any."""
    error = told.error
    if error is None:
        raise ValueError("it ended well")
    kind = told.fault.category if told.fault is not None else None
    raw = dict(error.connector or {})
    if told.fault is None:
        raw |= {"code": f"{role}.{error.code.removeprefix('connector.')}", "hint": error.hint}
    return Error(error.message, kind, stream, raw, retry)


def broken_frame(role: str, refusal: messages.Refusal, stream: StreamId) -> Exception:
    branch = DestinationError if role == "destination" else SourceError
    return branch(
        f"a frame of the {role} cannot be taken: {refusal.fault.message}",
        code=f"{role}.bad_frame",
        hint="this is a fault of the connector",
        stream=str(stream),
    )


def context_of(
    settings: Settings,
    stream: ConfiguredStream,
    state: SavedState | None,
    max_records: int | None = None,
) -> StreamContext:
    """What every stage of a stream is told (section 6). ``max_records``: so many are wanted and no
    more."""
    key = [path[0] for path in stream.primary_key]
    mode = WRITE_MODES[stream.destination_sync_mode]
    return StreamContext(
        stream_name=stream.id.name,
        sync_mode=stream.sync_mode.value,
        cursor_info=_cursor(stream, state),
        limits=settings.limits(max_records),
        policies=settings.policies(),
        write_mode=WriteMode(mode=cast(Any, mode), primary_key=key if mode == "upsert" else None),
        selected_columns=None if stream.columns is None else list(stream.columns),
        effective_parallelism=stream.shards,
        copy_flush_bytes_override=settings.copy_flush_bytes(),
    )


def _cursor(stream: ConfiguredStream, state: SavedState | None) -> CursorInfo | None:
    """As v4 writes it: the cursor as text, and a replication position under its own name."""
    cdc = stream.sync_mode is SyncMode.cdc
    if stream.sync_mode is SyncMode.full_refresh or not (cdc or stream.cursor_field):
        return None
    kind, name = ("lsn", "lsn") if cdc else ("utf8", stream.cursor_field[0])
    text = None if state is None else _saved_text(state, name, cdc=cdc)
    last = msgspec.UNSET if text is None else CursorValue(type=kind, value=text)
    return CursorInfo(cursor_field=name, cursor_type=kind, last_value=last)


def _saved_text(state: SavedState, name: str, *, cdc: bool) -> str | None:
    """Raises ``StateError`` where the saved place is one in another column, or of another mode."""
    saved = cursor_of(state)
    position = saved.cursor_value.type == "lsn"
    if saved.cursor_field != name or position is not cdc:
        raise StateError(
            f"the saved state of {state.scope.stream} is a place in {saved.cursor_field!r}, and it "
            f"is now read by {name!r}",
            code="state.cursor_changed",
            hint="run `penstock state reset` for the stream: it is then read anew",
            stream=str(state.scope.stream),
        )
    return saved.cursor_value.text()


def _catalog(found: messages.Catalog) -> Catalog:
    return Catalog(tuple(_stream(s) for s in found.streams))


def _named(catalog: Catalog, manifest: Manifest | None, log: EventSink) -> Catalog:
    """Without the sync modes that the manifest does not name, so that nothing is planned with
    them (section 9)."""
    if manifest is None:
        return catalog
    streams: list[Stream] = []
    for stream in catalog.streams:
        modes = [m.value for m in stream.sync_modes]
        able = tuple(
            m for m in stream.sync_modes
            if not mode_problems(manifest, "source", sync_modes=[m.value])
        )  # fmt: skip
        if len(able) < len(modes):
            for problem in mode_problems(manifest, "source", sync_modes=modes):
                log(Log("WARN", f"{stream.id}: {problem}"))
        streams.append(msgspec.structs.replace(stream, sync_modes=able or stream.sync_modes))
    return Catalog(tuple(streams))


def _stream(found: messages.CatalogStream) -> Stream:
    known = {m.value: m for m in SyncMode}
    modes = tuple(known[m] for m in found.supported_sync_modes if m in known)
    cursor, key = found.source_defined_cursor, found.source_defined_primary_key
    return Stream(
        id=StreamId.of(None, found.name),
        json_schema=declared(found.schema),
        sync_modes=modes,
        default_cursor_field=(cursor,) if cursor else None,
        source_defined_primary_key=tuple((name,) for name in key) if key else None,
        raw=cast(dict[str, Any], msgspec.to_builtins(found)),
    )
