"""What a component answers when no stream runs, in the engine's words; the same for every role.

What its manifest says is its spec, its report is a check's result, its lines are the log's. Not
here: what is discovered (``catalog``), asking it (``asking``).
"""

from typing import Any

import msgspec

from penstock.model.catalog import CheckResult, ConnectorSpec
from penstock.model.events import Log
from penstock.protocols.contract import EventSink
from penstock.protocols.rapidbyte.abi import PROTOCOL_VERSION
from penstock.protocols.rapidbyte.manifest import Found, config_schema
from penstock.protocols.rapidbyte.messages import ValidationReport
from penstock.protocols.rapidbyte.told import Logged


def spec_of(found: Found, log: EventSink) -> ConnectorSpec:
    """What a manifest says; its faults go to the log."""
    for warning in found.warnings:
        log(Log("WARN", f"the connector's manifest: {warning}"))
    manifest = found.manifest
    if manifest is None:
        log(Log("WARN", f"the connector is granted nothing: {found.problem}"))
        return ConnectorSpec(protocol="rapidbyte", config_schema=found.schema or {})
    abilities: dict[str, Any] = msgspec.to_builtins(manifest)
    abilities.pop("config_schema", None)
    return ConnectorSpec(
        protocol="rapidbyte",
        config_schema=config_schema(manifest) or {},
        abilities={"manifest": abilities},
        protocol_version=manifest.protocol_version or PROTOCOL_VERSION,
    )


def result_of(report: ValidationReport, log: EventSink) -> CheckResult:
    for warning in report.warnings:
        log(Log("WARN", warning))
    if report.status == "warning":
        log(Log("WARN", report.message))
    return CheckResult(report.status != "failed", report.message or None)


def line(told: Logged) -> Log:
    return Log(told.level, told.message)
