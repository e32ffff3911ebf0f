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
    divided_as_in_v4,
    flush_bytes,
    parallelism,
    shards,
    strategy,
)
from penstock.protocols.rapidbyte.declared.manifest import ComponentManifest
from penstock.protocols.rapidbyte.declared.settings import ComponentSettings
from penstock.protocols.rapidbyte.declared.sharding import RapidbyteShards, divided
from penstock.protocols.rapidbyte.declared.stream_context import context_of
from penstock.protocols.rapidbyte.lookup import component_file, parts
from penstock.protocols.rapidbyte.wire.messages import ColumnSchema, StreamContext, WriteMode
from penstock.protocols.rapidbyte.write.write_context import WriteSettings
from penstock.protocols.writing import WriteStream

CONTEXT = StreamContext(stream_name="users", sync_mode="full_refresh")
POSTGRES = ComponentManifest(
    id="rapidbyte/source-postgres", name="PostgreSQL", version="1", protocol_version="4"
)


@pytest.mark.parametrize(
    "pin, autotune, slots, expected",
    [
        (3, True, 8, ChosenValue(3, "pin")),
        (3, False, 8, ChosenValue(3, "pin")),
        (None, True, 8, ChosenValue(8, "autotune")),
        (None, True, 1, ChosenValue(1, "default")),
        (None, False, 8, ChosenValue(1, "default")),
    ],
)
def test_parallelism(pin: int | None, autotune: bool, slots: int, expected: Any):
    assert parallelism(Pins(parallelism=pin), autotune=autotune, slots=slots) == expected


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
    for autotune in (True, False) if pin else (False,):
        chosen = flush_bytes(Pins(copy_flush_bytes=pin), autotune=autotune, batch=1 << 30)
        assert chosen == ChosenValue(expected, "default" if pin is None else "pin")


@pytest.mark.parametrize(
    "batch, memory, expected",
    [
        (64 << 20, None, 8 << 20),
        (1 << 20, None, 1 << 20),
        (1 << 30, None, 32 << 20),
        (64 << 20, 64 << 20, 4 << 20),
        (64 << 20, 8 << 20, 1 << 20),
        (64 << 20, 1 << 30, 8 << 20),
    ],
)
def test_autotune_decides_the_flush_size_too(batch: int, memory: int | None, expected: int):
    """Section 6.1: the user's pin, the host's decision, the connector's default, for each knob."""
    chosen = flush_bytes(Pins(), autotune=True, batch=batch, memory=memory)
    assert chosen == ChosenValue(expected, "autotune")


def test_a_flush_size_of_the_destinations_own_is_replaced_by_a_pin_alone():
    pinned = Resources(autotune=Autotune(pin_copy_flush_bytes=2 << 20))
    assert ComponentSettings().copy_flush_bytes(configured=True).value is None
    assert ComponentSettings(resources=pinned).copy_flush_bytes(configured=True).value == 2 << 20
    small = ComponentSettings(resources=Resources(max_memory=64 << 20))
    assert small.copy_flush_bytes().value == 4 << 20
    assert small.copy_flush_bytes(32 << 20).value == 2 << 20


ID = ColumnSchema(name="id", data_type="Int64", nullable=False)
LOOSE_ID = ColumnSchema(name="id", data_type="Int64")


@pytest.mark.parametrize(
    "manifest, changes, columns, key, able",
    [
        (POSTGRES, {}, [ID], (), True),
        (POSTGRES, {}, [LOOSE_ID], (), False),  # a null id is in no shard
        (POSTGRES, {}, [LOOSE_ID], ("id",), True),
        (POSTGRES, {}, [LOOSE_ID], ("key",), False),
        (POSTGRES, {}, [ColumnSchema(name="id", data_type="Utf8", nullable=False)], (), False),
        (POSTGRES, {}, [ColumnSchema(name="key", data_type="Int64", nullable=False)], (), False),
        (POSTGRES, {"sync_mode": "incremental"}, [ID], (), False),
        (POSTGRES, {"write_mode": WriteMode(mode="replace")}, [ID], (), False),
        (None, {}, [ID], (), False),
    ],
)
def test_what_v4s_own_source_divides(
    manifest: Any, changes: Any, columns: Any, key: Any, able: bool
):
    fields = {"stream_name": "users", "sync_mode": "full_refresh", **changes}
    assert divided_as_in_v4(manifest, StreamContext(**fields), columns, key) is able


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


REST, DIVIDES = "them/source-rest", "us/source-numbers"
FULL = SyncMode.full_refresh
PIN = Resources(autotune=Autotune(pin_parallelism=4))


def manifest_of(name: str, *, divides: bool) -> dict[str, Any]:
    return {
        "id": name, "name": name, "version": "1", "protocol_version": "4",
        "roles": {"source": {
            "supported_sync_modes": ["full_refresh", "incremental"], "partitioned_read": divides,
        }},
    }  # fmt: skip


@pytest.mark.parametrize(
    ("source", "mode", "target", "resources", "count", "rule"),
    [
        (None, FULL, "append", PIN, 1, "default: its source is not known"),
        (REST, FULL, "append", PIN, 1, "default: its source is not known"),
        (REST, FULL, "append", Resources(parallelism=4), 1, "default: its source is not known"),
        (REST, FULL, "append", Resources(), 1, "default: its source is not known"),
        (REST, SyncMode.incremental, "append", PIN, 1, "default: only a full refresh"),
        (DIVIDES, FULL, "append", PIN, 4, "pin"),
        (DIVIDES, FULL, "overwrite", PIN, 4, "pin"),
        (DIVIDES, FULL, "append", Resources(parallelism=3), 3, "pin"),
        (DIVIDES, FULL, "append", Resources(), 1, "default: `resources.parallelism`"),
        (DIVIDES, SyncMode.incremental, "append", PIN, 1, "default: only a full refresh"),
        (
            POSTGRES.id,
            FULL,
            "append",
            PIN,
            4,
            "pin: divided by `id`: rows with a negative `id` are in no",
        ),
        (POSTGRES.id, FULL, "append", Resources(), 8, "autotune: divided by `id`"),
        (POSTGRES.id, FULL, "append", Resources(parallelism=1), 1, "pin"),
        (POSTGRES.id, FULL, "overwrite", PIN, 1, "default: its source is not known"),
    ],
)
def test_a_pin_divides_no_stream_whose_source_is_not_known_to_divide_it(
    source: str | None, mode: SyncMode, target: str, resources: Resources, count: int, rule: str
):
    """The protocol, section 6.1: hints change no semantics. Such a source would read everything in
    each shard, and append would keep every copy; and a cursor has one place."""
    stream = ConfiguredStream(
        stream=Stream(
            id=StreamId(None, "users"), json_schema={},
            raw={"schema": [{"name": "id", "data_type": "Int32", "nullable": False}]},
        ),
        sync_mode=mode,
        destination_sync_mode=DestinationSyncMode(target),
        cursor_field=("id",) if mode is SyncMode.incremental else (),
    )  # fmt: skip
    spec = ConnectorSpec(
        protocol="rapidbyte", config_schema={},
        abilities={} if source is None
        else {"manifest": manifest_of(source, divides=source == DIVIDES)},
    )  # fmt: skip
    found = RapidbyteShards().shards(spec, stream, resources, 8)
    hint = next(h for h in found.hints if h.name == "effective_parallelism")
    assert (found.count, hint.value) == (count, count)
    assert hint.rule.startswith(rule)


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
