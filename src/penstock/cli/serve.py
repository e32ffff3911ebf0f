"""Defines the verb ``serve``: Penstock as another platform's connector.

Stdout carries the platform's messages; everything else goes to stderr. Neighbours:
``engine.run.start.serve_input`` does the work; ``config.serve_config`` reads the configuration that
the platform gives; a protocol's ``serve`` module encodes the messages to the host.
"""

import re
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli import arguments
from penstock.cli.app import Surface, group, verb
from penstock.cli.run import stoppable
from penstock.config.pipeline import Pipeline, StreamOptions
from penstock.config.protocol_spec import specs
from penstock.config.serve_config import read_settings, schema
from penstock.errors import ConfigError, PenstockError
from penstock.protocols import serving
from penstock.terminal.error_view import DescribedError
from penstock.terminal.progress import watching

if TYPE_CHECKING:
    from penstock.model.catalog import (
        Catalog,
        ConfiguredStream,
        StreamId,
    )
    from penstock.model.report import Report
    from penstock.protocols.hosts import DestinationHost, HostGeneration, TargetHost

_ASKS_A_CONNECTOR = re.compile(r"penstock (?:check|discover|plan|preview|run|spec)\b")

serve = group(
    "Penstock as another platform's connector: a Singer target, an Airbyte destination.",
    "tap-x --config tap.json | penstock serve target --as singer --config target.json",
    "penstock serve destination --as airbyte spec",
)

_TARGETS, _DESTINATIONS = (
    [s.name for s in specs().values() if s.served is not None and s.served.verb == verb]
    for verb in ("target", "destination")
)
AsTarget = Annotated[
    str, typer.Option("--as", metavar="PROTOCOL", help=f"Platform: {', '.join(_TARGETS)}.")
]
AsDestination = Annotated[
    str,
    typer.Option("--as", metavar="PROTOCOL", help=f"Platform: {', '.join(_DESTINATIONS)}."),
]
ConfigFile = Annotated[
    str | None,
    typer.Option(
        "--config", "-c", metavar="FILE", show_default=False,
        help="Where the rows go, as JSON: {\"destination\": \"delta:./lake\"}.",
    )
]  # fmt: skip
CatalogFile = Annotated[
    str | None, arguments.option("--catalog", "FILE", "The configured catalog.")
]
To = Annotated[
    str | None,
    arguments.option(
        "--to", "DESTINATION", "parquet:PATH or delta:PATH, with a config or in its place."
    ),
]


@verb(
    "tap-x --config tap.json | penstock serve target --as singer --to delta:./lake > state.json",
    "penstock serve target --as singer --about",
    app=serve,
)
def target(
    surface: Surface,
    protocol: AsTarget = _TARGETS[0],
    config: ConfigFile = None,
    to: To = None,
    tell: Annotated[bool, typer.Option("--about", help="Describe this target as JSON.")] = False,
    form: Annotated[str, typer.Option("--format", hidden=True)] = "json",
) -> int:
    """Messages on stdin; on stdout each state, once everything before it is committed."""
    del form  # runners pass `--about --format=json`; no other format exists
    _must_be(protocol, _TARGETS, "target")
    host: TargetHost = serving(protocol)
    if tell:
        from penstock import __version__

        surface.output.document(host.about(__version__, schema()))
        return 0
    from penstock.model.catalog import Catalog

    pipeline = read_settings(config, to).pipeline_of(protocol)
    report = _run(surface, pipeline, protocol, Catalog((), open=True), host)
    _tell(surface, report)
    return report.exit_code


@verb(
    "penstock serve destination --as airbyte spec",
    "penstock serve destination --as airbyte check --config config.json",
    "penstock serve destination --as airbyte write --config config.json --catalog catalog.json",
    app=serve,
)
def destination(
    surface: Surface,
    command: Annotated[str, typer.Argument(metavar="spec|check|write")],
    protocol: AsDestination = _DESTINATIONS[0],
    config: ConfigFile = None,
    catalog: CatalogFile = None,
) -> int:
    """An Airbyte destination that writes Penstock's tables."""
    _must_be(protocol, _DESTINATIONS, "destination")
    host: DestinationHost = serving(protocol)
    out = surface.output.line
    if command == "spec":
        out(host.spec(schema()))
        return 0
    if command == "check":
        out(host.status(_check(config, protocol)))
        return 0
    if command != "write":
        raise ConfigError(
            f"serve destination: there is no command {command!r}",
            code="config.usage",
            hint="spec, check or write",
        )
    try:
        known, streams = host.configured(_catalog(catalog))
        pipeline = read_settings(config, None).pipeline_of(protocol, _options(streams))
        generations = host.generations(streams)
        report = _run(surface, pipeline, protocol, known, host, generations)
    except Exception as e:
        fault = DescribedError.of(e, surface.output)
        out(_failed(host, fault))
        surface.output.fault(fault)
        return 1
    if report.exit_code:
        error = report.error or {"message": report.status}
        out(_failed(host, DescribedError(error, report.exit_code)))
    _tell(surface, report)
    return 1 if report.exit_code else 0


def _must_be(given: str, served: list[str], role: str) -> None:
    if given not in served:
        raise ConfigError(
            f"Penstock is not a {role} of {given!r}",
            code="config.usage",
            hint=f"penstock serve {role} --as {' or '.join(served)}",
        )


def _check(config: str | None, protocol: str) -> str | None:
    """Returns why the destination cannot be written, or None."""
    from penstock.engine.plan.destination import table_of

    try:
        table_of(read_settings(config, None).pipeline_of(protocol)).check()
    except PenstockError as e:
        fault = _in_full(e.message, e.problems if isinstance(e, ConfigError) else [])
        return f"{fault}; {e.hint}" if e.hint else fault
    return None


def _failed(host: "DestinationHost", fault: DescribedError) -> str:
    """Returns the message to the host about a failed write, complete in itself: the host shows its
    user nothing else."""
    error = fault.error
    return host.failed(
        _in_full(str(error["message"]), fault.problems),
        error.get("hint"),
        str(error.get("code", "")),
        int(error.get("exit_code", fault.exit_code)),
    )


def _in_full(message: str, problems: list[str]) -> str:
    more = "; ".join(p for p in problems if p != message)
    return f"{message}: {more}" if more else message


def _catalog(path: str | None) -> bytes:
    if path is None:
        raise ConfigError(
            "write needs a configured catalog", code="config.usage", hint="give --catalog FILE"
        )
    try:
        return Path(path).read_bytes()
    except OSError as e:
        raise ConfigError(
            f"the catalog {path} cannot be read: {e.strerror or e}",
            code="config.not_found",
            hint="give --catalog FILE",
        ) from e


def _options(streams: "tuple[ConfiguredStream, ...]") -> tuple[StreamOptions, ...]:
    return tuple(
        StreamOptions(
            name=s.id.name,
            namespace=s.id.namespace,
            sync_mode=s.sync_mode,
            destination_sync_mode=s.destination_sync_mode,
        )
        for s in streams
    )


def _run(
    surface: Surface,
    pipeline: Pipeline,
    protocol: str,
    catalog: "Catalog",
    host: "TargetHost | DestinationHost",
    generations: "dict[StreamId, HostGeneration] | None" = None,
) -> "Report":
    """Runs the sync of stdin. Drops a hint that refers to a verb for connectors: our verbs cannot
    query the host's source."""
    from penstock.engine.run.start import request_cancel, serve_input

    stopping = threading.Event()

    def stop() -> None:
        stopping.set()
        request_cancel()

    def say(state: str, taken: int, rejected: int) -> None:
        surface.output.line(host.state(state, taken, rejected), stopping.is_set)

    with stoppable(stop), watching(surface.output) as observer:
        try:
            return serve_input(
                pipeline,
                surface.home,
                observer=observer,
                protocol=protocol,
                catalog=catalog,
                say=say,
                generations=generations,
            )
        except PenstockError as e:
            if e.hint is not None and _ASKS_A_CONNECTOR.search(e.hint):
                e.hint = None
            raise


def _tell(surface: Surface, report: "Report") -> None:
    """Prints the report to stderr."""
    from penstock.cli.report_view import report_text

    log = str(surface.home.path / report.log)
    fault = None if report.error is None else DescribedError(report.error, report.exit_code)
    shown = fault.lines(surface.output.verbosity, log, surface.output.safe) if fault else ()
    for part in (*report_text(report), *shown):
        surface.output.say(part)
