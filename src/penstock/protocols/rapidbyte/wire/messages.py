"""The JSON documents and records that cross between a Rapidbyte v4 connector and its host.

Shapes, spellings and defaults only. Enumerations are snake_case here, as in the documents; the WIT
names (kebab-case) are made in ``rapidbyte.guest.host_imports``. Unknown keys are ignored, as both
sides of v4 do. Sources: the protocol, sections 3 to 6; the documents as the v4 host writes them.
"""

from typing import Any, Literal, TypeVar

import msgspec

K = TypeVar("K")


class Document(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Base: a key whose value is absent by default is left out."""


class Always(msgspec.Struct, frozen=True, kw_only=True):
    """Base: every key is written."""


# -- connector-error


class Fault(Always, frozen=True, kw_only=True):
    """Every field of a ``connector-error`` (section 5). ``details_json`` is verbatim."""

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
        """For the report of a run: all fields, ``details`` as JSON data where it is JSON."""
        fields: dict[str, Any] = msgspec.to_builtins(self)
        raw = fields.pop("details_json")
        fields["details"] = None
        if raw is not None:
            try:
                fields["details"] = decoded(raw.encode(), object)
            except ValueError:
                fields["details"] = raw
        return fields


class Refusal(Exception):
    """A host function says no: the guest gets this fault."""

    def __init__(self, fault: Fault) -> None:
        super().__init__(str(fault))
        self.fault = fault


def refusal(category: str, code: str, message: str, **more: Any) -> Refusal:
    return Refusal(Fault(category=category, code=code, message=message, **more))


# -- open


def config_json(config: dict[str, Any]) -> str:
    """``config-json``: compact, keys sorted."""
    return msgspec.json.encode(config, order="sorted").decode()


# -- StreamContext (section 6)

_I64 = range(-(1 << 63), 1 << 63)
_I32 = range(-(1 << 31), 1 << 31)

CursorType = Literal[
    "int64", "utf8", "timestamp_millis", "timestamp_micros", "decimal", "json", "lsn"
]


class CursorValue(Document, frozen=True, kw_only=True):
    """``type``: a ``CursorType`` or ``null``, which says what ``value`` is; ``scale``: of a
    decimal. Raises ``ValueError`` for a value that is not its type's."""

    type: str
    value: Any = msgspec.UNSET
    scale: int | None = None

    def __post_init__(self) -> None:
        if not self._fits():
            shown = "no value" if self.value is msgspec.UNSET else repr(self.value)[:100]
            raise ValueError(f"{shown} is no cursor value of type {self.type[:100]!r}")

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
        """As v4 keeps it between runs; None where there is nothing to keep."""
        if self.value is None or self.type == "null":
            return None
        if self.type == "json":
            return msgspec.json.encode(self.value).decode()
        return str(self.value)


class CursorInfo(msgspec.Struct, frozen=True, kw_only=True):
    """``last_value``: unset on the first run."""

    cursor_field: str
    cursor_type: CursorType = "utf8"
    last_value: CursorValue | msgspec.UnsetType = msgspec.UNSET


class ColumnSchema(Always, frozen=True, kw_only=True):
    """``data_type``: ``Boolean``, ``Int64``, ``Utf8``, ``TimestampMicros``, ..."""

    name: str
    data_type: str
    nullable: bool = True


class SchemaHint(Always, frozen=True, kw_only=True):
    """``format`` ``columns``: ``data`` is a list of ``ColumnSchema``; ``arrow_ipc``: of bytes."""

    format: str = "columns"
    data: list[Any] = []


class StreamLimits(msgspec.Struct, frozen=True, kw_only=True):
    max_batch_bytes: int = 64 << 20
    max_record_bytes: int = 16 << 20
    max_inflight_batches: int = 16
    max_parallel_requests: int = 1
    checkpoint_interval_bytes: int = 64 << 20
    checkpoint_interval_rows: int = 0
    checkpoint_interval_seconds: int = 0
    max_records: int | msgspec.UnsetType = msgspec.UNSET


class SchemaEvolution(Always, frozen=True, kw_only=True):
    new_column: Literal["add", "ignore", "fail"] = "add"
    removed_column: Literal["add", "ignore", "fail"] = "ignore"
    type_change: Literal["coerce", "fail", "null"] = "fail"
    nullability_change: Literal["allow", "fail"] = "allow"


class Policies(Always, frozen=True, kw_only=True):
    on_data_error: Literal["skip", "fail", "dlq"] = "fail"
    schema_evolution: SchemaEvolution = SchemaEvolution()


class WriteMode(Document, frozen=True, kw_only=True):
    """``primary_key``: for ``upsert``."""

    mode: Literal["append", "replace", "upsert"]
    primary_key: list[str] | None = None


class StreamContext(Document, frozen=True, kw_only=True):
    """What a stage is told of its stream; the same for each stage. The last six are hints that
    change no semantics (section 6.1), and what makes a shard."""

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
        """``request.stream-context-json``. A guest needs ``schema``, and v4 always sends limits,
        policies and the parallelism: what is not given is sent with v4's defaults."""
        whole = msgspec.structs.replace(
            self,
            schema=self.schema or SchemaHint(),
            limits=self.limits or StreamLimits(),
            policies=self.policies or Policies(),
            effective_parallelism=self.effective_parallelism or 1,
        )
        return msgspec.json.encode(whole).decode()


# -- discover


class CatalogStream(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    schema: list[ColumnSchema]
    supported_sync_modes: list[str]
    source_defined_cursor: str | None = None
    source_defined_primary_key: list[str] | None = None


class Catalog(msgspec.Struct, frozen=True, kw_only=True):
    streams: list[CatalogStream]


def catalog(text: str) -> Catalog:
    """Raises ``ValueError`` naming what is wrong and where."""
    return decoded(text.encode(), Catalog)


# -- validate, run


class ValidationReport(Always, frozen=True, kw_only=True):
    """``status``: ``success``, ``failed`` or ``warning``."""

    status: str
    message: str
    warnings: list[str] = []


class RunRequest(Always, frozen=True, kw_only=True):
    """v4 always sends ``dry_run`` false and no ``max_records``: there the row cap travels in the
    stream context alone. Here both say what is so: nothing is kept, so many are wanted."""

    phase: Literal["read", "write", "transform"]
    context: StreamContext
    dry_run: bool = False
    max_records: int | None = None


class RunSummary(Always, frozen=True, kw_only=True):
    """``counts``: the record of the connector's own role. A connector's words: ``bytes_written`` of
    SDK guests counts shared buffers once per column."""

    role: str
    counts: dict[str, int]


# -- checkpoint, metric, dead letters


class Envelope(msgspec.Struct, frozen=True, kw_only=True):
    """What an SDK wraps a checkpoint or a metric in; a bare document has no ``payload``."""

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


def payload_of(text: str) -> bytes:
    """The document itself, out of its envelope where it has one. Raises ``ValueError`` where it is
    no JSON."""
    raw = text.encode()
    if not isinstance(decoded(raw, object), dict):
        return raw
    return bytes(decoded(raw, Envelope).payload) or raw


def decoded(raw: bytes, kind: type[K]) -> K:
    """JSON of a connector's, which may be anything. Raises ``ValueError``."""
    try:
        return msgspec.json.decode(raw, type=kind)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


class DeadLetter(Always, frozen=True, kw_only=True):
    """One record that a connector put aside (``emit-dlq-record``). ``record_json``: verbatim.
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
