"""Defines the verbs that query a connector: ``check``, ``spec``, ``discover``, ``preview``.

No record moves to a destination and no JVM starts. Neighbours: ``api.roles`` decides whether it is
a source or a destination without ``--role``, ``connectors.source`` and ``connectors.destination``
send the requests, ``engine.inspect.preview`` reads.
"""

import json
from collections.abc import Generator, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import msgspec
import typer

from penstock.api.answers import DiscoveredStream
from penstock.api.asking import (
    Hear,
    asked,
    check_connector,
    reference,
    source_reference,
    wanted_of,
)
from penstock.api.pipelines import is_connector, is_file
from penstock.api.roles import AskedRole, class_of, end_of
from penstock.cli import arguments
from penstock.cli.app import Surface, verb
from penstock.cli.consent import Yes, settle
from penstock.config.command_line import Options
from penstock.config.pipeline import Pipeline
from penstock.config.sections import Install
from penstock.errors import ConfigError, DestinationError, PenstockError, SourceError
from penstock.model.catalog import Catalog, CheckResult, ConnectorSpec, Stream
from penstock.short_texts import bounded_data
from penstock.terminal import format as text
from penstock.terminal.progress import watching

if TYPE_CHECKING:
    from rich.console import RenderableType

    from penstock.connectors.connector import RunnableConnector
    from penstock.connectors.reference import ConnectorRef
    from penstock.connectors.source import SourceConnector

Connector = Annotated[
    str,
    typer.Argument(metavar="CONNECTOR", help="PROTOCOL:NAME[@VERSION] or PROTOCOL:./executable."),
]
RoleOption = Annotated[
    AskedRole | None,
    typer.Option(
        "--role",
        help="Its role. Default: by its name (destination-..., target-...), else source.",
        show_default=False,
    ),
]
SourceOrFile = Annotated[
    str,
    typer.Argument(
        metavar="SOURCE",
        help="A connector, or a pipeline file (- for stdin), whose source is meant.",
    ),
]
Target = Annotated[
    str,
    typer.Argument(
        metavar="TARGET",
        help="A connector, a pipeline file (- for stdin), a folder of them, a project's folder.",
    ),
]
_CELL = 60
C = TypeVar("C", bound="RunnableConnector")


@verb(
    "penstock spec airbyte:source-faker",
    "penstock spec airbyte:source-faker@7.2.1 --json | jq .config_schema",
    "penstock spec singer:target-jsonl",
)
def spec(
    surface: Surface,
    connector: Connector,
    role: RoleOption = None,
    building: arguments.BuildOptions = arguments.BUILDING,
) -> None:
    """A connector's configuration (a JSON Schema) and abilities."""
    ref = reference(connector)
    if ref.format is not None:
        raise ConfigError(
            f"{connector} is a table: it has no specification",
            code="connector.table",
            hint="a connector is PROTOCOL:NAME or PROTOCOL:./executable; `check` takes a table",
        )
    with _asking(surface, class_of(role or end_of(ref)), ref, building.install()) as (asked, _):
        found = asked.spec()
    answer = {
        "protocol": found.protocol,
        "config_schema": found.config_schema,
        "abilities": found.abilities,
        "documentation_url": found.documentation_url,
        "changelog_url": found.changelog_url,
        "protocol_version": found.protocol_version,
    }
    surface.output.answer(answer, lambda: _spec_text(found))


@verb(
    "penstock check airbyte:source-faker --config '{\"count\": 10}'",
    "penstock check airbyte:source-faker --config @faker.json",
    "penstock check singer:target-jsonl --config '{}'",
    "penstock check shop.yaml",
    "penstock check ./my-syncmaven-project",
)
def check(
    surface: Surface,
    target: Target,
    destination: arguments.Destination = None,
    more: arguments.More = None,
    select: arguments.Select = None,
    config: arguments.Config = None,
    destination_config: arguments.DestinationConfig = None,
    role: RoleOption = None,
    building: arguments.BuildOptions = arguments.BUILDING,
    reading: arguments.PipelineFileOptions = arguments.READING,
    yes: Yes = False,
) -> int:
    """Are the credentials good? Of a pipeline: of both ends; is a table's place writable?"""
    options = Options(
        config=config, destination_config=destination_config,
        constraints=tuple(building.constraint or ()), no_builds=building.no_builds,
    )  # fmt: skip
    words = [word for word in (target, destination, *(more or ())) if word is not None]
    project = arguments.project(words, select, reading, options, surface.output)
    if project is not None:
        answers, code = list[dict[str, Any]](), 0
        for id_, pipeline in project.pipelines.items():
            try:
                answer = checked(pipeline_checked(surface, pipeline, yes=yes))
                code = max(code, check_code(answer))
            except PenstockError as e:
                error = e.as_report()
                answer = {"status": "failed", "message": error["message"], "error": error}
                code = max(code, e.exit_code)
            answers.append({"sync": id_, **answer})
        shown = [f"{a['sync']}: {check_text(a)}" for a in answers]
        surface.output.answer({"project": project.name, "syncs": answers}, lambda: shown)
        return code
    if destination is None and is_connector(target) and not is_file(target):
        install = building.install()
        result = _check_connector(surface, target, role, install, config, destination_config, yes)
    else:
        pipeline = arguments.pipeline(words, reading, options, surface.output)
        result = pipeline_checked(surface, pipeline, yes=yes)
    answer = checked(result)
    surface.output.answer(answer, lambda: [check_text(answer)])
    return check_code(answer)


def pipeline_checked(surface: Surface, pipeline: Pipeline, *, yes: bool) -> CheckResult:
    from penstock.engine.inspect.plan_check import check_pipeline, consents

    settle(surface, consents(pipeline, surface.home), yes=yes)
    with watching(surface.output) as observer:
        return check_pipeline(pipeline, surface.home, observer=observer)


def checked(result: CheckResult) -> dict[str, Any]:
    status = "succeeded" if result.succeeded else "failed"
    return {"status": status, "message": bounded_data(result.message), "end": result.end}


def check_text(answer: dict[str, Any]) -> str:
    return ": ".join(text for text in (answer["status"], answer["message"]) if text)


def check_code(answer: dict[str, Any]) -> int:
    if answer["status"] == "succeeded":
        return 0
    return (SourceError if answer["end"] == AskedRole.source else DestinationError).exit_code


@verb(
    "penstock discover airbyte:source-faker --config '{\"count\": 10}'",
    "penstock discover airbyte:source-faker --config @faker.json --json",
    "penstock discover shop.yaml",
)
def discover(
    surface: Surface,
    connector: SourceOrFile,
    config: arguments.Config = None,
    building: arguments.BuildOptions = arguments.BUILDING,
    reading: arguments.PipelineFileOptions = arguments.READING,
    yes: Yes = False,
) -> None:
    """A source's streams: their modes, keys, cursors and schemas."""
    if is_file(connector):
        from penstock.engine.inspect.plan_check import discover_pipeline

        pipeline = _pipeline_of(surface, connector, config, building, reading, yes)
        with watching(surface.output) as observer:
            catalog = discover_pipeline(pipeline, surface.home, observer=observer)
        _show_catalog(surface, catalog)
        return
    given = arguments.connector_config(config)
    with _source(surface, connector, building.install()) as (source, _):
        _settle(surface, source, yes)
        _show_catalog(surface, source.discover(given))


def _show_catalog(surface: Surface, catalog: Catalog) -> None:
    streams = [_stream(s) for s in catalog.streams]
    answer = {"streams": streams, "open": catalog.open}
    surface.output.answer(answer, lambda: _catalog_text(streams, open_=catalog.open))


@verb(
    "penstock preview airbyte:source-faker --config '{\"count\": 10}' --stream users --limit 5",
    "penstock preview shop.yaml --stream users",
)
def preview(
    surface: Surface,
    connector: SourceOrFile,
    config: arguments.Config = None,
    stream: Annotated[str | None, arguments.option("--stream", "S", "Default: the first.")] = None,
    limit: Annotated[int, typer.Option("--limit", metavar="N", min=1, help="Rows.")] = 20,
    building: arguments.BuildOptions = arguments.BUILDING,
    reading: arguments.PipelineFileOptions = arguments.READING,
    yes: Yes = False,
) -> None:
    """Some rows of one stream, decoded as a run would decode them. Nothing is saved."""
    if is_file(connector):
        from penstock.engine.inspect.plan_check import preview_pipeline

        pipeline = _pipeline_of(surface, connector, config, building, reading, yes)
        with watching(surface.output) as observer:
            answer = preview_pipeline(pipeline, surface.home, stream, limit, observer=observer)
    else:
        from penstock.engine.inspect.preview import preview as rows_of

        given = arguments.connector_config(config)
        with _source(surface, connector, building.install()) as (source, hear):
            _settle(surface, source, yes)
            answer = rows_of(source, given, stream, limit, hear)
    surface.output.answer(answer, lambda: _rows_text(answer["rows"], answer["notes"]))


# -- querying


@contextmanager
def _asking(
    surface: Surface, kind: "type[C]", ref: "ConnectorRef", install: Install
) -> "Generator[tuple[C, Hear]]":
    """Yields a connector, whose environment is built first if it is missing, and the function that
    receives its events."""
    with watching(surface.output) as observer:
        yield asked(kind, ref, surface.home, observer, install)


def _pipeline_of(
    surface: Surface,
    file: str,
    config: str | None,
    building: arguments.BuildOptions,
    reading: arguments.PipelineFileOptions,
    yes: bool,
) -> Pipeline:
    """Loads the pipeline of a file, and asks for the consent that its components need."""
    from penstock.engine.inspect.plan_check import consents

    options = Options(
        config=config, constraints=tuple(building.constraint or ()), no_builds=building.no_builds
    )
    pipeline = arguments.pipeline([file], reading, options, surface.output)
    settle(surface, consents(pipeline, surface.home), yes=yes)
    return pipeline


def _source(
    surface: Surface, word: str, install: Install
) -> "AbstractContextManager[tuple[SourceConnector, Hear]]":
    from penstock.connectors.source import SourceConnector

    return _asking(surface, SourceConnector, source_reference(word), install)


def _settle(surface: Surface, connector: "RunnableConnector", yes: bool) -> None:
    settle(surface, wanted_of(connector), yes=yes)


def _check_connector(
    surface: Surface,
    word: str,
    role: AskedRole | None,
    install: Install,
    config: str | None,
    into: str | None,
    yes: bool,
) -> CheckResult:
    ref = reference(word)
    end = role or end_of(ref)
    if into is not None and (end is AskedRole.source or config is not None):
        raise ConfigError(
            "--destination-config goes with a destination, in place of --config",
            code="usage",
            hint="give one of the two; --role destination if its name does not show it",
        )
    given = arguments.connector_config(config if into is None else into)
    with watching(surface.output) as observer:
        return check_connector(
            ref, end, given, surface.home, observer, install,
            lambda wanted: settle(surface, wanted, yes=yes),
        )  # fmt: skip


# -- text


def _spec_text(spec: ConnectorSpec) -> "Iterator[RenderableType]":
    properties: dict[str, Any] = spec.config_schema.get("properties") or {}
    required: list[str] = spec.config_schema.get("required") or []
    rows = [
        (
            name,
            text.short(_type_of(schema), _CELL),
            name in required,
            json.dumps(schema["default"]) if "default" in schema else None,
            text.short(str(schema.get("description") or schema.get("title") or ""), _CELL),
        )
        for name, schema in properties.items()
    ]
    if rows:
        yield text.grid(("config", "type", "required", "default", "meaning"), rows)
    else:
        yield "its configuration is not described"
    yield ""
    for label, value in (
        ("protocol", f"{spec.protocol} {spec.protocol_version or ''}".strip()),
        ("abilities", _abilities(spec.abilities)),
        ("documentation", spec.documentation_url),
        ("changelog", spec.changelog_url),
    ):
        if value:
            yield f"{label:<14}{value}"


def _type_of(schema: dict[str, Any]) -> str:
    if "oneOf" in schema:
        return "one of several"
    kind = schema.get("type", "")
    shown = "|".join(kind) if isinstance(kind, list) else str(kind)
    return f"{shown}, one of {json.dumps(schema['enum'])}" if "enum" in schema else shown


def _abilities(abilities: dict[str, Any]) -> str:
    return ", ".join(
        name if value is True else f"{name}={json.dumps(value)}"
        for name, value in abilities.items()
        if value  # missing abilities are not listed
    )


def _stream(stream: Stream) -> dict[str, Any]:
    return msgspec.structs.asdict(DiscoveredStream.of(stream))


def _catalog_text(streams: list[dict[str, Any]], *, open_: bool) -> "Iterator[RenderableType]":
    rows = [
        (
            text.stream_name(s),
            ", ".join(s["sync_modes"]),
            text.paths(s["primary_key"]),
            ".".join(s["cursor_field"]),
            len(s["json_schema"].get("properties") or ()),
        )
        for s in streams
    ]
    if rows or not open_:
        yield text.grid(("stream", "sync modes", "primary key", "cursor", "fields"), rows, {4})
    if open_:
        yield "it shows its streams only while it is read"


def _rows_text(rows: list[dict[str, Any]], notes: list[str]) -> "Iterator[RenderableType]":
    if rows:
        names = list(dict.fromkeys(name for row in rows for name in row))
        yield text.grid(names, ([_value(row.get(name)) for name in names] for row in rows))
    else:
        yield "no rows"
    for note in notes:
        yield f"note: {note}"


def _value(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, dict | list):
        return text.short(json.dumps(value, default=str, ensure_ascii=False), _CELL)
    return text.short(str(value), _CELL)
