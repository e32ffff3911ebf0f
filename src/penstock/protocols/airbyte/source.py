"""An Airbyte source's conversation: spec, check, discover, configure, read.

Written against a runtime, so that the same code talks to a process, a container or a recording.
Not here: the lines of a read (``lines``), time limits (``protocols.conversation``), rules for modes
(``configure``). Source: specification, Source; protocol, Common Interface and Source.
"""

from collections.abc import Iterator
from typing import Any, NoReturn

import msgspec

from penstock.codec.framing import LineFramer
from penstock.errors import ConfigError, SourceError
from penstock.model.catalog import Catalog, CheckResult, ConfiguredStream, ConnectorSpec, Stream
from penstock.model.events import Event, Log
from penstock.protocols import wire
from penstock.protocols.airbyte.catalog import catalog_of, configured_catalog
from penstock.protocols.airbyte.configure import configure
from penstock.protocols.airbyte.conversation import Answer, ask
from penstock.protocols.airbyte.enums import CheckStatus, FailureType, MessageType
from penstock.protocols.airbyte.lines import Sorter
from penstock.protocols.airbyte.messages import AirbyteConnectionStatus, ConnectorSpecification
from penstock.protocols.airbyte.state import state_file
from penstock.protocols.contract import EventSink, ReadRequest, StreamWish
from penstock.protocols.conversation import read
from penstock.runtimes.contract import Argument, PrivateFile, Runtime, Timeouts

PROTOCOL = "airbyte"
DELETED_AT = "_ab_cdc_deleted_at"
SECRET_WORD = "airbyte_secret"
"""The annotation that marks a property of a config as secret."""

_MAJOR = "0"
_HINTS = {
    FailureType.config_error.value: "the connector blames its configuration: correct it,"
    " then try `penstock check`",
    FailureType.transient_error.value: "the connector says that this may pass: try again",
}


class AirbyteSource:
    """``SourceRole`` of ``protocols.contract``."""

    def spec(self, runtime: Runtime, timeouts: Timeouts, log: EventSink) -> ConnectorSpec:
        answer = ask(runtime, ["spec"], timeouts, MessageType.spec, log)
        if answer.body is None:
            _no_answer("spec", MessageType.spec, answer)
        own = _decoded(ConnectorSpecification, answer.body, "spec")
        version = own.protocol_version
        if version is not None and version.split(".")[0].lstrip("v") != _MAJOR:
            text = f"the connector speaks protocol version {version}; {_MAJOR}.x is supported"
            log(Log("WARN", text))
        known = {
            "supported_destination_sync_modes": own.supported_destination_sync_modes,
            "supportsIncremental": own.supports_incremental,
            "advanced_auth": None if own.advanced_auth is None else wire.plain(own.advanced_auth),
        }
        return ConnectorSpec(
            protocol=PROTOCOL,
            config_schema=wire.plain(own)["connectionSpecification"],
            abilities={k: v for k, v in known.items() if v is not None},
            documentation_url=own.documentation_url,
            changelog_url=own.changelog_url,
            protocol_version=version,
        )

    def check(
        self, runtime: Runtime, config: dict[str, Any], timeouts: Timeouts, log: EventSink
    ) -> CheckResult:
        """A status counts whatever the exit code; FAILED with exit 0 is a failure."""
        arguments = ["check", *_config(config)]
        answer = ask(runtime, arguments, timeouts, MessageType.connection_status, log)
        if answer.body is None:
            _no_answer("check", MessageType.connection_status, answer)
        status = _decoded(AirbyteConnectionStatus, answer.body, "check")
        message = status.message or (answer.error.message if answer.error else None)
        return CheckResult(status.status is CheckStatus.succeeded, message)

    def discover(
        self, runtime: Runtime, config: dict[str, Any], timeouts: Timeouts, log: EventSink
    ) -> Catalog:
        """A catalog of a discover that failed is not taken: it may lack streams."""
        arguments = ["discover", *_config(config)]
        answer = ask(runtime, arguments, timeouts, MessageType.catalog, log)
        if answer.body is None or answer.code not in (0, None):
            _no_answer("discover", MessageType.catalog, answer)
        catalog, odd = catalog_of(msgspec.json.decode(answer.body))
        for event in odd:
            log(event)
        return catalog

    def catalog_of(self, raw: Any) -> Catalog:
        """An AirbyteCatalog, or the CATALOG message that holds one."""
        inner = raw.get("catalog") if isinstance(raw, dict) else None
        try:
            return catalog_of(raw if inner is None else inner)[0]
        except SourceError as e:
            raise ConfigError(
                "the catalog has no list `streams`",
                code="config.catalog",
                hint="give what the connector's `discover` prints",
            ) from e

    def configure(self, stream: Stream, wish: StreamWish) -> ConfiguredStream:
        return configure(stream, wish, DELETED_AT)

    def read(self, runtime: Runtime, request: ReadRequest) -> Iterator[Event]:
        """See ``SourceRole.read``. A limit of ``timeouts`` comes as an ``Error`` whose ``raw`` has
        its ``code`` (``source.heartbeat``, ``source.start_timeout``, ``source.timeout``,
        ``source.no_exit``)."""
        catalog = msgspec.json.encode(configured_catalog(request.streams))
        arguments: list[Argument] = [
            "read",
            *_config(request.config),
            "--catalog",
            PrivateFile("catalog.json", catalog),
        ]
        state = state_file(request.states)
        if state is not None:
            arguments += ["--state", PrivateFile("state.json", state)]
        sorter = Sorter(s.id for s in request.streams)
        framer = LineFramer(request.max_record_bytes, request.spool_folder)
        yield from read(runtime, arguments, request.timeouts, sorter, framer, request.tick)


def _config(config: dict[str, Any]) -> list[Argument]:
    return ["--config", PrivateFile("config.json", msgspec.json.encode(config))]


def _decoded(kind: type[wire.W], body: bytes, command: str) -> wire.W:
    try:
        return wire.decode(kind, body)
    except wire.WireError as e:
        raise SourceError(
            f"{command}: the connector's answer is malformed: {e}",
            code="source.bad_answer",
            hint="report this to the connector's maintainers, or try another version of it",
        ) from None


def _no_answer(command: str, expected: str, answer: Answer) -> NoReturn:
    """Raises ``SourceError`` in the connector's words where it gave any."""
    if answer.error is not None:
        kind = answer.error.failure_type
        raise SourceError(
            f"{command}: {answer.error.message}",
            code=f"source.{kind}" if kind in tuple(FailureType) else "source.failed",
            hint=_HINTS.get(kind or "", "see the connector's log for more"),
            stream=None if answer.error.stream is None else str(answer.error.stream),
            connector=answer.error.raw,
        )
    if answer.timed_out is not None:
        raise SourceError(
            f"{command}: {answer.timed_out}",
            code=answer.timed_out.code,
            hint="raise the limit, or see why the connector hangs",
        )
    tail = answer.stderr_tail
    said = f"; its last words on stderr: {tail}" if tail else " and said nothing on stderr"
    printed = "" if answer.body is not None else f" and printed no {expected} message"
    raise SourceError(
        f"{command}: the connector exited with code {answer.code}{printed}{said}",
        code="source.exited" if answer.code else "source.no_answer",
        hint="is this an Airbyte source? run its command by hand to see what it does",
    )
