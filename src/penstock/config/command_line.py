"""``run SOURCE DESTINATION``: two connectors and options become the same pipeline that a file
gives; and the options of ``run`` over any pipeline.

The pipeline's name, unless ``--name`` gives one, is ``SOURCE-to-DESTINATION-HASH``: the short names
of the two, and eight hexadecimal digits over what they are: their protocols and names (versions and
passwords left out, so that an upgrade keeps its state) and the absolute paths of local ones. The
configurations are no part of it: who runs one source with two configurations into one destination
gives each a ``--name``.
"""

import hashlib
import os
import re
from collections.abc import Callable
from typing import Any

import msgspec
from msgspec.structs import replace

from penstock.config import modes
from penstock.config.cross_checks import modes_agree, table_place
from penstock.config.pipeline import (
    Connector,
    Destination,
    Pipeline,
    Source,
    StreamOptions,
    StreamSettings,
    overlay,
)
from penstock.config.sections import Install
from penstock.config.selectors import (
    find_stream,
    option_error,
    parse_config,
    parse_cursor,
    parse_keys,
    parse_streams,
)
from penstock.config.table_reference import TABLES, without_password
from penstock.errors import ConfigError
from penstock.model.catalog import StreamId
from penstock.model.rejected import MaxRejected


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """Options of ``run`` and ``plan`` that shape a pipeline, as text from the command line. None:
    not given. ``config`` and ``destination_config`` go over the file's, key by key;
    ``constraints`` come after the file's, and, as ``no_builds``, go for every connector."""

    streams: str | None = None
    exclude: str | None = None
    destination_stream: str | None = None
    mode: str | None = None
    sync_mode: str | None = None
    destination_sync_mode: str | None = None
    cursor_field: str | None = None
    primary_key: str | None = None
    config: str | None = None
    destination_config: str | None = None
    name: str | None = None
    lanes: str | None = None
    constraints: tuple[str, ...] | None = None
    no_builds: bool | None = None
    max_rejected: str | None = None

    def __repr__(self) -> str:
        given = (f for f in self.__struct_fields__ if getattr(self, f) is not None)
        return f"Options({', '.join(given)})"


def pipeline_from_arguments(source: str, destination: str, **options: Any) -> Pipeline:
    """The pipeline of ``run SOURCE DESTINATION``; ``options`` are the fields of :class:`Options`.
    Raises ``ConfigError`` with every fault of the options in ``problems``."""
    faults: list[str] = []
    first, found = table_place(Source(use=source))
    faults += [f"SOURCE: {text}" for _, text in found]
    second, found = table_place(Destination(use=destination))
    faults += [f"DESTINATION: {text}" for _, text in found]
    faults += [f"{what} is blank" for what, use in _said(source, destination) if not use.strip()]
    base = Pipeline(pipeline="unnamed", source=first, destination=second, origin="arguments")
    pipeline = with_options(base, Options(**options), faults)
    for what, stage in (("SOURCE", pipeline.source), ("DESTINATION", pipeline.destination)):
        key = TABLES.get(stage.use)
        if key is not None and key not in stage.config:
            example = f"{stage.use}:{'./lake' if key == 'path' else '...'}"
            raise option_error(what, f"{stage.use} needs a place", f"write {example}")
    if options.get("name") is None:
        name = pipeline_name(pipeline.source, pipeline.destination)
        pipeline = replace(pipeline, pipeline=name)
    return pipeline


def _said(source: str, destination: str) -> tuple[tuple[str, str], ...]:
    return ("SOURCE", source), ("DESTINATION", destination)


def with_options(pipeline: Pipeline, options: Options, faults: list[str] | None = None) -> Pipeline:
    """A pipeline with the command line's options over it. Raises ``ConfigError``."""
    read = _Reading(list(faults or ()))
    settings = StreamSettings(
        mode=read("--mode", options.mode, _mode),
        sync_mode=read("--sync-mode", options.sync_mode, modes.sync_mode),
        destination_sync_mode=read(
            "--destination-sync-mode", options.destination_sync_mode, modes.destination_sync_mode
        ),
        cursor_field=read("--cursor-field", options.cursor_field, parse_cursor),
        primary_key=read("--primary-key", options.primary_key, parse_keys),
        max_rejected=read("--max-rejected", options.max_rejected, _max_rejected),
    )
    settings, clashes = modes_agree(settings)
    read.faults += [f"--mode: {text}" for _, text in clashes]
    chosen = read("--streams", options.streams, parse_streams)
    left_out = read("--exclude", options.exclude, _names)
    config = read("--config", options.config, parse_config) or {}
    into = read("--destination-config", options.destination_config, _destination_config) or {}
    lanes = read("--lanes", options.lanes, _lanes)
    name = read("--name", options.name, _name)
    listed = pipeline.source.streams
    if chosen is not None:
        listed = read("--streams", chosen, lambda c: _chosen(c, pipeline.source.streams))
    if read.faults:
        raise ConfigError(
            read.faults[0] if len(read.faults) == 1 else f"{len(read.faults)} options are wrong",
            problems=read.faults,
            code="config.option",
            hint="`penstock run --help` explains each option",
        )
    old = pipeline.source
    source = replace(
        old,
        config={**old.config, **config},
        defaults=overlay(old.defaults, settings),
        streams=None if listed is None else tuple(_over(entry, settings) for entry in listed),
        exclude=(*old.exclude, *(left_out or ())),
    )
    destination = replace(
        pipeline.destination,
        config={**pipeline.destination.config, **into},
        stream=options.destination_stream or pipeline.destination.stream,
    )
    said = {"source.config": config, "destination.config": into}
    gone = [f"{at}.{name}" for at, given in said.items() for name in given]
    gone += [] if chosen is None else ["source.streams"]
    return replace(
        pipeline,
        lines={p: n for p, n in pipeline.lines.items() if not p.startswith(tuple(gone))},
        source=replace(source, install=_install(source, options)),
        transforms=tuple(
            replace(told, install=_install(told, options)) for told in pipeline.transforms
        ),
        destination=replace(destination, install=_install(destination, options)),
        pipeline=name or pipeline.pipeline,
        lanes=lanes or pipeline.lanes,
        max_rejected=settings.max_rejected or pipeline.max_rejected,
    )


def _install(told: Connector, options: Options) -> Install:
    return Install(
        builds=told.install.builds and not options.no_builds,
        constraints=(*told.install.constraints, *(options.constraints or ())),
    )


def pipeline_name(source: Connector, destination: Connector) -> str:
    """The stable name of an unnamed pipeline; the module says of what it is made."""
    identity = msgspec.json.encode([_identity(source), _identity(destination)])
    digest = hashlib.sha256(identity).hexdigest()[:8]
    return f"{_short(source.use)}-to-{_short(destination.use)}-{digest}"


class _Reading:
    """Reads options one after the other, keeping the faults."""

    def __init__(self, faults: list[str]) -> None:
        self.faults = faults

    def __call__(self, option: str, given: Any, parse: Callable[[Any], Any]) -> Any:
        if given is None:
            return None
        try:
            return parse(given)
        except modes.UnknownMode as unknown:
            self.faults.append(f"{option}: {unknown}")
        except ConfigError as error:
            told = error.message if error.message.startswith("--") else f"{option}: {error.message}"
            self.faults.append(f"{told}; {error.hint}" if error.hint else told)
        return None


def _mode(text: str) -> str:
    modes.mode(text)
    return modes.canonical(text)


def _destination_config(text: str) -> dict[str, Any]:
    return parse_config(text, "--destination-config")


def _lanes(text: str) -> Any:
    if text == "auto":
        return text
    if re.fullmatch(r"[0-9]{1,6}", text) and int(text) >= 1:
        return int(text)
    raise option_error("--lanes", "must be 'auto' or a whole number of at least 1")


def _max_rejected(text: str) -> MaxRejected:
    try:
        return MaxRejected.parse(text)
    except ValueError as e:
        raise option_error("--max-rejected", f"must be {e}") from None


def _name(text: str) -> str:
    if not text.strip() or any(ord(c) < 32 or ord(c) == 127 for c in text):
        raise option_error("--name", "must be a text of one line, and not blank")
    return text


def _chosen(
    chosen: tuple[StreamOptions, ...], listed: tuple[StreamOptions, ...] | None
) -> tuple[StreamOptions, ...]:
    """The chosen streams with the settings that the file gives them."""
    if listed is None:
        return chosen
    entries = {StreamId.of(entry.namespace, entry.name): entry for entry in listed}
    patterns = [entry for entry in listed if entry.is_pattern]
    found: list[StreamOptions] = []
    for choice in chosen:
        name = StreamId.of(choice.namespace, choice.name)
        if choice.is_pattern and (fit := [e for s, e in entries.items() if choice.matches(s)]):
            found += fit
        elif name not in entries and (fit := [p for p in patterns if p.matches(name)]):
            found.append(replace(fit[0], name=choice.name, namespace=choice.namespace))
        else:
            found.append(entries[find_stream(choice, entries)])
    return tuple(dict.fromkeys(found))


def _names(text: str) -> tuple[str, ...]:
    names = tuple(name.strip() for name in text.split(","))
    if not all(names):
        raise option_error("--exclude", "a stream's name is empty", "write A,B or 'tmp_*'")
    return names


def _over(entry: StreamOptions, settings: StreamSettings) -> StreamOptions:
    merged = overlay(entry, settings)
    assert isinstance(merged, StreamOptions)
    return merged


def _identity(connector: Connector) -> list[Any]:
    key = TABLES.get(connector.use)
    if key is not None:
        return [connector.use, _place(str(connector.config.get(key)), local=key == "path")]
    protocol, colon, name = connector.use.partition(":")
    if not colon:
        protocol, name = "", connector.use
    if re.search(r"\s", name):
        return [protocol, name]
    if name.startswith("docker:"):
        return [protocol, re.sub(r"(?:@[^/]*|:[^/:]*)$", "", name)]
    if name.startswith((".", "/", "~")):
        return [protocol, _place(name, local=True)]
    return [protocol, re.sub(r"@[^@/]*$", "", name)]


def _place(place: str, *, local: bool) -> str:
    if "://" in place:
        return without_password(place)
    if place.startswith("catalog:"):
        return place
    return os.path.abspath(os.path.expanduser(place)) if local else place


def _short(use: str) -> str:
    """``airbyte:source-faker@7.2.1`` -> ``source-faker``."""
    protocol, colon, name = use.partition(":")
    if protocol == "spark":
        return "spark-sql"
    if not colon:
        name = use
    name = name.removeprefix("docker:")
    first = name.split()[0] if name.split() else ""
    last = first.rstrip("/").rpartition("/")[2]
    last = re.split(r"[@:]", last)[0].removesuffix(".wasm").removesuffix(".py")
    cleaned = re.sub(r"[^A-Za-z0-9_-]+", "-", last).strip("-").lower()[:40]
    return cleaned or protocol or "connector"
