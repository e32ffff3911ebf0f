"""Defines the pipeline file as structs: every key, its type, its default, its description.

:class:`PipelineFile` has the keys of the file; :class:`Pipeline` adds what the loader found
(warnings, secrets, line numbers). Class docstrings and descriptions are published by
``config.schema``. Not here: reading (``config.reader``), rules between keys
(``config.cross_checks``), resolving against a source's catalog (``engine.plan.streams``).
"""

from fnmatch import fnmatchcase
from typing import Annotated, Any, Literal

import msgspec

from penstock.config.place import Place
from penstock.config.sections import (
    ContainerSettings,
    HookSettings,
    Install,
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
from penstock.model.rejected import MaxRejected
from penstock.model.types import DataType

__all__ = [
    "ContainerSettings",
    "Destination",
    "Enrichment",
    "EnrichmentCache",
    "HookSettings",
    "Install",
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
    "(`parquet`, `delta`), or a name that a Rapidbyte file uses"
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
        key("What the destination does with the rows.", literal="destination_sync_mode"),
    ] = None
    cursor_field: Annotated[
        FieldPath | None,
        key(
            "The field that shows what is new: a name, or a path as a list.",
            literal="field_path",
            examples=["updated_at", ["meta", "updated_at"]],
        ),
    ] = None
    cursor_order: Annotated[
        Literal["value", "text"] | None,
        key(
            "How a table compares cursors that are text, to keep the newest row of a key: `value` "
            "compares whole numbers and ISO 8601 times by their values, and of other text the row "
            "that came later is the newer; `text` compares all text byte by byte. Default: `value`."
        ),
    ] = None
    history: Annotated[
        Literal["on", "off", "keyed"] | None,
        key(
            "Whether its table keeps every version of a key, with `__START_AT`, `__END_AT` and "
            "`is_current` (a slowly changing dimension, type 2). Only for a local Delta or Parquet "
            "table. `keyed`, for `defaults`: where the stream has a primary key. Default: as its "
            "table was written, else false.",
            literal="history",
            examples=[True],
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
        tuple[str | FieldPath, ...] | None,
        key(
            "The properties to keep: names, and of an object only a part of it with `address.city` "
            "or `[address, city]`; patterns (`*_at`); `!email` leaves one out. Default: all.",
            literal="columns",
            null="list columns, or remove the key to keep all of them",
            examples=[["id", "address.city", ["meta", "a.b"]], ["!email"]],
        ),
    ] = None
    types: Annotated[
        dict[str, Annotated[DataType, key("A type, as `plan -v` prints it.", literal="type")]]
        | None,
        key(
            "Types of top-level properties, in place of the source's: `integer`, `decimal(18,4)`, "
            "`timestamp`, `json`, ..., as `plan -v` prints them.",
            examples=[{"price": "decimal(18,4)", "created": "timestamp"}],
        ),
    ] = None
    undeclared: Annotated[
        Literal["keep", "columns", "drop"] | None,
        key(
            "Properties of records that the stream's schema does not declare: `keep` them in one "
            "JSON column `_penstock_extra`, give each a JSON column of its own (`columns`), or "
            "`drop` them. What `columns`, the catalog's selection or `additionalProperties: false` "
            "leaves out is never kept. Default: `keep` for a Singer tap, else `drop`."
        ),
    ] = None
    max_rejected: Annotated[
        MaxRejected | None,
        key(
            "How many of its records may be rejected before the stream fails: a number, or a "
            "percentage (`5%`). Default: the pipeline's.",
            literal="max_rejected",
            examples=[100, "5%"],
        ),
    ] = None
    retry_rejected: Annotated[
        int | None,
        key(
            "In how many later runs a rejected row is sent again; only for a model that is "
            "compared with what was sent before. Default: 0, it counts as sent.",
            literal="count",
            examples=[3],
        ),
    ] = None


class StreamOptions(StreamSettings, frozen=True, kw_only=True):
    """One stream, and how it is synced."""

    name: Annotated[
        str,
        key(
            "The stream's name; `namespace.name` works as well, and `*` and `?` stand for any text "
            "and any character.",
            literal="name",
            examples=["users", "shop.*"],
        ),
    ]
    namespace: Annotated[str | None, key("Its namespace. Default: whichever holds the name.")] = (
        None
    )

    @property
    def is_pattern(self) -> bool:
        """Whether the name is a pattern for several streams."""
        return "*" in self.name or "?" in self.name

    def matches(self, stream: StreamId) -> bool:
        """Whether ``stream`` has this name (with or without its namespace), or fits the pattern."""
        if self.namespace:
            return self.namespace == stream.namespace and self._fits(stream.name)
        return self._fits(stream.name) or self._fits(str(stream))

    def _fits(self, name: str) -> bool:
        if name == self.name or not self.is_pattern:
            return name == self.name
        return fnmatchcase(name, self.name.replace("[", "[[]"))


class ConnectorSection(Section, frozen=True, kw_only=True):
    """What is run, with what configuration, inside which bounds."""

    use: Annotated[str, key(f"Which connector: {USE}.", literal="connector")]
    config: Annotated[dict[str, Any], key("Its configuration, as its `spec` describes it.")] = (
        msgspec.field(default_factory=dict[str, Any])
    )
    permissions: Annotated[
        Permissions | None,
        key("What it may reach.", null="list what is allowed, or remove the key"),
    ] = None
    limits: Annotated[
        Limits | None, key("How much it may use.", null="give a limit, or remove the key")
    ] = None
    folder: Annotated[
        str | None,
        key(
            "The folder that the connector runs in, and where its relative paths start. A relative "
            "path starts at the pipeline file's folder, which is the default.",
            literal="folder",
            examples=["./connectors/crm"],
        ),
    ] = None
    container: Annotated[ContainerSettings, key("How it runs where it is a container image.")] = (
        ContainerSettings()
    )
    install: Annotated[Install, key("How its environment is made.")] = Install()
    assume_manifest: Annotated[
        dict[str, Any] | None,
        key("Stands in for the manifest that a WebAssembly connector lacks."),
    ] = None

    def __repr__(self) -> str:
        """Without the configuration, which holds secrets."""
        return f"{type(self).__name__}(use={self.use!r}, ...)"


class Source(ConnectorSection, frozen=True, kw_only=True):
    """Where records come from."""

    streams: Annotated[
        tuple[StreamOptions, ...] | None,
        key(
            "Which streams to sync. Default: all of them, incremental where supported.",
            literal="streams",
            null="list streams, or remove the key to sync every stream",
        ),
    ] = None
    exclude: Annotated[
        tuple[str, ...],
        key(
            "Streams to leave out, named as in `streams`.",
            literal="names",
            examples=[["audit_log", "tmp_*"]],
        ),
    ] = ()
    defaults: Annotated[StreamSettings, key("Defaults for the settings of every stream.")] = (
        StreamSettings()
    )
    catalog: Annotated[
        str | None,
        key(
            "A Singer tap's catalog file, in place of discovery. A relative path starts at the "
            "pipeline file.",
            literal="file",
            examples=["./catalog.json"],
        ),
    ] = None
    discover: Annotated[
        Literal["first", "beside"] | None,
        key(
            "Discover its streams before it is read (`first`), or during the read (`beside`). "
            "Default: `beside`, but `first` if a second process could harm the read (a refresh "
            "token, cdc, a queue)."
        ),
    ] = None
    protocol_keys: Annotated[
        dict[str, Any], key("Keys that protocols declare for a source.", declared="source")
    ] = {}  # noqa: RUF012
    same_as: Annotated[
        str | None,
        key(
            "The earlier `use` of this same source, from whose saved state it goes on.",
            literal="name",
            examples=["singer:tap-shop"],
        ),
    ] = None
    attempts: Annotated[
        int,
        key("How often an Airbyte source is started in one run for a stream that failed with "
            "`transient_error`; 1: once.", literal="positive_int"),
    ] = 3  # fmt: skip
    backoff: Annotated[
        float,
        key("How long to wait before its second attempt; each one after it waits three times as "
            "long.", literal="positive_duration"),
    ] = 10.0  # fmt: skip


class Transform(ConnectorSection, frozen=True, kw_only=True):
    """What records pass through, in the order of the list."""


class EnrichmentCache(Section, frozen=True, kw_only=True):
    """How long an enrichment's answer is good, and for which records."""

    ttl: Annotated[float, key("An older answer is requested again.", literal="positive_duration")]
    by: Annotated[
        tuple[str, ...],
        key(
            "The properties on which the answer depends. Default: the stream's primary key, or all "
            "properties where it has none.",
            literal="names",
            examples=[["email"]],
        ),
    ] = ()


class Enrichment(ConnectorSection, frozen=True, kw_only=True):
    """A connector that gets each record; its answer replaces the record."""

    options: Annotated[dict[str, Any], key("Options, in the enrichment's words.")] = msgspec.field(
        default_factory=dict[str, Any]
    )
    streams: Annotated[
        tuple[str, ...] | None,
        key(
            "The streams that it enriches, named as in `source.streams`. Default: all.",
            literal="names",
            null="list streams, or remove the key to enrich every stream",
            examples=[["users", "crm_*"]],
        ),
    ] = None
    processes: Annotated[
        int,
        key("How many processes of it work at once. Records keep their order.",
            literal="positive_int"),
    ] = 1  # fmt: skip
    ahead: Annotated[
        int,
        key("How many records a process is sent before it has answered the first of them. More "
            "than 1 only for an enrichment that answers in the order of the requests: answers "
            "have no ids.", literal="positive_int"),
    ] = 1  # fmt: skip
    on_error: Annotated[
        Literal["reject", "pass"],
        key("What happens to a record without an answer, or whose answer does not fit: it "
            "becomes a reject, which `on_data_error` then treats (`reject`), or goes on unchanged "
            "(`pass`)."),
    ] = "reject"  # fmt: skip
    adds: Annotated[
        dict[str, Annotated[DataType, key("A type, as `plan -v` prints it.", literal="type")]],
        key(
            "Types of properties that it adds. Any other has the type of its first value.",
            examples=[{"company": "string", "score": "number"}],
        ),
    ] = msgspec.field(default_factory=dict[str, DataType])
    cache: Annotated[
        EnrichmentCache | None,
        key("Keep answers in the state store.", null="give a ttl, or remove the key"),
    ] = None


class Destination(ConnectorSection, frozen=True, kw_only=True):
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
    protocol_keys: Annotated[
        dict[str, Any],
        key("Keys that protocols declare for a destination.", declared="destination"),
    ] = {}  # noqa: RUF012
    attempts: Annotated[
        int,
        key("How often an Airbyte destination is started in one run where it failed with "
            "`transient_error`; 1: once.", literal="positive_int"),
    ] = 3  # fmt: skip
    backoff: Annotated[
        float,
        key("How long to wait before its second attempt; each one after it waits three times as "
            "long.", literal="positive_duration"),
    ] = 10.0  # fmt: skip
    stream: Annotated[
        str | None,
        key("The destination connector's stream to write to; empty text: its default. Absent: the "
            "one with the stream's own name, else its default."),
    ] = None  # fmt: skip
    options: Annotated[dict[str, Any], key("Options of that stream.")] = msgspec.field(
        default_factory=dict[str, Any]
    )
    mapping: Annotated[
        dict[str, str],
        key("The fields of that stream, each with the column that it is given. Only these are "
            "sent. Default: every column under its own name.",
            examples=[{"email_address": "email", "externalId": "id"}]),
    ] = {}  # noqa: RUF012  # fmt: skip
    write_mode: Annotated[
        str | None,
        key("Rapidbyte's mode of every stream, as `source.defaults.mode`.",
            literal="mode"),
    ] = None  # fmt: skip
    primary_key: Annotated[
        tuple[FieldPath, ...] | None,
        key("Rapidbyte's primary key of every stream, as `source.defaults.primary_key`.",
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
    enrichments: Annotated[
        tuple[Enrichment, ...],
        key("Connectors that enrich records, in this order, after their transforms."),
    ] = ()
    destination: Annotated[Destination, key("Where records go.")]
    state: Annotated[StateSettings, key("Where states are kept.")] = StateSettings()
    log: Annotated[LogSettings, key("Where the write-ahead log lies.")] = LogSettings()
    keep: Annotated[
        float | None,
        key("How long the log and the report of a past run stay, such as `30d`; the newest run's "
            "and rejects always do. Default: for ever.", literal="time_kept", examples=["30d"]),
    ] = None  # fmt: skip
    spark: Annotated[SparkSettings, key("The Spark session.")] = SparkSettings()
    lanes: Annotated[
        Literal["auto"] | int,
        key("How many source processes read at a time: a number, or `auto`.", literal="lanes"),
    ] = 1
    strict: Annotated[
        bool, key("Reject a record with a value that does not fit, instead of a NULL.")
    ] = False
    max_rejected: Annotated[
        MaxRejected | None,
        key(
            "How many records of a stream may be rejected before it fails: a number, or a "
            "percentage (`5%`). Default: all but one; with `100%` all may be.",
            literal="max_rejected",
            examples=[100, "5%"],
        ),
    ] = None
    max_record_bytes: Annotated[
        int, key("A longer record is a reject.", literal="positive_size")
    ] = 256 * 1024**2
    id: Annotated[
        str | None,
        key(
            "An id in place of the folder that relative paths start at, for a checkout that moves "
            "by plan (CI, a container).",
            literal="name",
            examples=["shop-production"],
        ),
    ] = None
    timeouts: Annotated[Timeouts, key("How long to wait for a connector.")] = Timeouts()
    hooks: Annotated[HookSettings, key("Who is notified when a run ends.")] = HookSettings()
    load: Annotated[LoadBounds, key("When a long sync loads before its end.")] = LoadBounds()
    resources: Annotated[
        Resources | None, key("Rapidbyte's resources; its connectors see them.")
    ] = None


class Pipeline(PipelineFile, frozen=True, kw_only=True):
    """A pipeline file as read.

    ``origin``: the file's name. ``profiles``: the names of its profiles. ``dialect``: whose
    defaults apply. ``warnings``: faults that ``--lenient`` ignored, one line each.
    ``secret_paths``: dotted paths of values that the file marks as secret or that came from
    variables; ``secret_values``: those values, masked wherever text is written (L10). ``lines``:
    line numbers of keys and items, by dotted path. ``env_file_names``: the variables that
    ``env_file``, the file ``.env`` next to the pipeline file, gave. ``place``: where its relative
    paths start; None: none of it can move. ``read_with``: the options of the command line with
    which the file is read; ``renamed``: one of them gave the name."""

    origin: str = ""
    profiles: tuple[str, ...] = ()
    dialect: Literal["penstock", "rapidbyte-v4"] = "penstock"
    warnings: tuple[str, ...] = ()
    secret_paths: tuple[str, ...] = ()
    secret_values: frozenset[str] = frozenset()
    lines: dict[str, int] = msgspec.field(default_factory=dict[str, int])
    env_file: str | None = None
    env_file_names: tuple[str, ...] = ()
    place: Place | None = None
    read_with: tuple[str, ...] = ()
    renamed: bool = False

    def __repr__(self) -> str:
        return (
            f"Pipeline({self.pipeline!r}, source={self.source.use!r}, "
            f"destination={self.destination.use!r}, ...)"
        )

    def position(self, path: str) -> str | None:
        """The file and line of a dotted path, as ``shop.yaml:7``; where the file lacks it, of its
        nearest parent. None where the file has neither."""
        while path:
            if path in self.lines:
                return f"{self.origin}:{self.lines[path]}"
            path = path[: max(path.rfind("."), path.rfind("["), 0)]
        return None

    def stream_settings(self, stream: StreamId) -> StreamSettings | None:
        """The user's settings of a stream: its entry in ``source.streams`` over
        ``source.defaults``. None where the stream is excluded, or others are listed and it is
        not."""
        if any(StreamOptions(name=name).matches(stream) for name in self.source.exclude):
            return None
        listed = self.source.streams
        defaults = self.source.defaults
        if listed is None:
            return defaults
        matching = [entry for entry in listed if entry.matches(stream)]
        if not matching:
            return None
        exact = [e for e in matching if StreamId(e.namespace, e.name) == stream]
        closest = max(
            exact or matching, key=lambda e: (not e.is_pattern, bool(e.namespace), len(e.name))
        )
        return overlay(defaults, closest)


def overlay(base: StreamSettings, over: StreamSettings) -> StreamSettings:
    """``base`` with the settings of ``over`` in place of its own. A mode in ``over`` hides the word
    ``mode`` of ``base``; types are merged column by column."""
    settings = {
        field: value
        for field in StreamSettings.__struct_fields__
        if (value := getattr(over, field)) is not None
    }
    modes = {"mode", "sync_mode", "destination_sync_mode"}
    if modes & settings.keys() and "mode" not in settings:
        settings["mode"] = None
    if over.types and base.types:
        settings["types"] = {**base.types, **over.types}
    return msgspec.structs.replace(base, **settings)
