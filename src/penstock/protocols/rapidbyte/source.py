"""Implements the source role with a WebAssembly component: discover, configure, and read, one
stream after the other, each in its own instance.

Not here: reading one stream (``source_stream``), converting a catalog
(``rapidbyte.declared.catalog``). Source: the protocol, sections 3.1, 5, 6 and 7.
"""

from collections.abc import Iterator
from contextlib import closing
from typing import Any

import msgspec

from penstock.errors import ConfigError, SourceError
from penstock.model.catalog import (
    Catalog,
    ConfiguredStream,
    Stream,
)
from penstock.model.events import ConnectorExited, DoubtfulEnd, Error, Event, LogEvent
from penstock.protocols.connection import EventSink
from penstock.protocols.rapidbyte.declared import catalog
from penstock.protocols.rapidbyte.declared.manifest import mode_problems
from penstock.protocols.rapidbyte.declared.stream_config import configure
from penstock.protocols.rapidbyte.guest import probe
from penstock.protocols.rapidbyte.guest.component import ComponentRole, open_component
from penstock.protocols.rapidbyte.guest.deadlines import LONGEST_DISCOVER, AnswerTimeout
from penstock.protocols.rapidbyte.guest.engine_events import log_event
from penstock.protocols.rapidbyte.source_stream import StreamRead
from penstock.protocols.rapidbyte.wire import messages
from penstock.protocols.reading import ReadRequest, StreamOverrides
from penstock.runtimes.contract import RunTimeouts
from penstock.runtimes.wasm.component import ComponentRuntime


class RapidbyteSource(ComponentRole):
    """Reads from a component (``contract.SourceRole`` and ``connection.SourceConversation`` of
    ``protocols``)."""

    role = "source"

    def discover(
        self,
        runtime: ComponentRuntime,
        config: dict[str, Any],
        timeouts: RunTimeouts,
        log: EventSink,
    ) -> Catalog:
        component = open_component(runtime)
        stage = component.stage("source", config, timeouts)
        within = AnswerTimeout.of(timeouts, LONGEST_DISCOVER)
        try:
            discovered = probe.discover(stage, lambda logged: log(log_event(logged)), within)
        except SourceError as e:
            if not probe.has_none(e, "discover"):
                raise
            log(LogEvent("WARN", f"its streams cannot be discovered: {e.message}"))
            return Catalog(())
        return catalog.restricted(catalog.converted(discovered), component.found.manifest, log)

    def catalog_of(self, raw: Any) -> Catalog:
        try:
            return catalog.converted(msgspec.convert(raw, messages.DiscoveredCatalog))
        except msgspec.ValidationError as e:
            raise ConfigError(
                f"this is not a Rapidbyte catalog: {e}",
                code="config.catalog",
                hint="give what the connector's discover gives",
            ) from None

    def configure(self, stream: Stream, overrides: StreamOverrides) -> ConfiguredStream:
        return configure(stream, overrides)

    def read(self, runtime: ComponentRuntime, request: ReadRequest) -> Iterator[Event]:
        component = open_component(runtime)
        manifest = component.found.manifest
        modes = [s.sync_mode.value for s in request.streams]
        for problem in mode_problems(manifest, "source", sync_modes=modes) if manifest else ():
            yield LogEvent("WARN", problem)  # only in a preview: a run is refused earlier
        states = {s.scope.stream: s for s in request.states}
        failed, doubts = False, list[DoubtfulEnd]()
        for stream in request.streams:
            read = StreamRead(component, request, stream, states.get(stream.id))
            with closing(read.events()) as events:
                for event in events:
                    failed |= isinstance(event, Error)
                    yield event
            doubts += read.doubts
        yield ConnectorExited(1 if failed else 0, doubts=tuple(doubts))
