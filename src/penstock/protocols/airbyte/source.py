"""Implements the source role with an Airbyte source: discover, configure, read.

Not here: spec and check (``questions``), the lines of a read (``record_reader``), timeouts
(``protocols.stdio.read``), the choice of modes (``stream_config``). Source: specification, Source;
protocol, Common Interface and Source.
"""

from collections.abc import Iterator
from contextlib import closing
from itertools import chain
from typing import Any

import msgspec

from penstock.codec.framing import LineFramer
from penstock.errors import ConfigError, SourceError
from penstock.model.catalog import Catalog, CheckResult, ConfiguredStream, ConnectorSpec, Stream
from penstock.model.events import ConnectorExited, Event
from penstock.protocols.airbyte import questions
from penstock.protocols.airbyte.catalog import catalog_of, configured_catalog
from penstock.protocols.airbyte.enums import MessageType
from penstock.protocols.airbyte.probe import ask
from penstock.protocols.airbyte.record_reader import AirbyteReader
from penstock.protocols.airbyte.retry import with_retries
from penstock.protocols.airbyte.state import state_file
from penstock.protocols.airbyte.stream_config import configure
from penstock.protocols.connection import EventSink
from penstock.protocols.reading import ReadRequest, StreamOverrides
from penstock.protocols.stdio.read import read
from penstock.runtimes.contract import Argument, ByteChannel, PrivateFile, Runtime, RunTimeouts

DELETED_AT = "_ab_cdc_deleted_at"
LOG_CURSORS = "_ab_cdc_"
"""Prefixes of the cursors of sources that read a database's log in the protocol's incremental mode.
The cursor's numbers may fall if the database moves to another machine, or a newer version of the
source counts differently."""
SECRET_WORD = "airbyte_secret"
"""The keyword that marks a property of a configuration as secret."""


class AirbyteSource:
    """Reads from a source (``contract.SourceRole`` and ``connection.SourceConversation`` of
    ``protocols``)."""

    def spec(self, runtime: Runtime, timeouts: RunTimeouts, log: EventSink) -> ConnectorSpec:
        return questions.spec("source", runtime, timeouts, log)

    def check(
        self, runtime: Runtime, config: dict[str, Any], timeouts: RunTimeouts, log: EventSink
    ) -> CheckResult:
        return questions.check("source", runtime, config, timeouts, log)

    def discover(
        self, runtime: Runtime, config: dict[str, Any], timeouts: RunTimeouts, log: EventSink
    ) -> Catalog:
        """Runs ``discover``. The catalog of a failed run is not used, since it may lack streams.
        Raises ``SourceError``."""
        arguments = ["discover", *questions.config_file(config)]
        answer = ask(runtime, arguments, timeouts, MessageType.catalog, log, "source")
        if answer.body is None or answer.code not in (0, None):
            questions.no_answer("source", "discover", MessageType.catalog, answer)
        return catalog_of(msgspec.json.decode(answer.body))

    def catalog_of(self, raw: Any) -> Catalog:
        """Converts an AirbyteCatalog, or a CATALOG message with one. Raises ``ConfigError``."""
        inner = raw.get("catalog") if isinstance(raw, dict) else None
        try:
            return catalog_of(raw if inner is None else inner)
        except SourceError as e:
            raise ConfigError(
                "the catalog has no list `streams`",
                code="config.catalog",
                hint="give what the connector's `discover` prints",
            ) from e

    def configure(self, stream: Stream, overrides: StreamOverrides) -> ConfiguredStream:
        return configure(stream, overrides, DELETED_AT)

    def read(self, runtime: Runtime, request: ReadRequest) -> Iterator[Event]:
        """See ``SourceConversation.read``. An exceeded timeout comes as an ``Error`` with a
        ``code`` (``source.heartbeat``, ``source.start_timeout``, ``source.timeout``,
        ``source.no_exit``)."""
        catalog = msgspec.json.encode(configured_catalog(request.streams))
        arguments: list[Argument] = [
            "read",
            *questions.config_file(request.config),
            "--catalog",
            PrivateFile("catalog.json", catalog),
        ]
        state = state_file(request.states)
        if state is not None:
            arguments += ["--state", PrivateFile("state.json", state)]
        reader = AirbyteReader(
            (s.id for s in request.streams),
            (s.id for s in request.unchosen),
            trusts_exit=request.abilities.get("complete_on") == "exit",
        )
        framer = LineFramer(request.max_record_bytes, request.spool_folder)

        def at_the_end(channel: ByteChannel, exited: ConnectorExited | None) -> Iterator[Event]:
            if exited is None:
                return iter(())
            exited.doubts = reader.doubts(exited.code)
            return chain(reader.rest(), reader.ended() if exited.code == 0 else ())

        events = read(
            runtime, arguments, request.timeouts, reader, framer, request.tick, at_the_end
        )
        with closing(events):
            yield from with_retries(events, request)
