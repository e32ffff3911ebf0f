"""Converts the structs of ``messages`` into WIT records, and records into structs: WIT names are
kebab-case, and the values of ``scope`` have longer names there (``per-stream``). Not here: calling
a component (``rapidbyte.guest.session``)."""

from typing import Any, cast

from wasmtime.component import Record, Variant

from penstock.protocols.rapidbyte.wire.messages import (
    ConnectorFault,
    RunRequest,
    RunSummary,
    ValidationReport,
)

_SCOPES = {"stream": "per-stream", "batch": "per-batch", "record": "per-record"}
_SCOPES_BACK = {long: short for short, long in _SCOPES.items()}
_COUNTS = {
    "read": (
        "records-read", "bytes-read", "batches-emitted", "checkpoint-count", "records-skipped",
    ),
    "write": (
        "records-written", "bytes-written", "batches-written", "checkpoint-count",
        "records-failed",
    ),
    "transform": (
        "records-in", "records-out", "bytes-in", "bytes-out", "batches-processed",
    ),
}  # fmt: skip
# Errors are kept in reports, so their size is bounded, whatever the connector sends (characters).
_LONGEST_CODE, _LONGEST_MESSAGE, _LONGEST_DETAILS = 256, 16 * 1024, 256 * 1024
_PART = {"source": "read", "destination": "write", "transform": "transform"}


def _record(**fields: Any) -> Record:
    record = Record()
    for name, value in fields.items():
        setattr(record, name.replace("_", "-"), value)
    return record


def _snake(word: str) -> str:
    return word.replace("-", "_")


def _kebab(word: str) -> str:
    return word.replace("_", "-")


def fault_record(fault: ConnectorFault) -> Record:
    """Returns the WIT record ``connector-error`` for a fault."""
    return _record(
        category=_kebab(fault.category),
        scope=_SCOPES[fault.scope],
        code=fault.code,
        message=fault.message,
        retryable=fault.retryable,
        retry_after_ms=fault.retry_after_ms,
        backoff_class=fault.backoff_class,
        safe_to_retry=fault.safe_to_retry,
        commit_state=None if fault.commit_state is None else _kebab(fault.commit_state),
        details_json=fault.details_json,
    )


def request_record(request: RunRequest) -> Record:
    """Returns the WIT record ``run-request`` for a request."""
    return _record(
        phase=request.phase,
        stream_context_json=request.context.text(),
        dry_run=request.dry_run,
        max_records=request.max_records,
    )


def unwrap_result(result: Any) -> Any:
    """Returns the ``ok`` value of a WIT ``result``. Raises :class:`FaultReturned` for an ``err``.
    wasmtime returns either value bare where their Python classes differ, else in a tagged
    ``Variant``."""
    if isinstance(result, Variant):
        if result.tag == "err":
            raise FaultReturned(_fault(result.payload))
        return result.payload
    if isinstance(result, Record) and hasattr(result, "backoff-class"):
        raise FaultReturned(_fault(result))
    return result


class FaultReturned(Exception):
    """Raised where the connector returned a ``connector-error``."""

    def __init__(self, fault: ConnectorFault) -> None:
        super().__init__(str(fault))
        self.fault = fault


def validation_report(record: Any) -> ValidationReport:
    """Returns the struct for a WIT record ``validation-report``."""
    return ValidationReport(
        status=record.status, message=record.message, warnings=list(record.warnings)
    )


def run_summary(record: Any, role: str) -> RunSummary | None:
    """Returns the struct for a WIT record ``run-summary``; None where it lacks the counters of
    ``role``."""
    part = _PART[role]
    counts = getattr(record, part)
    if counts is None:
        return None
    return RunSummary(
        role=cast(str, record.role),
        counts={_snake(name): cast(int, getattr(counts, name)) for name in _COUNTS[part]},
    )


def _fault(record: Any) -> ConnectorFault:
    def of(name: str) -> Any:
        return getattr(record, name)

    commit_state, details = of("commit-state"), of("details-json")
    return ConnectorFault(
        category=_snake(of("category")),
        scope=_SCOPES_BACK[of("scope")],
        code=_short(of("code"), _LONGEST_CODE),
        message=_short(of("message"), _LONGEST_MESSAGE),
        retryable=of("retryable"),
        retry_after_ms=of("retry-after-ms"),
        backoff_class=of("backoff-class"),
        safe_to_retry=of("safe-to-retry"),
        commit_state=None if commit_state is None else _snake(commit_state),
        details_json=None if details is None else _short(details, _LONGEST_DETAILS),
    )


def _short(text: str, longest: int) -> str:
    return text if len(text) <= longest else f"{text[:longest]}… ({len(text)} characters)"
