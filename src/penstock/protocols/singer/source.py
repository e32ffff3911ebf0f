"""Implements the source role with a Singer tap: spec, check, discover, configure, read.

A tap reports no stream status: exit code 0 completes all streams with a SCHEMA message (L6); the
exit code of a stopped tap means nothing. Not here: the lines of a read (``record_reader``),
timeouts (``protocols.stdio.read``), options (``command_line``), the choice of modes
(``stream_config``). Source: specification; the practice of taps where it disagrees.
"""

from collections.abc import Generator, Iterator
from typing import Any, NoReturn

import msgspec

from penstock.codec.framing import LineFramer
from penstock.errors import ConfigError, SourceError
from penstock.model.catalog import Catalog, CheckResult, ConfiguredStream, ConnectorSpec, Stream
from penstock.model.events import (
    ConnectorExited,
    Control,
    Error,
    Event,
    LogEvent,
    SkippedItems,
    Tick,
)
from penstock.protocols.connection import EventSink
from penstock.protocols.reading import ReadRequest, StreamOverrides
from penstock.protocols.singer.batch_files import batch_folders
from penstock.protocols.singer.catalog import catalog_of, selected_catalog
from penstock.protocols.singer.command_line import (
    abilities_of,
    abilities_of_help,
    about_of,
    catalog_files,
    catalog_options,
    config_file,
    config_schema,
    last_words,
    refused,
    unknown_schema,
)
from penstock.protocols.singer.config_writeback import WriteBack
from penstock.protocols.singer.probe import Answer, ask, document, start_bound
from penstock.protocols.singer.record_reader import SingerReader
from penstock.protocols.singer.schema import DELETED_AT
from penstock.protocols.singer.state import state_file
from penstock.protocols.singer.stream_config import configure
from penstock.protocols.stdio.json_lines import too_deep
from penstock.protocols.stdio.read import read
from penstock.runtimes.contract import Argument, ByteChannel, PrivateFile, Runtime, RunTimeouts

PROTOCOL = "singer"

_SHORT = 60.0  # seconds for `--about` and `--help`, and for the first message in a check
_DISCOVER = "--discover"
_USAGE = 200  # the most events that a usage text on stdout gives


class SingerSource:
    """Reads from a tap (``contract.SourceRole`` and ``connection.SourceConversation`` of
    ``protocols``)."""

    def spec(self, runtime: Runtime, timeouts: RunTimeouts, log: EventSink) -> ConnectorSpec:
        """Returns the spec from ``--about``, which the Singer SDK has; else a schema that allows
        anything, with the options that ``--help`` lists."""
        brief = _brief(timeouts)
        said = ask(runtime, ["--about", "--format=json"], brief, log)
        about = about_of(said.text) if said.code == 0 else None
        if about is not None:
            schema = config_schema(about.settings) if about.settings else unknown_schema()
            return ConnectorSpec(
                protocol=PROTOCOL, config_schema=schema, abilities=abilities_of(about)
            )
        usage = ask(runtime, ["--help"], brief, log)
        abilities = abilities_of_help(usage.text.decode(errors="replace"))
        if not abilities:
            level = "WARN" if usage.lacks_a_module else "INFO"
            text = "the tap does not describe itself (--about, --help), so any config is accepted"
            log(LogEvent(level, f"{text}: {usage.words}"))
        return ConnectorSpec(protocol=PROTOCOL, config_schema=unknown_schema(), abilities=abilities)

    def check(
        self, runtime: Runtime, config: dict[str, Any], timeouts: RunTimeouts, log: EventSink
    ) -> CheckResult:
        """Runs discovery. A tap without discovery is started: it must send a message or exit with
        0."""
        answer = _discovery(runtime, config, timeouts, log)
        if not answer.speaks and _has_none(answer):
            brief = _brief(timeouts)
            answer = ask(runtime, config_file(config), brief, log, WriteBack(config))
        ok = answer.speaks or answer.code == 0
        return CheckResult(ok, None if ok else answer.words)

    def discover(
        self, runtime: Runtime, config: dict[str, Any], timeouts: RunTimeouts, log: EventSink
    ) -> Catalog:
        """Returns the catalog; an open one where the tap has no discovery. The output of a failed
        discovery is not used, since it may lack streams. Raises ``SourceError``."""
        answer = _discovery(runtime, config, timeouts, log)
        if answer.speaks or _has_none(answer):
            return Catalog((), open=True)
        if answer.code != 0:
            _failed("discover", answer)
        found = document(answer, log)
        if found is None and any(map(too_deep, (answer.text, *answer.text.splitlines()))):
            raise SourceError(
                "discover: the tap's catalog is nested too deeply to be read",
                code="source.too_deep",
                hint="some 400 levels of nested objects are read; a catalog of your own can be "
                "given with `catalog`, with the deeper part as an object without properties, "
                "which is kept as JSON text",
            )
        if found is None:
            raise SourceError(
                "discover: the tap ended with exit code 0 and printed no catalog",
                code="source.no_answer",
                hint="is this a Singer tap? run its command by hand; a catalog of your own can be"
                " given with `catalog`",
            )
        return catalog_of(found)

    def catalog_of(self, raw: Any) -> Catalog:
        """Converts the content of a catalog file. Raises ``ConfigError``."""
        try:
            return catalog_of(raw)
        except SourceError as e:
            raise ConfigError(
                e.message, code="config.catalog", hint="give what the tap's `--discover` prints"
            ) from e

    def configure(self, stream: Stream, overrides: StreamOverrides) -> ConfiguredStream:
        return configure(stream, overrides, DELETED_AT)

    def read(self, runtime: Runtime, request: ReadRequest) -> Iterator[Event]:
        """See ``SourceConversation.read``. Raises ``ConfigError`` where no stream is selected."""
        if not request.streams and not request.open:
            raise ConfigError(
                "no stream is selected: the tap would send nothing and end with exit code 0",
                code="config.no_streams",
                hint="select at least one stream",
            )
        tries = [()] if request.open else catalog_options(request.abilities)
        for options in tries[:-1]:
            events = self._one_read(runtime, request, options)
            refusal = yield from _unless_refused(events, options)
            if refusal is None:
                return
        yield from self._one_read(runtime, request, tries[-1])

    def _one_read(
        self, runtime: Runtime, request: ReadRequest, options: tuple[str, ...]
    ) -> Iterator[Event]:
        arguments = config_file(request.config)
        catalog = msgspec.json.encode(selected_catalog(request.streams, request.unchosen))
        arguments += catalog_files(options, catalog)
        state = state_file(request.states)
        if state is not None:
            arguments += ["--state", PrivateFile("state.json", state)]
        files = batch_folders(runtime.shared_folders(), request.config)
        reader = SingerReader(request, files)
        config = WriteBack(request.config)

        def beside(channel: ByteChannel, exited: ConnectorExited | None) -> Iterator[Event]:
            changed = config.changed(channel)
            if changed is not None:
                yield Control(changed)
            if exited is not None and exited.code == 0:
                reader.unheard()
                exited.doubts = reader.undeclared()
            elif exited is not None:
                yield from reader.finished()
                yield from _complaint(exited)

        framer = LineFramer(request.max_record_bytes, request.spool_folder)
        with files:
            yield from read(
                runtime, arguments, request.timeouts, reader, framer, request.tick, beside
            )


def _unless_refused(
    events: Iterator[Event], options: tuple[str, ...]
) -> Generator[Event, None, ConnectorExited | None]:
    """Yields the events of a read and returns None. Where the tap ended at once because it does not
    know its options, yields only ticks and returns its exit."""
    buffered: list[Event] = []
    for event in events:
        if isinstance(event, Tick):
            yield event
            continue
        buffered.append(event)
        if (
            isinstance(event, ConnectorExited)
            and event.code
            and refused(options, event.stderr_tail)
        ):
            return event
        if not isinstance(event, Error | LogEvent | SkippedItems) or len(buffered) > _USAGE:
            break
    yield from buffered
    yield from events
    return None


def _complaint(exited: ConnectorExited) -> Iterator[Event]:
    """Yields the error that a failed tap reports on stderr, if any."""
    said = last_words(exited.stderr_tail)
    if said is not None and exited.code is not None:
        how = f"signal {-exited.code}" if exited.code < 0 else f"exit code {exited.code}"
        yield Error(f"{said} ({how})", "system_error", code="source.exited")


def _discovery(
    runtime: Runtime, config: dict[str, Any], timeouts: RunTimeouts, log: EventSink
) -> Answer:
    arguments: list[Argument] = [*config_file(config), _DISCOVER]
    return ask(runtime, arguments, timeouts, log, WriteBack(config))


def _has_none(answer: Answer) -> bool:
    """Returns whether the tap failed because it does not know ``--discover``."""
    return bool(answer.code) and refused((_DISCOVER,), answer.stderr_tail)


def _failed(command: str, answer: Answer) -> NoReturn:
    raise SourceError(
        f"{command}: {answer.words}",
        code="source.exited" if answer.timed_out is None else answer.timed_out.code,
        hint=answer.hint,
    )


def _brief(timeouts: RunTimeouts) -> RunTimeouts:
    seconds = start_bound(timeouts, _SHORT)
    total = seconds if timeouts.total is None else min(timeouts.total, seconds)
    return msgspec.structs.replace(timeouts, total=total)
