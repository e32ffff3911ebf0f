"""Declares the values of Airbyte's enumerations (protocol 0.18).

Not here: which fields accept other values (``messages``).
"""

from enum import StrEnum


class MessageType(StrEnum):
    record = "RECORD"
    state = "STATE"
    log = "LOG"
    spec = "SPEC"
    connection_status = "CONNECTION_STATUS"
    catalog = "CATALOG"
    trace = "TRACE"
    control = "CONTROL"
    destination_catalog = "DESTINATION_CATALOG"


MESSAGE_TYPES = frozenset(t.value for t in MessageType)


class WireStateType(StrEnum):
    """AirbyteStateType; absent means LEGACY."""

    global_ = "GLOBAL"
    stream = "STREAM"
    legacy = "LEGACY"


class LogLevel(StrEnum):
    fatal = "FATAL"
    error = "ERROR"
    warn = "WARN"
    info = "INFO"
    debug = "DEBUG"
    trace = "TRACE"


class TraceType(StrEnum):
    error = "ERROR"
    estimate = "ESTIMATE"
    stream_status = "STREAM_STATUS"
    analytics = "ANALYTICS"


class FailureType(StrEnum):
    system_error = "system_error"
    config_error = "config_error"
    transient_error = "transient_error"


class EstimateType(StrEnum):
    stream = "STREAM"
    sync = "SYNC"


class WireStreamStatus(StrEnum):
    started = "STARTED"
    running = "RUNNING"
    complete = "COMPLETE"
    incomplete = "INCOMPLETE"


class StatusReasonType(StrEnum):
    rate_limited = "RATE_LIMITED"


class ControlType(StrEnum):
    connector_config = "CONNECTOR_CONFIG"


class CheckStatus(StrEnum):
    succeeded = "SUCCEEDED"
    failed = "FAILED"


class WireSyncMode(StrEnum):
    full_refresh = "full_refresh"
    incremental = "incremental"


class WireDestinationSyncMode(StrEnum):
    append = "append"
    overwrite = "overwrite"
    append_dedup = "append_dedup"
    update = "update"
    soft_delete = "soft_delete"


class ChangeKind(StrEnum):
    nulled = "NULLED"
    truncated = "TRUNCATED"


class ChangeReason(StrEnum):
    source_record_size = "SOURCE_RECORD_SIZE_LIMITATION"
    source_field_size = "SOURCE_FIELD_SIZE_LIMITATION"
    source_serialization = "SOURCE_SERIALIZATION_ERROR"
    source_retrieval = "SOURCE_RETRIEVAL_ERROR"
    destination_record_size = "DESTINATION_RECORD_SIZE_LIMITATION"
    destination_field_size = "DESTINATION_FIELD_SIZE_LIMITATION"
    destination_serialization = "DESTINATION_SERIALIZATION_ERROR"
    destination_typecast = "DESTINATION_TYPECAST_ERROR"
    platform_record_size = "PLATFORM_RECORD_SIZE_LIMITATION"
    platform_field_size = "PLATFORM_FIELD_SIZE_LIMITATION"
    platform_serialization = "PLATFORM_SERIALIZATION_ERROR"


class AuthFlowType(StrEnum):
    oauth2 = "oauth2.0"
    oauth1 = "oauth1.0"
