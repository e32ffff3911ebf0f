"""The pipeline file as structs: every key, its type, its default, its meaning.

:class:`PipelineFile` holds what may be written; :class:`Pipeline` adds what the loader learned
(warnings, where secrets are). Nothing here reads or checks: ``config.reader`` fills the structs,
``config.rules`` relates their keys, ``engine.plan`` resolves them against a source's catalog.
"""

from typing import Annotated, Any, Literal

import msgspec

from penstock.config.sections import (
    Limits,
    LoadBounds,
    LogSettings,
    Permissions,
    Resources,
    SchemaEvolution,
    Section,
    SparkSettings,
    StateSettings,
    Timeouts,
    key,
)
from penstock.model.catalog import DestinationSyncMode, FieldPath, StreamId, SyncMode

__all__ = [
    "Destination",
    "Limits",
    "LoadBounds",
    "LogSettings",
    "Permissions",
    "Pipeline",
    "PipelineFile",
    "Resources",
    "SchemaEvolution",
    "Source",
    "SparkSettings",
    "StateSettings",
    "StreamOptions",
    "StreamSettings",
    "Timeouts",
    "Transform",
]

USE = (
    "`PROTOCOL:NAME[@VERSION]`, `PROTOCOL:./executable`, `PROTOCOL:docker:IMAGE`, a table "
    "(`parquet`, `delta`, `iceberg`, `postgres`), or a name that a Rapidbyte file uses"
)


class StreamSettings(Section, frozen=True, kw_only=True):
    """How a stream is synced. What is absent is the source's best."""

    mode: Annotated[
        str | None,
        key("Both modes in one word (`upsert`, `mirror`, ...).", literal="mode"),
    ] = None
    sync_mode: Annotated[SyncMode | None, key("How the source reads.", literal="sync_mode")] = None
    destination_sync_mode: Annotated[
        DestinationSyncMode | None,
        key("What the destination does with what arrives.", literal="destination_sync_mode"),
    ] = None
    cursor_field: Annotated[
        FieldPath | None,
        key(
            "The field that tells new from old: a name, or a path as a list.",
            literal="field_path",
            examples=["updated_at", ["meta", "updated_at"]],
        ),
    ] = None
    primary_key: Annotated[
        tuple[FieldPath, ...] | None,
        key(
            "The fields that identify a record: a name, a list of names, a list of paths.",
            literal="key_paths",
            examples=["id", ["shop", "id"], [["meta", "id"]]],
        ),
    ] = None
    columns: Annotated[
        tuple[str, ...] | None,
        key(
            "The top-level properties to keep. Default: all.",
            literal="names",
            null="list columns, or remove the key to keep all of them",
        ),
    ] = None


class StreamOptions(StreamSettings, frozen=True, kw_only=True):
    """One stream, and how it is synced."""

    name: Annotated[str, key("The stream's name; `namespace.name` works as well.", literal="name")]
    namespace: Annotated[str | None, key("Its namespace. Default: whichever holds the name.")] = (
        None
    )

    def matches(self, stream: StreamId) -> bool:
        if self.namespace:
            return (self.namespace, self.name) == (stream.namespace, stream.name)
        return self.name in (stream.name, str(stream))


class Connector(Section, frozen=True, kw_only=True):
    """What is run, with what configuration, inside which bounds."""

    use: Annotated[str, key(f"Which connector: {USE}.", literal="name")]
    config: Annotated[dict[str, Any], key("Its configuration; its `spec` says what it takes.")] = (
        msgspec.field(default_factory=dict[str, Any])
    )
    permissions: Annotated[
        Permissions | None,
        key("What it may reach.", null="say what is allowed, or remove the key"),
    ] = None
    limits: Annotated[
        Limits | None, key("How much it may use.", null="give a limit, or remove the key")
    ] = None
    assume_manifest: Annotated[
        dict[str, Any] | None,
        key("Stands in for the manifest that a WebAssembly connector lacks."),
    ] = None

    def __repr__(self) -> str:
        """Without the configuration, which holds secrets."""
        return f"{type(self).__name__}(use={self.use!r}, ...)"


class Source(Connector, frozen=True, kw_only=True):
    """Where records come from."""

    streams: Annotated[
        tuple[StreamOptions, ...] | None,
        key(
            "Which streams to sync. Default: every stream, at its best mode.",
            literal="streams",
            null="list streams, or remove the key to sync every stream",
        ),
    ] = None
    defaults: Annotated[
        StreamSettings, key("Settings of every stream that does not say otherwise.")
    ] = StreamSettings()
    catalog: Annotated[
        str | None,
        key(
            "A Singer tap's catalog file, in place of discovery. A relative path starts at the "
            "pipeline file.",
            literal="file",
            examples=["./catalog.json"],
        ),
    ] = None
    catalog_argument: Annotated[
        Literal["auto", "catalog", "properties", "none"],
        key("How a Singer tap takes its catalog: `--catalog`, `--properties`, or not at all. "
            "`auto`: by what it says of itself, else by trying."),
    ] = "auto"  # fmt: skip


class Transform(Connector, frozen=True, kw_only=True):
    """What records pass through, in the order of the list."""


class Destination(Connector, frozen=True, kw_only=True):
    """Where records go."""

    namespace: Annotated[
        str,
        key(
            "The namespace of every stream at the destination: the `source`'s, the `destination`'s "
            "own, or this text, in which `${SOURCE_NAMESPACE}` is the source's.",
            literal="namespace",
            null="write source, destination or a name, or remove the key to keep the source's",
            examples=["source", "destination", "raw_${SOURCE_NAMESPACE}"],
        ),
    ] = "source"
    prefix: Annotated[
        str, key("Put before the name of every stream.", literal="prefix", examples=["crm_"])
    ] = ""
    acks: Annotated[
        Literal["echo", "strict", "at_end"],
        key("What a destination connector acks with: exit code 0 after the last row (`at_end`), "
            "any state it gives back (`echo`), or whole state messages only (`strict`)."),
    ] = "echo"  # fmt: skip
    activate_version: Annotated[
        Literal["auto", "always", "never"],
        key("Send a Singer target ACTIVATE_VERSION: where it says that it takes it, or as told."),
    ] = "auto"
    stream: Annotated[str | None, key("The stream of a destination connector to write to.")] = None
    options: Annotated[dict[str, Any], key("Options of that stream.")] = msgspec.field(
        default_factory=dict[str, Any]
    )
    write_mode: Annotated[
        str | None,
        key("Mode of every stream, in Rapidbyte's place; as `source.defaults.mode`.",
            literal="mode"),
    ] = None  # fmt: skip
    primary_key: Annotated[
        tuple[FieldPath, ...] | None,
        key("Key of every stream, in Rapidbyte's place; as `source.defaults.primary_key`.",
            literal="key_paths"),
    ] = None  # fmt: skip
    schema_evolution: Annotated[
        SchemaEvolution, key("Where a stream's schema and its table differ.")
    ] = SchemaEvolution()
    deletes: Annotated[
        Literal["hard", "soft"], key("A deleted record: remove its row, or mark it.")
    ] = "hard"
    metadata_columns: Annotated[
        Literal["native", "neutral", "none"],
        key("Names of the row metadata: the source protocol's, Penstock's, or no such columns."),
    ] = "native"
    on_data_error: Annotated[
        Literal["skip", "fail", "dlq"],
        key("A record that is refused: keep it as a reject (`dlq`), fail the run (`fail`), or drop "
            "and count it (`skip`). A Rapidbyte file's default is `fail`."),
    ] = "dlq"  # fmt: skip


class PipelineFile(Section, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A Penstock pipeline: one source, its transforms, one destination."""

    version: Annotated[Literal["1.0"], key("Version of this format.", literal="version")] = "1.0"
    pipeline: Annotated[
        str, key("The pipeline's name. States belong to it.", literal="name", examples=["shop"])
    ]
    source: Annotated[Source, key("Where records come from.")]
    transforms: Annotated[
        tuple[Transform, ...], key("What records pass through, in this order.")
    ] = ()
    destination: Annotated[Destination, key("Where records go.")]
    state: Annotated[StateSettings, key("Where states are kept.")] = StateSettings()
    log: Annotated[LogSettings, key("Where the write-ahead log lies.")] = LogSettings()
    spark: Annotated[SparkSettings, key("The Spark session.")] = SparkSettings()
    lanes: Annotated[
        Literal["auto"] | int,
        key("How many source processes read at a time: a number, or `auto`.", literal="lanes"),
    ] = 1
    strict: Annotated[
        bool, key("Reject a record with a value that does not fit, instead of a NULL.")
    ] = False
    max_record_bytes: Annotated[
        int, key("A longer record is a reject.", literal="positive_size")
    ] = 256 * 1024**2
    timeouts: Annotated[Timeouts, key("How long to wait for a connector.")] = Timeouts()
    load: Annotated[LoadBounds, key("When a long sync loads before its end.")] = LoadBounds()
    resources: Annotated[
        Resources | None, key("Rapidbyte's resources; its connectors see them.")
    ] = None


class Pipeline(PipelineFile, frozen=True, kw_only=True):
    """A pipeline file as read.

    ``origin``: its file's name. ``dialect``: whose defaults hold. ``warnings``: what ``--lenient``
    let pass, one line each. ``secret_paths``: dotted paths of values that came from variables;
    ``secret_values``: those values, to be masked wherever text is written (L10)."""

    origin: str = ""
    dialect: Literal["penstock", "rapidbyte-v4"] = "penstock"
    warnings: tuple[str, ...] = ()
    secret_paths: tuple[str, ...] = ()
    secret_values: frozenset[str] = frozenset()

    def __repr__(self) -> str:
        return (
            f"Pipeline({self.pipeline!r}, source={self.source.use!r}, "
            f"destination={self.destination.use!r}, ...)"
        )

    def wish(self, stream: StreamId) -> StreamSettings | None:
        """What the user asked of a stream: its own entry over ``source.defaults``. None: the user
        listed streams, and not this one."""
        listed = self.source.streams
        defaults = self.source.defaults
        if listed is None:
            return defaults
        found = [entry for entry in listed if entry.matches(stream)]
        if not found:
            return None
        return overlay(defaults, max(found, key=lambda entry: bool(entry.namespace)))


def overlay(base: StreamSettings, over: StreamSettings) -> StreamSettings:
    """``base`` with everything that ``over`` says. A mode said above hides the words below."""
    said = {
        field: value
        for field in StreamSettings.__struct_fields__
        if (value := getattr(over, field)) is not None
    }
    modes = {"mode", "sync_mode", "destination_sync_mode"}
    if modes & said.keys() and "mode" not in said:
        said["mode"] = None
    return msgspec.structs.replace(base, **said)
