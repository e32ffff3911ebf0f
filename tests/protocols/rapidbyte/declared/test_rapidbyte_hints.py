"""Precedence of run-time hints, shards, and where connectors lie (protocol, section 6.1; issue 5,
parts 11 and 16)."""

from pathlib import Path
from typing import Any, cast

import pytest

from penstock.config.sections import Autotune, Resources
from penstock.errors import ConfigError
from penstock.model.catalog import (
    ConfiguredStream,
    ConnectorSpec,
    DestinationSyncMode,
    Shard,
    Stream,
    StreamId,
    SyncMode,
)
from penstock.model.types import RowSchema
from penstock.protocols.rapidbyte.declared.hints import (
    ChosenValue,
    Pins,
    flush_bytes,
    parallelism,
    shardable,
    shards,
    strategy,
)
from penstock.protocols.rapidbyte.declared.manifest import ComponentManifest
from penstock.protocols.rapidbyte.declared.settings import ComponentSettings
from penstock.protocols.rapidbyte.declared.sharding import RapidbyteShards, divided
from penstock.protocols.rapidbyte.declared.stream_context import context_of
from penstock.protocols.rapidbyte.lookup import component_file, parts
from penstock.protocols.rapidbyte.wire.messages import StreamContext, WriteMode
from penstock.protocols.rapidbyte.write.write_context import WriteSettings
from penstock.protocols.writing import WriteStream

CONTEXT = StreamContext(stream_name="users", sync_mode="full_refresh")
POSTGRES = ComponentManifest(
    id="rapidbyte/source-postgres", name="PostgreSQL", version="1", protocol_version="4"
)


@pytest.mark.parametrize(
    "pin, autotune, slots, able, expected",
    [
        (3, True, 8, True, ChosenValue(3, "pin")),
        (3, False, 8, False, ChosenValue(3, "pin")),
        (None, True, 8, True, ChosenValue(8, "autotune")),
        (None, True, 8, False, ChosenValue(1, "default")),
        (None, True, 1, True, ChosenValue(1, "default")),
        (None, False, 8, True, ChosenValue(1, "default")),
    ],
)
def test_parallelism(pin: int | None, autotune: bool, slots: int, able: bool, expected: Any):
    pins = Pins(parallelism=pin)
    assert parallelism(pins, autotune=autotune, slots=slots, shardable=able) == expected


def test_strategy():
    assert strategy(Pins(), autotune=True, shards=1) == ChosenValue(None, "default")
    assert strategy(Pins(), autotune=True, shards=2) == ChosenValue("mod", "autotune")
    assert strategy(Pins(), autotune=False, shards=2) == ChosenValue("mod", "default")
    pinned = Pins(partition_strategy="range")
    assert strategy(pinned, autotune=True, shards=2) == ChosenValue("range", "pin")
    unused = ChosenValue(None, "default: range is pinned, and nothing is divided")
    assert strategy(pinned, autotune=True, shards=1) == unused


@pytest.mark.parametrize(
    "pin, expected",
    [(None, None), (1, 1 << 20), (5 << 20, 5 << 20), (1 << 30, 32 << 20)],
)
def test_flush_bytes_within_v4s_bounds(pin: int | None, expected: int | None):
    chosen = flush_bytes(Pins(copy_flush_bytes=pin))
    assert chosen == ChosenValue(expected, "default" if pin is None else "pin")


@pytest.mark.parametrize(
    "manifest, changes, columns, able",
    [
        (POSTGRES, {}, [("id", "Int64")], True),
        (POSTGRES, {}, [("id", "Utf8")], False),
        (POSTGRES, {}, [("key", "Int64")], False),
        (POSTGRES, {"sync_mode": "incremental"}, [("id", "Int64")], False),
        (POSTGRES, {"write_mode": WriteMode(mode="replace")}, [("id", "Int64")], False),
        (None, {}, [("id", "Int64")], False),
    ],
)
def test_what_v4s_own_source_divides(manifest: Any, changes: Any, columns: Any, able: bool):
    fields = {"stream_name": "users", "sync_mode": "full_refresh", **changes}
    assert shardable(manifest, StreamContext(**fields), columns) is able


def test_shards_are_the_stream_with_its_parts_numbered():
    made = shards(CONTEXT, 3, "range")
    assert [c.partition_index for c in made] == [0, 1, 2]
    for context in made:
        assert context.stream_name == context.source_stream_name == "users"
        assert (context.partition_count, context.partition_strategy) == (3, "range")
        assert context.effective_parallelism == 3
    (alone,) = shards(CONTEXT, 1, None)
    assert alone.partition_count is None and alone.effective_parallelism == 1


def test_every_stage_is_told_the_same_parallelism():
    """Reference, section 2.2: one context for all stages of a stream."""
    stream = ConfiguredStream(
        stream=Stream(id=StreamId(None, "users"), json_schema={}),
        sync_mode=SyncMode.full_refresh,
        destination_sync_mode=DestinationSyncMode.append,
        shards=4,
    )
    context = context_of(ComponentSettings(), stream, None)
    written = WriteStream(
        configured=stream, target=stream.id, schemas={1: RowSchema((), 1)}, latest=1
    )
    terms = WriteSettings(
        stage=cast(Any, None), settings=ComponentSettings(), runtime=cast(Any, None), at_once=1,
        narrow=False,
    )  # fmt: skip
    source = divided(context, Shard(1, 4), Resources())
    told = [context, terms.context(written, 1), source]
    assert [c.effective_parallelism for c in told] == [4, 4, 4]


@pytest.mark.parametrize(
    ("mode", "resources", "count"),
    [
        (SyncMode.full_refresh, Resources(parallelism=4), 1),
        (SyncMode.full_refresh, Resources(autotune=Autotune(pin_parallelism=4)), 4),
        (SyncMode.incremental, Resources(autotune=Autotune(pin_parallelism=4)), 1),
        (SyncMode.full_refresh, Resources(autotune=Autotune(pin_source_partition_mode="mod")), 1),
    ],
)
def test_a_source_that_is_not_known_to_divide_a_stream_reads_it_once(
    mode: SyncMode, resources: Resources, count: int
):
    """Issue 5, part 11: it would read everything in each shard; and a cursor has one place."""
    stream = ConfiguredStream(
        stream=Stream(id=StreamId(None, "users"), json_schema={}),
        sync_mode=mode,
        destination_sync_mode=DestinationSyncMode.append,
        cursor_field=("id",) if mode is SyncMode.incremental else (),
    )
    spec = ConnectorSpec(protocol="rapidbyte", config_schema={})
    found = RapidbyteShards().shards(spec, stream, resources, 8)
    hint = next(h for h in found.hints if h.name == "effective_parallelism")
    assert (found.count, hint.value) == (count, count)
    assert hint.rule == "pin" if count > 1 else hint.rule.startswith("default: ")


# -- part 16


@pytest.mark.parametrize(
    "reference, expected",
    [
        ("source-postgres", ("source-postgres", None)),
        ("rapidbyte/source-postgres@v1.2.0", ("source-postgres", "1.2.0")),
        ("a/b/x@3", ("x", "3")),
    ],
)
def test_references(reference: str, expected: tuple[str, str | None]):
    assert parts(reference) == expected


@pytest.mark.parametrize("reference", ["", "../x", "a b", "x@", "/etc/passwd", "x/.."])
def test_what_is_no_reference(reference: str):
    with pytest.raises(ConfigError):
        parts(reference)


def test_the_variables_folder_comes_first(tmp_path: Path):
    plugins = tmp_path / "home" / ".rapidbyte" / "plugins"
    own = tmp_path / "own"
    for folder in (plugins, own):
        folder.mkdir(parents=True)
    environ = {"RAPIDBYTE_CONNECTOR_DIR": str(own)}
    with pytest.raises(ConfigError) as caught:
        component_file("source-postgres", environ, tmp_path / "home")
    assert str(own) in caught.value.message and str(plugins) in caught.value.message
    (plugins / "source_postgres.wasm").touch()
    found = component_file("ns/source-postgres@1", environ, tmp_path / "home")
    assert found.parent == plugins
    (own / "source_postgres.wasm").touch()
    assert component_file("source-postgres", environ, tmp_path / "home").parent == own
    assert component_file("source-postgres", {}, tmp_path / "home").parent == plugins
