"""The verbs that ask a connector: ``check``, ``spec``, ``discover``, ``preview``. No record moves
into a table and no JVM starts. Neighbours: ``connectors.source`` asks, ``engine.preview`` reads."""

import json
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from penstock.cli import inputs, text
from penstock.cli.command import Surface, verb
from penstock.cli.progress import watching
from penstock.engine.progress import RunObserver
from penstock.errors import SourceError
from penstock.model.catalog import CheckResult, ConnectorSpec, Stream
from penstock.model.events import Counted, Error, Event, Log

if TYPE_CHECKING:
    from rich.console import RenderableType

    from penstock.connectors.source import SourceConnector

Connector = Annotated[
    str,
    typer.Argument(metavar="CONNECTOR", help="PROTOCOL:NAME[@VERSION] or PROTOCOL:./executable."),
]
Target = Annotated[
    str,
    typer.Argument(metavar="TARGET", help="A connector, or a pipeline file (- for stdin)."),
]
_CELL = 60
A = TypeVar("A")


@verb(
    "penstock spec airbyte:source-faker",
    "penstock spec airbyte:source-faker@7.2.1 --json | jq .config_schema",
)
def spec(surface: Surface, connector: Connector) -> None:
    """A connector's configuration (a JSON Schema) and abilities."""
    found = _asked(surface, connector, lambda source: source.spec())
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
    "penstock check shop.yaml",
)
def check(
    surface: Surface,
    target: Target,
    destination: inputs.Destination = None,
    config: inputs.Config = None,
    env_file: inputs.EnvFile = None,
    lenient: inputs.Lenient = False,
) -> int:
    """Are the credentials good? Of a pipeline: the source's, and is the table's place writable?"""
    reading = inputs.Reading.of(env_file, lenient)
    if destination is None and inputs.is_connector(target) and not inputs.is_file(target):
        result = _check_connector(surface, target, config)
    else:
        from penstock.engine.run import check_pipeline

        options = inputs.Options(config=config)
        pipeline = inputs.pipeline(target, destination, reading, options, surface.output)
        with watching(surface.output) as observer:
            result = check_pipeline(pipeline, surface.home, observer=observer)
    status = "succeeded" if result.succeeded else "failed"
    shown = f"{status}: {result.message}" if result.message else status
    surface.output.answer({"status": status, "message": result.message}, lambda: [shown])
    return 0 if result.succeeded else SourceError.exit_code


@verb(
    "penstock discover airbyte:source-faker --config '{\"count\": 10}'",
    "penstock discover airbyte:source-faker --config @faker.json --json",
)
def discover(surface: Surface, connector: Connector, config: inputs.Config = None) -> None:
    """A source's streams: their modes, keys, cursors and schemas."""
    given = inputs.connector_config(config)
    catalog = _asked(surface, connector, lambda source: source.discover(given))
    answer = {"streams": [_stream(s) for s in catalog.streams]}
    surface.output.answer(answer, lambda: [_catalog_text(answer["streams"])])


@verb(
    "penstock preview airbyte:source-faker --config '{\"count\": 10}' --stream users --limit 5",
)
def preview(
    surface: Surface,
    connector: Connector,
    config: inputs.Config = None,
    stream: Annotated[
        str | None,
        typer.Option("--stream", metavar="S", help="Default: the first.", show_default=False),
    ] = None,
    limit: Annotated[int, typer.Option("--limit", metavar="N", min=1, help="Rows.")] = 20,
) -> None:
    """Some rows of one stream, decoded as a run would decode them. Nothing is saved."""
    from penstock.engine.preview import preview as rows_of

    given = inputs.connector_config(config)
    answer = _asked(surface, connector, lambda source: rows_of(source, given, stream, limit))
    surface.output.answer(answer, lambda: _rows_text(answer["rows"]))


# -- asking


def _asked(surface: Surface, connector: str, ask: "Callable[[SourceConnector], A]") -> A:
    """The answer to ``ask``, the connector's environment built first if need be."""
    from penstock.connectors.source import resolve_source

    with watching(surface.output) as observer:
        source = resolve_source(
            connector,
            surface.home.connectors,
            log=listener(observer),
            progress=lambda told: observer.phase("install", told),
        )
        return ask(source)


def listener(observer: RunObserver) -> Callable[[Event], None]:
    """What a connector says beside its answers, shown by its level."""

    def hear(event: Event, /) -> None:
        match event:
            case Log():
                observer.log(event.level, "source", event.message)
            case Error():
                observer.log("ERROR", "source", event.message)
            case Counted():
                observer.log("DEBUG", "source", f"{event.what}: {event.count}")
            case _:
                pass

    return hear


def _check_connector(surface: Surface, word: str, config: str | None) -> CheckResult:
    from penstock.connectors.reference import RefKind, parse_ref

    given = inputs.connector_config(config)
    ref = parse_ref(word)
    if ref.kind is not RefKind.table:
        return _asked(surface, word, lambda source: source.check(given))
    from penstock.tables.open import open_table

    options = {name: str(value) for name, value in given.items()}
    open_table(ref.format or "", ref.target or options.pop("path", ""), options).check()
    return CheckResult(True, f"{ref.text} can be written")


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
    yield text.grid(("config", "type", "required", "default", "meaning"), rows)
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
        if value  # what it cannot do is not listed
    )


def _stream(stream: Stream) -> dict[str, Any]:
    return {
        "namespace": stream.id.namespace,
        "name": stream.id.name,
        "json_schema": stream.json_schema,
        "sync_modes": [mode.value for mode in stream.sync_modes],
        "primary_key": stream.source_defined_primary_key or [],
        "cursor_field": stream.default_cursor_field or [],
        "source_defined_cursor": stream.source_defined_cursor,
        "default_cursor_field": stream.default_cursor_field,
        "source_defined_primary_key": stream.source_defined_primary_key,
        "is_resumable": stream.is_resumable,
    }


def _catalog_text(streams: list[dict[str, Any]]) -> "RenderableType":
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
    return text.grid(("stream", "sync modes", "primary key", "cursor", "fields"), rows, {4})


def _rows_text(rows: list[dict[str, Any]]) -> "Iterator[RenderableType]":
    if not rows:
        yield "no rows"
        return
    names = list(dict.fromkeys(name for row in rows for name in row))
    yield text.grid(names, ([_value(row.get(name)) for name in names] for row in rows))


def _value(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, dict | list):
        return text.short(json.dumps(value, default=str, ensure_ascii=False), _CELL)
    return text.short(str(value), _CELL)
