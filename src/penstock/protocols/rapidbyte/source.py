"""The source role: what the engine asks of a source, of a WebAssembly component.

One stream after the other, each in an instance of its own. Not here: the reading of a stream
(``source_stream``), what is discovered (``rapidbyte.declared.catalog``). Source: the protocol,
sections 3.1, 5, 6 and 7.
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
from penstock.model.events import Error, Event, Exited, Log
from penstock.protocols.contract import EventSink, ReadRequest, StreamWish
from penstock.protocols.rapidbyte.declared import catalog
from penstock.protocols.rapidbyte.declared.manifest import mode_problems
from penstock.protocols.rapidbyte.declared.stream_config import configure
from penstock.protocols.rapidbyte.guest import probe
from penstock.protocols.rapidbyte.guest.component import ComponentRole, opened
from penstock.protocols.rapidbyte.guest.deadlines import LONGEST_DISCOVER, Within
from penstock.protocols.rapidbyte.guest.engine_events import line
from penstock.protocols.rapidbyte.source_stream import Reading
from penstock.protocols.rapidbyte.wire import messages
from penstock.runtimes.contract import Timeouts
from penstock.runtimes.wasm.component import ComponentRuntime


class RapidbyteSource(ComponentRole):
    """``SourceRole`` and ``SourceConversation`` of ``protocols.contract``."""

    role = "source"

    def discover(
        self,
        runtime: ComponentRuntime,
        config: dict[str, Any],
        timeouts: Timeouts,
        log: EventSink,
    ) -> Catalog:
        what = opened(runtime)
        stage = what.stage("source", config, timeouts)
        within = Within.of(timeouts, LONGEST_DISCOVER)
        try:
            found = probe.discover(stage, lambda said: log(line(said)), within)
        except SourceError as e:
            if not _has_no_discover(e):
                raise
            log(Log("WARN", f"it cannot be asked for its streams: {e.message}"))
            return Catalog(())
        return catalog.named(catalog.of(found), what.found.manifest, log)

    def catalog_of(self, raw: Any) -> Catalog:
        try:
            return catalog.of(msgspec.convert(raw, messages.DiscoveredCatalog))
        except msgspec.ValidationError as e:
            raise ConfigError(
                f"this is no Rapidbyte catalog: {e}",
                code="config.catalog",
                hint="give what the connector's discover gives",
            ) from None

    def configure(self, stream: Stream, wish: StreamWish) -> ConfiguredStream:
        return configure(stream, wish)

    def read(self, runtime: ComponentRuntime, request: ReadRequest) -> Iterator[Event]:
        what = opened(runtime)
        manifest = what.found.manifest
        modes = [s.sync_mode.value for s in request.streams]
        for problem in mode_problems(manifest, "source", sync_modes=modes) if manifest else ():
            yield Log("WARN", problem)  # of a preview: a run is refused before
        states = {s.scope.stream: s for s in request.states}
        failed = False
        for stream in request.streams:
            with closing(Reading(what, request, stream, states.get(stream.id)).events()) as told:
                for event in told:
                    failed |= isinstance(event, Error)
                    yield event
        yield Exited(1 if failed else 0)


def _has_no_discover(error: SourceError) -> bool:
    """Section 3.1: it is optional. v4's interface has it all the same, so that a connector without
    one can only answer with an error."""
    code = str((error.connector or {}).get("code", "")).upper().replace("_", "")
    return any(
        word in code for word in ("NOTIMPLEMENTED", "UNIMPLEMENTED", "UNSUPPORTED", "NOTSUPPORTED")
    )
