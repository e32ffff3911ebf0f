"""Declares the JSON documents and records that cross between a Rapidbyte v4 connector and its host.

Fields, spellings and defaults only. Enumerations are snake_case, as in the documents; unknown keys
are ignored, as both sides of v4 do. Not here: the kebab-case names of WIT (``wit_records``).
Sources: the protocol, sections 3 to 6; the v4 host's documents.
"""

from typing import Any, Literal, TypeVar

import msgspec

K = TypeVar("K")


class OmitDefaults(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Base of documents that omit every key with its default value."""


class WriteAll(msgspec.Struct, frozen=True, kw_only=True):
    """Base of documents that write every key."""


# -- connector-error


class ConnectorFault(WriteAll, frozen=True, kw_only=True):
    """A ``connector-error`` with all its fields (section 5). ``details_json`` is verbatim."""

    category: str
    code: str
    message: str
    scope: str = "stream"
    retryable: bool = False
    retry_after_ms: int | None = None
    backoff_class: str = "normal"
    safe_to_retry: bool = False
    commit_state: str | None = None
    details_json: str | None = None

    def __str__(self) -> str:
        return f"[{self.category}] {self.code}: {self.message}"

    def report(self) -> dict[str, Any]:
        """Returns all fields, for the report of a run; ``details`` is data where it is JSON, else
        text."""
        fields: dict[str, Any] = msgspec.to_builtins(self)
        raw = fields.pop("details_json")
        fields["details"] = None
        if raw is not None:
            try:
                fields["details"] = decode_json(raw.encode(), object)
            except ValueError:
                fields["details"] = raw
        return fields


class Refusal(Exception):
    """Raised by a host function that refuses a call: the guest gets ``fault`` as its result."""

    def __init__(self, fault: ConnectorFault) -> None:
        super().__init__(str(fault))
        self.fault = fault


def refusal(category: str, code: str, message: str, **more: Any) -> Refusal:
    """Builds a ``Refusal``. ``more``: further fields of its ``ConnectorFault``."""
    return Refusal(ConnectorFault(category=category, code=code, message=message, **more))


# -- open


def config_json(config: dict[str, Any]) -> str:
    """Encodes a configuration as the ``config-json`` argument of ``open``: compact, keys sorted."""
    return msgspec.json.encode(config, order="sorted").decode()


# -- StreamContext (section 6)

_I64 = range(-(1 << 63), 1 << 63)
_I32 = range(-(1 << 31), 1 << 31)

CursorType = Literal[
    "int64", "utf8", "timestamp_millis", "timestamp_micros", "decimal", "json", "lsn"
]


class CursorValue(OmitDefaults, frozen=True, kw_only=True):
    """A cursor's value. ``type``: a ``CursorType`` or ``null``, the type of ``value``; ``scale``:
    of a decimal. Raises ``ValueError`` where ``value`` is not of its type."""

    type: str
    value: Any = msgspec.UNSET
    scale: int | None = None

    def __post_init__(self) -> None:
        if not self._fits():
            shown = "no value" if self.value is msgspec.UNSET else repr(self.value)[:100]
            raise ValueError(f"{shown} is not a cursor value of type {self.type[:100]!r}")

    def _fits(self) -> bool:
        match self.type:
            case "null":
                return True
            case "int64" | "timestamp_millis" | "timestamp_micros":
                return type(self.value) is int and self.value in _I64
            case "utf8" | "lsn":
                return isinstance(self.value, str)
            case "decimal":
                return isinstance(self.value, str) and self.scale is not None and self.scale in _I32
            case "json":
                return self.value is not msgspec.UNSET
            case _:
                return False

    def text(self) -> str | None:
        """Returns the text that v4 saves between runs; None for a null value."""
        if self.value is None or self.type == "null":
            return None
        if self.type == "json":
            return msgspec.json.encode(self.value).decode()
        return str(self.value)


class CursorInfo(msgspec.Struct, frozen=True, kw_only=True):
    """The cursor of an incremental or cdc stream. ``last_value``: unset on the first run."""

    cursor_field: str
    cursor_type: CursorType = "utf8"
    last_value: CursorValue | msgspec.UnsetType = msgspec.UNSET


class ColumnSchema(WriteAll, frozen=True, kw_only=True):
    """A column as ``discover`` describes it. ``data_type``: ``Boolean``, ``Int64``, ``Utf8``,
    ``TimestampMicros``, ..."""

    name: str
    data_type: str
    nullable: bool = True


class SchemaHint(WriteAll, frozen=True, kw_only=True):
    """The schema of a stream. ``data``: a list of ``ColumnSchema`` where ``format`` is ``columns``,
    a list of bytes where it is ``arrow_ipc``."""

    format: str = "columns"
    data: list[Any] = []


class StreamLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Bounds of a stream's run. The defaults are v4's; 0 checkpoint rows or seconds: no such
    interval."""

    max_batch_bytes: int = 64 << 20
    max_record_bytes: int = 16 << 20
    max_inflight_batches: int = 16
    max_parallel_requests: int = 1
    checkpoint_interval_bytes: int = 64 << 20
    checkpoint_interval_rows: int = 0
    checkpoint_interval_seconds: int = 0
    max_records: int | msgspec.UnsetType = msgspec.UNSET


class EvolutionPolicies(WriteAll, frozen=True, kw_only=True):
    new_column: Literal["add", "ignore", "fail"] = "add"
    removed_column: Literal["add", "ignore", "fail"] = "ignore"
    type_change: Literal["coerce", "fail", "null"] = "fail"
    nullability_change: Literal["allow", "fail"] = "allow"


class Policies(WriteAll, frozen=True, kw_only=True):
    on_data_error: Literal["skip", "fail", "dlq"] = "fail"
    schema_evolution: EvolutionPolicies = EvolutionPolicies()


class WriteMode(OmitDefaults, frozen=True, kw_only=True):
    """How a destination writes a stream. ``primary_key``: for ``upsert`` only."""

    mode: Literal["append", "replace", "upsert"]
    primary_key: list[str] | None = None


class StreamContext(OmitDefaults, frozen=True, kw_only=True):
    """The stream context that every stage gets with ``run``. The ``partition_*`` fields,
    ``effective_parallelism`` and ``copy_flush_bytes_override`` are hints that change no semantics
    (section 6.1); ``partition_*`` and ``source_stream_name`` describe a shard."""

    stream_name: str
    sync_mode: Literal["full_refresh", "incremental", "cdc"]
    source_stream_name: str | None = None
    schema: SchemaHint | None = None
    cursor_info: CursorInfo | None = None
    limits: StreamLimits | None = None
    policies: Policies | None = None
    write_mode: WriteMode | None = None
    selected_columns: list[str] | None = None
    partition_count: int | None = None
    partition_index: int | None = None
    effective_parallelism: int | None = None
    partition_strategy: Literal["mod", "range"] | None = None
    copy_flush_bytes_override: int | None = None

    def text(self) -> str:
        """Encodes ``request.stream-context-json``. Guests need ``schema``, and v4 always sends
        limits, policies and the parallelism: absent ones are sent with v4's defaults."""
        whole = msgspec.structs.replace(
            self,
            schema=self.schema or SchemaHint(),
            limits=self.limits or StreamLimits(),
            policies=self.policies or Policies(),
            effective_parallelism=self.effective_parallelism or 1,
        )
        return msgspec.json.encode(whole).decode()


# -- discover


class WireDiscoveredStream(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    schema: list[ColumnSchema]
    supported_sync_modes: list[str]
    source_defined_cursor: str | None = None
    source_defined_primary_key: list[str] | None = None


class DiscoveredCatalog(msgspec.Struct, frozen=True, kw_only=True):
    streams: list[WireDiscoveredStream]


def decode_catalog(text: str) -> DiscoveredCatalog:
    """Decodes the catalog from ``discover``. Raises ``ValueError``, which names the defect and its
    path."""
    return decode_json(text.encode(), DiscoveredCatalog)


# -- validate, run


class ValidationReport(WriteAll, frozen=True, kw_only=True):
    """The result of ``validate``. ``status``: ``success``, ``failed`` or ``warning``."""

    status: str
    message: str
    warnings: list[str] = []


class RunRequest(WriteAll, frozen=True, kw_only=True):
    """The request of ``run``. ``dry_run``: this run keeps nothing. ``max_records``: the row cap. v4
    always sends ``dry_run`` false and no ``max_records``; its row cap is only in the stream
    context."""

    phase: Literal["read", "write", "transform"]
    context: StreamContext
    dry_run: bool = False
    max_records: int | None = None


class RunSummary(WriteAll, frozen=True, kw_only=True):
    """The result of ``run``. ``counts``: the counters of the connector's role, as the connector
    reports them: ``bytes_written`` of SDK guests counts shared buffers once per column."""

    role: str
    counts: dict[str, int]


# -- checkpoint, metric, dead letters


class Envelope(msgspec.Struct, frozen=True, kw_only=True):
    """An SDK's wrapper of a checkpoint or a metric; a bare document has no ``payload``."""

    payload: msgspec.Raw = msgspec.Raw(b"")


class CheckpointPayload(msgspec.Struct, frozen=True, kw_only=True):
    """``kind``: ``source``, ``dest`` or ``transform``."""

    id: int
    kind: str
    stream: str
    records_processed: int
    bytes_processed: int
    cursor_field: str | None = None
    cursor_value: CursorValue | None = None


class MetricValue(msgspec.Struct, frozen=True, kw_only=True):
    """``type``: ``counter``, ``gauge`` or ``histogram``."""

    type: str
    value: int | float


class MetricPayload(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    value: MetricValue
    labels: list[tuple[str, str]] = []


def unwrap_envelope(text: str) -> bytes:
    """Unwraps a JSON document: the payload of its envelope, or the document itself where it has no
    envelope. Raises ``ValueError`` where it is not JSON."""
    raw = text.encode()
    if not isinstance(decode_json(raw, object), dict):
        return raw
    return bytes(decode_json(raw, Envelope).payload) or raw


def decode_json(raw: bytes, kind: type[K]) -> K:
    """Decodes JSON that a connector made. Raises ``ValueError``, also for JSON that is nested too
    deeply."""
    try:
        return msgspec.json.decode(raw, type=kind)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


class DeadLetter(WriteAll, frozen=True, kw_only=True):
    """One record that a connector rejects (``emit-dlq-record``). ``record_json``: verbatim.
    ``failed_at``: RFC 3339, UTC."""

    stream_name: str
    record_json: str
    error_message: str
    error_category: str
    failed_at: str


CATEGORIES = (
    "config", "auth", "permission", "rate_limit", "transient_network", "transient_db", "data",
    "schema", "internal", "frame",
)  # fmt: skip
