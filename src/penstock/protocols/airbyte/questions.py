"""Implements ``spec`` and ``check``, which are the same for sources and destinations, and builds
the error for a command without an answer.

Not here: running a command (``probe``), what only one role does (``source``, ``destination``).
Source: specification; protocol, Common Interface.
"""

import shlex
import sys
from typing import Any, NoReturn

import msgspec

from penstock.errors import Role, error_class
from penstock.model.catalog import CheckResult, ConnectorSpec
from penstock.model.events import LogEvent
from penstock.protocols.airbyte.enums import CheckStatus, FailureType, MessageType
from penstock.protocols.airbyte.messages import AirbyteConnectionStatus, ConnectorSpecification
from penstock.protocols.airbyte.probe import Answer, ask
from penstock.protocols.connection import EventSink
from penstock.protocols.stdio import wire_struct
from penstock.runtimes.contract import Argument, PrivateFile, Runtime, RunTimeouts

PROTOCOL = "airbyte"

_MAJOR = "0"
_HINTS = {
    FailureType.config_error.value: "the connector blames its configuration: correct it,"
    " then try again",
    FailureType.transient_error.value: "the connector calls this temporary: try again",
}


def spec(role: Role, runtime: Runtime, timeouts: RunTimeouts, log: EventSink) -> ConnectorSpec:
    """Runs ``spec``. Raises the role's error."""
    answer = ask(runtime, ["spec"], timeouts, MessageType.spec, log, role)
    if answer.body is None:
        no_answer(role, "spec", MessageType.spec, answer)
    own = _decoded(role, ConnectorSpecification, answer.body, "spec")
    version = own.protocol_version
    if version is not None and version.split(".")[0].lstrip("v") != _MAJOR:
        text = f"the connector speaks protocol version {version}; {_MAJOR}.x is supported"
        log(LogEvent("WARN", text))
    known = {
        "supported_destination_sync_modes": own.supported_destination_sync_modes,
        "supportsIncremental": own.supports_incremental,
        "supportsNormalization": own.supports_normalization,
        "supportsDBT": own.supports_dbt,
        "authSpecification": _plain(own.auth_specification),
        "advanced_auth": _plain(own.advanced_auth),
    }
    return ConnectorSpec(
        protocol=PROTOCOL,
        config_schema=wire_struct.plain(own)["connectionSpecification"],
        abilities={k: v for k, v in known.items() if v is not None},
        documentation_url=own.documentation_url,
        changelog_url=own.changelog_url,
        protocol_version=version,
    )


def check(
    role: Role, runtime: Runtime, config: dict[str, Any], timeouts: RunTimeouts, log: EventSink
) -> CheckResult:
    """Runs ``check``. The status decides, whatever the exit code: FAILED with exit code 0 is a
    failure. Raises the role's error without a status."""
    arguments = ["check", *config_file(config)]
    answer = ask(runtime, arguments, timeouts, MessageType.connection_status, log, role)
    if answer.body is None:
        no_answer(role, "check", MessageType.connection_status, answer)
    status = _decoded(role, AirbyteConnectionStatus, answer.body, "check")
    message = status.message or (answer.error.message if answer.error else None)
    return CheckResult(status.status is CheckStatus.succeeded, message)


def config_file(config: dict[str, Any]) -> list[Argument]:
    return ["--config", PrivateFile("config.json", msgspec.json.encode(config))]


def _plain(body: wire_struct.Wire | None) -> Any:
    return None if body is None else wire_struct.plain(body)


def _decoded(role: Role, kind: type[wire_struct.W], body: bytes, command: str) -> wire_struct.W:
    try:
        return wire_struct.decode(kind, body)
    except wire_struct.WireError as e:
        raise error_class(role)(
            f"{command}: the connector's answer is malformed: {e}",
            code=f"{role}.bad_answer",
            hint="report this to the connector's maintainers, or try another version of it",
        ) from None


def no_answer(role: Role, command: str, expected: str, answer: Answer) -> NoReturn:
    """Raises the role's error for a command without an answer, with the connector's own message if
    it sent one."""
    if answer.error is not None:
        kind = answer.error.failure_type
        raise error_class(role)(
            f"{command}: {answer.error.message}",
            code=f"{role}.{kind if kind in tuple(FailureType) else 'failed'}",
            hint=_HINTS.get(kind or "", "see the connector's log for more"),
            stream=None if answer.error.stream is None else str(answer.error.stream),
            connector=answer.error.raw,
        )
    if answer.timed_out is not None:
        raise error_class(role)(
            f"{command}: {answer.timed_out}",
            code=answer.timed_out.code,
            hint="raise `timeouts` in the pipeline file, or see why the connector hangs",
        )
    if answer.too_deep:
        raise error_class(role)(
            f"{command}: the connector's answer is nested too deeply to be read",
            code=f"{role}.too_deep",
            hint="some 400 levels of nested objects are read; give the deeper part as an object "
            "without properties, which is kept as JSON text",
        )
    tail = answer.stderr_tail
    said = f"; its last output on stderr: {tail}" if tail else " and wrote nothing to stderr"
    hint = f"is this an Airbyte {role}? run its command by hand to see what it does"
    if tail and "No module named 'penstock'" in tail:
        hint = (
            "its Python does not have Penstock's SDK. Name the Python that does, which runs "
            f"Penstock: airbyte:'{shlex.quote(sys.executable)} PROGRAM'"
        )
    printed = "" if answer.body is not None else f" and printed no {expected} message"
    raise error_class(role)(
        f"{command}: the connector exited with code {answer.code}{printed}{said}",
        code=f"{role}.{'exited' if answer.code else 'no_answer'}",
        hint=hint,
    )
