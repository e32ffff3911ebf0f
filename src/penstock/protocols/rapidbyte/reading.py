"""The source role: what the engine asks of a source, of a WebAssembly component.

One stream after the other, each in an instance of its own. Not here: the reading of a stream
(``reader``), what is discovered (``catalog``), the conversation itself (``source``). Source: the
protocol, sections 3.1, 5, 6 and 7.
"""

from collections.abc import Iterator
from contextlib import closing
from typing import Any

import msgspec

from penstock.errors import ConfigError
from penstock.model.catalog import (
    Catalog,
    CheckResult,
    ConfiguredStream,
    ConnectorSpec,
    Stream,
)
from penstock.model.events import Error, Event, Exited, Log
from penstock.protocols.contract import EventSink, ReadRequest, StreamWish
from penstock.protocols.rapidbyte import catalog, messages, source
from penstock.protocols.rapidbyte.answers import line, result_of, spec_of
from penstock.protocols.rapidbyte.configure import configure
from penstock.protocols.rapidbyte.manifest import mode_problems
from penstock.protocols.rapidbyte.patience import LONGEST_CHECK, LONGEST_DISCOVER, Within
from penstock.protocols.rapidbyte.reader import Reading
from penstock.protocols.rapidbyte.settings import opened
from penstock.runtimes.contract import Runtime, Timeouts


class RapidbyteSource:
    """``SourceRole`` of ``protocols.contract``."""

    def spec(self, runtime: Runtime, timeouts: Timeouts, log: EventSink) -> ConnectorSpec:
        return spec_of(opened(runtime).found, log)

    def check(
        self, runtime: Runtime, config: dict[str, Any], timeouts: Timeouts, log: EventSink
    ) -> CheckResult:
        stage = opened(runtime).stage("source", config, timeouts)
        within = Within.of(timeouts, LONGEST_CHECK)
        return result_of(source.check(stage, lambda told: log(line(told)), within), log)

    def discover(
        self, runtime: Runtime, config: dict[str, Any], timeouts: Timeouts, log: EventSink
    ) -> Catalog:
        what = opened(runtime)
        stage = what.stage("source", config, timeouts)
        within = Within.of(timeouts, LONGEST_DISCOVER)
        found = catalog.of(source.discover(stage, lambda told: log(line(told)), within))
        return catalog.named(found, what.found.manifest, log)

    def catalog_of(self, raw: Any) -> Catalog:
        try:
            return catalog.of(msgspec.convert(raw, messages.Catalog))
        except msgspec.ValidationError as e:
            raise ConfigError(
                f"this is no Rapidbyte catalog: {e}",
                code="config.catalog",
                hint="give what the connector's discover gives",
            ) from None

    def configure(self, stream: Stream, wish: StreamWish) -> ConfiguredStream:
        return configure(stream, wish)

    def read(self, runtime: Runtime, request: ReadRequest) -> Iterator[Event]:
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
