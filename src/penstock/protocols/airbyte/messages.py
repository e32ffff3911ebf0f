"""Airbyte's wire structs: every message of the two specifications and of protocol 0.18.

Not here: what messages mean (``source``, ``state``), their enumerations (``enums``). Unknown fields
survive a round trip (``protocols.stdio.wire_struct``). Enumerations that may grow are plain strings
on the wire; only what cannot be understood otherwise (a check's verdict, the modes we write) is
strict. :class:`Line` and its parts are for the read path only.

Sources: "protocol" is the Airbyte Protocol page, "specification" the older Airbyte Specification.
"""

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, field

from penstock.protocols.airbyte.enums import (
    CheckStatus,
    WireDestinationSyncMode,
    WireSyncMode,
)
from penstock.protocols.stdio.wire_struct import Wire


class StreamDescriptor(Wire):
    """``name`` may be ``""``. Both ``namespace`` None and ``""`` occur for "none"."""

    name: str
    namespace: str | None = None


# -- RECORD


class RecordChange(Wire):
    """``change``: ``ChangeKind``; ``reason``: ``ChangeReason``."""

    field: str
    change: str
    reason: str


class RecordMeta(Wire):
    changes: list[RecordChange] | None = None


class FileReference(Wire):
    staging_file_url: str | None = None
    source_file_relative_path: str | None = None
    file_size_bytes: int | None = None


class AirbyteRecordMessage(Wire):
    """``emitted_at``: epoch milliseconds (protocol, AirbyteRecordMessage)."""

    stream: str
    data: dict[str, Any]
    emitted_at: int
    namespace: str | None = None
    meta: RecordMeta | None = None
    file_reference: FileReference | None = None


# -- STATE


class StateStats(Wire):
    """Counts are written with a decimal point."""

    record_count: float | None = field(default=None, name="recordCount")
    rejected_record_count: float | None = field(default=None, name="rejectedRecordCount")


class AirbyteStreamState(Wire):
    """``stream_state`` None: the stream's state is reset."""

    stream_descriptor: StreamDescriptor
    stream_state: Any = None


class AirbyteGlobalState(Wire):
    stream_states: list[AirbyteStreamState]
    shared_state: Any = None


class AirbyteStateMessage(Wire):
    """V1 (only ``data``) and V2. The protocol page calls the discriminator ``state_type``, the
    protocol's own schema ``type``: both are read, ``type`` is written."""

    type: str | None = None
    stream: AirbyteStreamState | None = None
    global_: AirbyteGlobalState | None = field(default=None, name="global")
    data: Any = None
    source_stats: StateStats | None = field(default=None, name="sourceStats")
    destination_stats: StateStats | None = field(default=None, name="destinationStats")
    state_type: str | None = None

    def __post_init__(self) -> None:
        if self.type is None:
            self.type, self.state_type = self.state_type, None


# -- LOG, TRACE, CONTROL


class AirbyteLogMessage(Wire):
    """``level``: ``LogLevel``."""

    level: str
    message: str
    stack_trace: str | None = None


class AirbyteErrorTraceMessage(Wire):
    """``failure_type``: ``FailureType``. ``message`` is required, and missing from some errors."""

    message: str | None = None
    internal_message: str | None = None
    stack_trace: str | None = None
    failure_type: str | None = None
    stream_descriptor: StreamDescriptor | None = None


class AirbyteEstimateTraceMessage(Wire):
    """``type``: ``EstimateType``; under SYNC ``name`` has no meaning."""

    name: str
    type: str
    namespace: str | None = None
    row_estimate: int | None = None
    byte_estimate: int | None = None


class RateLimited(Wire):
    """``quota_reset``: epoch milliseconds."""

    quota_reset: int | float | None = None


class StreamStatusReason(Wire):
    """``type``: ``StatusReasonType``."""

    type: str
    rate_limited: RateLimited | None = None


class AirbyteStreamStatusTraceMessage(Wire):
    """``status``: ``WireStreamStatus``."""

    stream_descriptor: StreamDescriptor
    status: str
    reasons: list[StreamStatusReason] | None = None


class AirbyteAnalyticsTraceMessage(Wire):
    type: str
    value: str | None = None


class AirbyteTraceMessage(Wire):
    """``type``: ``TraceType``. ``emitted_at``: epoch milliseconds, fractions allowed; a bad value
    does not cost the message."""

    type: str
    emitted_at: Any = None
    error: AirbyteErrorTraceMessage | None = None
    estimate: AirbyteEstimateTraceMessage | None = None
    stream_status: AirbyteStreamStatusTraceMessage | None = None
    analytics: AirbyteAnalyticsTraceMessage | None = None


class ControlConnectorConfig(Wire):
    """The whole configuration, secrets included: never logged."""

    config: dict[str, Any]


class AirbyteControlMessage(Wire):
    """``type``: ``ControlType``. ``emitted_at``: as in ``AirbyteTraceMessage``."""

    type: str
    emitted_at: Any = None
    connector_config: ControlConnectorConfig | None = field(default=None, name="connectorConfig")


# -- CONNECTION_STATUS, CATALOG, SPEC


class AirbyteConnectionStatus(Wire):
    status: CheckStatus
    message: str | None = None


class AirbyteStream(Wire):
    """``supported_sync_modes``: ``WireSyncMode``; full_refresh is supported even when it is
    not listed (protocol, AirbyteStream). Paths are lists of property names."""

    name: str
    json_schema: dict[str, Any] = field(default_factory=dict[str, Any])
    supported_sync_modes: list[str] | None = None
    source_defined_cursor: bool | None = None
    default_cursor_field: list[str] | None = None
    source_defined_primary_key: list[list[str]] | None = None
    namespace: str | None = None
    is_resumable: bool | None = None
    is_file_based: bool | None = None


class AirbyteCatalog(Wire):
    streams: list[AirbyteStream]


class ConfiguredAirbyteStream(Wire):
    """``minimum_generation_id`` equal to ``generation_id``: older generations are removed; 0: all
    stay."""

    stream: AirbyteStream
    sync_mode: WireSyncMode
    destination_sync_mode: WireDestinationSyncMode
    cursor_field: list[str] | None = None
    primary_key: list[list[str]] | None = None
    destination_object_name: str | None = None
    include_files: bool | None = None
    generation_id: int | None = None
    minimum_generation_id: int | None = None
    sync_id: int | None = None


class ConfiguredAirbyteCatalog(Wire):
    streams: list[ConfiguredAirbyteStream]


class DestinationOperation(Wire):
    """``sync_mode``: ``WireDestinationSyncMode``."""

    object_name: str
    sync_mode: str
    json_schema: dict[str, Any]
    matching_keys: list[list[str]] | None = None


class DestinationCatalog(Wire):
    operations: list[DestinationOperation]


class OAuthConfigSpecification(Wire):
    """Each a JSON Schema."""

    oauth_user_input_from_connector_config_specification: dict[str, Any] | None = None
    oauth_connector_input_specification: dict[str, Any] | None = None
    complete_oauth_output_specification: dict[str, Any] | None = None
    complete_oauth_server_input_specification: dict[str, Any] | None = None
    complete_oauth_server_output_specification: dict[str, Any] | None = None


class AdvancedAuth(Wire):
    """``auth_flow_type``: ``AuthFlowType``. ``predicate_key``: a path in the config."""

    auth_flow_type: str | None = None
    predicate_key: list[str] | None = None
    predicate_value: str | None = None
    oauth_config_specification: OAuthConfigSpecification | None = None


class OAuth2Specification(Wire):
    """Deprecated, but kept. Paths of property names, and list indices in ``rootObject``."""

    root_object: list[Any] | None = field(default=None, name="rootObject")
    init_parameters: list[list[str]] | None = field(default=None, name="oauthFlowInitParameters")
    output_parameters: list[list[str]] | None = field(
        default=None, name="oauthFlowOutputParameters"
    )


class AuthSpecification(Wire):
    """Deprecated, but kept."""

    auth_type: str | None = None
    oauth2_specification: OAuth2Specification | None = field(
        default=None, name="oauth2Specification"
    )


class ConnectorSpecification(Wire):
    """``supportsIncremental``, ``supportsNormalization``, ``supportsDBT`` and ``authSpecification``
    are deprecated, still sent, and kept."""

    connection_specification: dict[str, Any] = field(name="connectionSpecification")
    protocol_version: str | None = None
    documentation_url: str | None = field(default=None, name="documentationUrl")
    changelog_url: str | None = field(default=None, name="changelogUrl")
    supported_destination_sync_modes: list[str] | None = None
    supports_incremental: bool | None = field(default=None, name="supportsIncremental")
    supports_normalization: bool | None = field(default=None, name="supportsNormalization")
    supports_dbt: bool | None = field(default=None, name="supportsDBT")
    auth_specification: AuthSpecification | None = field(default=None, name="authSpecification")
    advanced_auth: AdvancedAuth | None = None


class AirbyteMessage(Wire):
    """The envelope. ``type``: ``MessageType``; only the field of that type is populated."""

    type: str
    log: AirbyteLogMessage | None = None
    spec: ConnectorSpecification | None = None
    connection_status: AirbyteConnectionStatus | None = field(default=None, name="connectionStatus")
    catalog: AirbyteCatalog | None = None
    record: AirbyteRecordMessage | None = None
    state: AirbyteStateMessage | None = None
    trace: AirbyteTraceMessage | None = None
    control: AirbyteControlMessage | None = None
    destination_catalog: DestinationCatalog | None = None


# -- the read path

ABSENT = msgspec.Raw()  # the default of every Raw field: compare by identity

# Years 1 to 9999: the range of a timestamp column.
FIRST_MILLIS, LAST_MILLIS = -62_135_596_800_000, 253_402_300_799_999
EpochMillis = Annotated[int, Meta(ge=FIRST_MILLIS, le=LAST_MILLIS)]


class LineRecord(msgspec.Struct, gc=False):
    """A record whose content stays bytes: ``data`` and ``meta`` are slices of their chunk.
    ``emitted_at``: a bad value does not cost the record."""

    stream: str
    data: msgspec.Raw
    emitted_at: Any = None
    namespace: str | None = None
    meta: msgspec.Raw = ABSENT
    file_reference: msgspec.Raw = ABSENT


class LineChange(msgspec.Struct, gc=False):
    field: str
    change: str
    reason: str


class LineMeta(msgspec.Struct, gc=False):
    changes: msgspec.Raw = ABSENT


class LineOther(msgspec.Struct, gc=False):
    """The envelope with every body left as bytes."""

    type: str
    state: msgspec.Raw = ABSENT
    log: msgspec.Raw = ABSENT
    trace: msgspec.Raw = ABSENT
    control: msgspec.Raw = ABSENT


class Line(LineOther, gc=False):
    """The envelope of the read path. A RECORD of the wrong shape does not decode."""

    record: LineRecord | None = None


class LineName(msgspec.Struct, gc=False):
    stream: Any = None
    namespace: Any = None


class LineAbout(msgspec.Struct, gc=False):
    """The type of a message and, for a RECORD, its stream."""

    type: str
    record: LineName | None = None


class PlainRecord(msgspec.Struct, gc=False):
    """A record without ``meta`` and without a file; one with them does not decode."""

    stream: str
    data: msgspec.Raw
    emitted_at: EpochMillis
    namespace: str | None = None
    meta: None = None
    file_reference: None = None


class PlainLine(msgspec.Struct, gc=False):
    """The envelope of a RECORD without special fields; any other message does not decode."""

    type: Literal["RECORD"]
    record: PlainRecord


class LineDescriptor(msgspec.Struct, gc=False):
    name: str
    namespace: str | None = None


class LineStreamState(msgspec.Struct, gc=False):
    stream_descriptor: LineDescriptor
    stream_state: msgspec.Raw = ABSENT


class LineStats(msgspec.Struct, gc=False):
    """Counts are written with a decimal point, or without."""

    record_count: float | None = field(default=None, name="recordCount")


class LineGlobalState(msgspec.Struct, gc=False):
    """The streams in the body of a GLOBAL state message."""

    stream_states: list[LineStreamState] = field(default_factory=list[LineStreamState])


class LineStateStats(msgspec.Struct, gc=False):
    """The source's counts in a state message."""

    source_stats: LineStats | None = field(default=None, name="sourceStats")


class LineState(msgspec.Struct, gc=False):
    """The scope of a state message; bodies stay bytes, and GLOBAL bodies are not parsed."""

    type: str | None = None
    state_type: str | None = None
    stream: LineStreamState | None = None
    global_: msgspec.Raw = field(default=ABSENT, name="global")
    data: msgspec.Raw = ABSENT
