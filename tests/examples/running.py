"""Runs an example's component through the protocol's own roles, under its own manifest."""

from collections.abc import Iterable
from functools import cache
from typing import Any

import built
import pyarrow as pa

from penstock.config.sections import Permissions
from penstock.protocols.rapidbyte.declared.manifest import ManifestResult, read_manifest
from penstock.protocols.rapidbyte.declared.permissions import effective
from penstock.protocols.rapidbyte.guest import stream_run
from penstock.protocols.rapidbyte.guest.events import Frame, RunEnded, StageEvent
from penstock.protocols.rapidbyte.guest.session import CompiledConnector, load
from penstock.protocols.rapidbyte.guest.stage import Stage
from penstock.protocols.rapidbyte.wire.arrow_ipc import frame_of
from penstock.protocols.rapidbyte.wire.messages import CursorInfo, CursorValue, StreamContext
from penstock.runtimes.wasm.compile_cache import CompileCache

FULL = StreamContext(stream_name="numbers", sync_mode="full_refresh")


@cache
def component(name: str) -> bytes:
    return built.example(name).read_bytes()


def manifest(name: str) -> ManifestResult:
    return read_manifest(component(name))


def role_of(name: str) -> Any:
    return built.EXAMPLES[name].role


@cache
def loaded(name: str) -> CompiledConnector:
    found = load(component(name), role_of(name), CompileCache(built.COMPILED))
    assert found.plain is None, found.plain
    return found


def stage(name: str, config: dict[str, Any], permissions: Permissions | None = None) -> Stage:
    allowed = effective(manifest(name), permissions, None, config)
    return Stage(loaded(name), config, allowed, role_of(name))


def run(
    name: str,
    config: dict[str, Any],
    feed: Iterable[Any] = (),
    context: StreamContext = FULL,
    permissions: Permissions | None = None,
) -> list[StageEvent]:
    made = stage(name, config, permissions)
    if role_of(name) == "source":
        return list(stream_run.read(made, context))
    takes = stream_run.write if role_of(name) == "destination" else stream_run.apply
    return list(takes(made, context, feed))


def ended(told: list[StageEvent]) -> RunEnded:
    assert isinstance(told[-1], RunEnded)
    return told[-1]


def counts(told: list[StageEvent]) -> dict[str, int]:
    last = ended(told)
    assert last.error is None, last.error
    assert last.summary is not None
    return last.summary.counts


def frames(told: list[StageEvent]) -> list[bytes]:
    return [bytes(t.data) for t in told if isinstance(t, Frame)]


def table(told: list[StageEvent]) -> Any:
    tables: list[Any] = []
    for frame in frames(told):
        with pa.ipc.open_stream(frame) as reader:
            tables.append(reader.read_all())
        tables[-1].validate(full=True)
    return pa.concat_tables(tables)


def arrow(**columns: Any) -> bytes:
    return bytes(frame_of(pa.RecordBatch.from_pydict(columns)))


def incremental(since: str | None = None, field: str = "id") -> StreamContext:
    info = CursorInfo(cursor_field=field, cursor_type="utf8")
    if since is not None:
        value = CursorValue(type="utf8", value=since)
        info = CursorInfo(cursor_field=field, cursor_type="utf8", last_value=value)
    return StreamContext(stream_name="numbers", sync_mode="incremental", cursor_info=info)
