"""Builds the pipeline of ``run SOURCE DESTINATION``, and applies command-line options to a
pipeline.

The pipeline's name, unless ``--name`` gives one, is ``SOURCE-to-DESTINATION-HASH``: the short names
of both, and eight hexadecimal digits of a hash of their identities: protocols and names (without
versions and passwords, so that an upgrade keeps its state) and absolute paths of local ones.
Configurations are not hashed: to run one source with two configurations into one destination, give
each a ``--name``. Not here: pipeline files (``load``).
"""

import hashlib
import os
import re
from collections.abc import Callable
from typing import Any

import msgspec
from msgspec.structs import replace

from penstock.config import modes
from penstock.config.cross_checks import modes_agree, split_table_use
from penstock.config.pipeline import (
    ConnectorSection,
    Destination,
    Pipeline,
    Source,
    StreamOptions,
    StreamSettings,
    overlay,
)
from penstock.config.protocol_spec import specs
from penstock.config.relative_paths import placed_again, placed_by_name, placed_here
from penstock.config.sections import Install
from penstock.config.selectors import (
    find_stream,
    option_error,
    parse_config,
    parse_cursor,
    parse_keys,
    parse_streams,
)
from penstock.config.table_formats import table_formats, without_password
from penstock.errors import ConfigError
from penstock.model.catalog import StreamId
from penstock.model.rejected import MaxRejected


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """The options of ``run`` and ``plan`` that change a pipeline, as text from the command line.
    None: not given. ``config`` and ``destination_config`` override the file's, key by key;
    ``constraints`` are added to the file's; they and ``no_builds`` apply to every connector."""

    streams: str | None = None
    exclude: str | None = None
    destination_stream: str | None = None
    mode: str | None = None
    sync_mode: str | None = None
    destination_sync_mode: str | None = None
    cursor_field: str | None = None
    primary_key: str | None = None
    history: bool | None = None
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
    """Builds the pipeline of ``run SOURCE DESTINATION``; ``options``: fields of :class:`Options`.
    Raises ``ConfigError`` with every fault of the options in ``problems``."""
    faults: list[str] = []
    first, found = split_table_use(Source(use=source))
    faults += [f"SOURCE: {text}" for _, text in found]
    second, found = split_table_use(Destination(use=destination))
    faults += [f"DESTINATION: {text}" for _, text in found]
    arguments = ("SOURCE", source), ("DESTINATION", destination)
    faults += [f"{what} is blank" for what, use in arguments if not use.strip()]
    base = Pipeline(pipeline="unnamed", source=first, destination=second, origin="arguments")
    pipeline = with_options(base, Options(**options), faults)
    for what, stage in (("SOURCE", pipeline.source), ("DESTINATION", pipeline.destination)):
        format = table_formats().get(stage.use)
        if format is not None and format.place not in stage.config:
            example = f"{stage.use}:{'./lake' if format.place == 'path' else '...'}"
            raise option_error(what, f"{stage.use} needs a place", f"write {example}")
    if options.get("name") is None:
        name = pipeline_name(pipeline.source, pipeline.destination)
        return placed_by_name(replace(pipeline, pipeline=name))
    return placed_here(pipeline)


def with_options(pipeline: Pipeline, options: Options, faults: list[str] | None = None) -> Pipeline:
    """Applies ``options`` to ``pipeline``. ``faults``: found before, reported with those of the
    options. Raises ``ConfigError`` (``config.option``)."""
    parse_option = _OptionParser(list(faults or ()))
    settings = _stream_settings(options, parse_option)
    chosen = parse_option("--streams", options.streams, parse_streams)
    left_out = parse_option("--exclude", options.exclude, _names)
    config = parse_option("--config", options.config, parse_config) or {}
    into = (
        parse_option("--destination-config", options.destination_config, _destination_config) or {}
    )
    lanes = parse_option("--lanes", options.lanes, _lanes)
    name = parse_option("--name", options.name, parse_name)
    listed = pipeline.source.streams
    if chosen is not None:
        listed = parse_option("--streams", chosen, lambda c: _chosen(c, pipeline.source.streams))
    if parse_option.faults:
        raise ConfigError(
            parse_option.faults[0]
            if len(parse_option.faults) == 1
            else f"{len(parse_option.faults)} options are wrong",
            problems=parse_option.faults,
            code="config.option",
            hint="`penstock run --help` explains each option",
        )
    old = pipeline.source
    source = replace(
        old,
        config={**old.config, **config},
        defaults=overlay(old.defaults, settings),
        streams=None if listed is None else tuple(_overlaid(entry, settings) for entry in listed),
        exclude=(*old.exclude, *(left_out or ())),
    )
    destination = replace(
        pipeline.destination,
        config={**pipeline.destination.config, **into},
        stream=options.destination_stream or pipeline.destination.stream,
    )
    configs = {"source.config": config, "destination.config": into}
    overridden = [f"{at}.{name}" for at, given in configs.items() for name in given]
    overridden += [] if chosen is None else ["source.streams"]
    changed = replace(
        pipeline,
        lines={p: n for p, n in pipeline.lines.items() if not p.startswith(tuple(overridden))},
        source=source,
        destination=destination,
        pipeline=name or pipeline.pipeline,
        renamed=pipeline.renamed or name is not None,
        lanes=lanes or pipeline.lanes,
        max_rejected=settings.max_rejected or pipeline.max_rejected,
    )
    if into and pipeline.place is not None:
        changed = placed_again(changed)
    return _installed(changed, options)


def _stream_settings(options: Options, parse_option: "_OptionParser") -> StreamSettings:
    """Returns the settings of each stream's sync from the options."""
    settings = StreamSettings(
        mode=parse_option("--mode", options.mode, _mode),
        sync_mode=parse_option("--sync-mode", options.sync_mode, modes.sync_mode),
        destination_sync_mode=parse_option(
            "--destination-sync-mode", options.destination_sync_mode, modes.destination_sync_mode
        ),
        cursor_field=parse_option("--cursor-field", options.cursor_field, parse_cursor),
        primary_key=parse_option("--primary-key", options.primary_key, parse_keys),
        history="keyed" if options.history else None,
        max_rejected=parse_option("--max-rejected", options.max_rejected, _max_rejected),
    )
    settings, clashes = modes_agree(settings)
    parse_option.faults += [f"--mode: {text}" for _, text in clashes]
    if options.history and settings.destination_sync_mode not in (None, "append_dedup"):
        parse_option.faults.append(
            "--history: a history keeps the versions of a key, so its streams are merged: leave it "
            f"out, or leave out `{settings.destination_sync_mode}`"
        )
    return settings


def _installed(pipeline: Pipeline, options: Options) -> Pipeline:
    """Returns the pipeline with the options for the installation of all of its connectors."""
    return replace(
        pipeline,
        source=replace(pipeline.source, install=_install(pipeline.source, options)),
        transforms=tuple(
            replace(transform, install=_install(transform, options))
            for transform in pipeline.transforms
        ),
        enrichments=tuple(
            replace(enrichment, install=_install(enrichment, options))
            for enrichment in pipeline.enrichments
        ),
        destination=replace(pipeline.destination, install=_install(pipeline.destination, options)),
    )


def _install(connector: ConnectorSection, options: Options) -> Install:
    return Install(
        builds=connector.install.builds and not options.no_builds,
        constraints=(*connector.install.constraints, *(options.constraints or ())),
    )


def pipeline_name(source: ConnectorSection, destination: ConnectorSection) -> str:
    """Returns the stable name of a pipeline without ``--name``, as the module's docstring defines
    it."""
    identity = msgspec.json.encode([_identity(source), _identity(destination)])
    digest = hashlib.sha256(identity).hexdigest()[:8]
    return f"{short_name(source.use)}-to-{short_name(destination.use)}-{digest}"


class _OptionParser:
    """Parses options one after the other; collects the faults."""

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
            text = error.message if error.message.startswith("--") else f"{option}: {error.message}"
            self.faults.append(f"{text}; {error.hint}" if error.hint else text)
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


def parse_name(text: str) -> str:
    """Returns the name of a pipeline. Raises ``ConfigError``."""
    if not text.strip() or any(ord(c) < 32 or ord(c) == 127 for c in text):
        raise option_error("--name", "must be a text of one line, and not blank")
    return text


def _chosen(
    chosen: tuple[StreamOptions, ...], listed: tuple[StreamOptions, ...] | None
) -> tuple[StreamOptions, ...]:
    """Returns the chosen streams with their settings from the file. ``listed``: the file's streams;
    None: it lists none. Raises ``ConfigError`` for a stream that the file does not list."""
    if listed is None:
        return chosen
    entries = {StreamId(entry.namespace, entry.name): entry for entry in listed}
    patterns = [entry for entry in listed if entry.is_pattern]
    found: list[StreamOptions] = []
    for choice in chosen:
        name = StreamId(choice.namespace, choice.name)
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


def _overlaid(entry: StreamOptions, settings: StreamSettings) -> StreamOptions:
    merged = overlay(entry, settings)
    assert isinstance(merged, StreamOptions)
    return merged


def _identity(connector: ConnectorSection) -> list[Any]:
    format = table_formats().get(connector.use)
    if format is not None:
        key = format.place
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


def short_name(use: str) -> str:
    """Returns the short name of a connector: ``airbyte:source-faker@7.2.1`` -> ``source-faker``."""
    protocol, colon, name = use.partition(":")
    if not colon:
        name = use
    spec = specs().get(protocol)
    if spec is not None and spec.queries and re.search(r"\s", name):
        return f"{protocol}-sql"
    name = name.removeprefix("docker:")
    first = name.split()[0] if name.split() else ""
    last = first.rstrip("/").rpartition("/")[2]
    last = re.split(r"[@:]", last)[0].removesuffix(".wasm").removesuffix(".py")
    cleaned = re.sub(r"[^A-Za-z0-9_-]+", "-", last).strip("-").lower()[:40]
    return cleaned or protocol or "connector"
