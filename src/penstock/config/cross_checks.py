"""Checks the keys of a section against each other, and fills keys that others imply.

A rule takes a struct whose keys are valid one by one, and returns it completed, with the faults
between its keys. Not here: what needs a source's catalog (cursor, key, supported modes), which
``engine.plan.stream_plan`` checks. Neighbours: ``reader`` applies the rules.
"""

from collections.abc import Iterable, Mapping
from typing import TypeVar

from msgspec.structs import replace

from penstock.config import modes
from penstock.config.pipeline import (
    ConnectorSection,
    Destination,
    Enrichment,
    PipelineFile,
    Source,
    StateSettings,
    StreamOptions,
    StreamSettings,
    Transform,
)
from penstock.config.protocol_spec import EndpointRole, ProtocolSpec, specs
from penstock.config.reader import Fault, Rule
from penstock.config.table_formats import split_table, table_formats

_Settings = TypeVar("_Settings", bound=StreamSettings)
_Connector = TypeVar("_Connector", bound=ConnectorSection)
_Endpoint = TypeVar("_Endpoint", Source, Destination)

_DEFAULT = Source(use="")


def modes_agree(settings: _Settings) -> tuple[_Settings, list[Fault]]:
    """Fills ``sync_mode`` and ``destination_sync_mode`` from ``mode``, where they are absent;
    reports a fault where they contradict it."""
    if settings.mode is None:
        return settings, []
    clash = modes.contradiction(settings.mode, settings.sync_mode, settings.destination_sync_mode)
    if clash is not None:
        return settings, [("mode", clash)]
    wanted = modes.mode(settings.mode)
    if wanted.history and settings.history == "off":
        return settings, [("mode", f"mode '{settings.mode}' means history, but history is false")]
    return (
        replace(
            settings,
            sync_mode=settings.sync_mode or wanted.sync_mode,
            destination_sync_mode=(settings.destination_sync_mode or wanted.destination_sync_mode),
            history=settings.history or ("on" if wanted.history else None),
        ),
        [],
    )


def split_table_use(connector: _Connector) -> tuple[_Connector, list[Fault]]:
    """Moves the place in ``use: parquet:./lake`` to the config; reports a fault where both have
    one."""
    parts = split_table(connector.use)
    if parts is None:
        return connector, []
    table, key, place = parts
    if not place:
        return connector, [("use", f"{table}: needs a place, as in {table}:./lake")]
    if connector.config.get(key, place) != place:
        return connector, [("use", f"the place is given twice: in use and in config.{key}")]
    return replace(connector, use=table, config={**connector.config, key: place}), []


def catalog_file(source: Source) -> tuple[Source, list[Fault]]:
    """Reports a fault where ``catalog`` is set for a source whose protocol takes no catalog
    file."""
    spec = _spec(source)
    if source.catalog is None or (spec is not None and spec.catalog_file):
        return source, []
    takes = [s for s in specs().values() if s.catalog_file]
    return source, [("catalog", _goes_with("catalog", takes, "source"))]


def keys_of_protocol(endpoint: _Endpoint) -> tuple[_Endpoint, list[Fault]]:
    """Reports a fault for each key that a protocol other than the connector's declares."""
    role = _role(endpoint)
    spec = _spec(endpoint)
    faults: list[Fault] = []
    for name in endpoint.protocol_keys:
        takes = [s for s in specs().values() if _declares(s, role, name)]
        if spec not in takes:
            faults.append((name, _goes_with(name, takes, role)))
    return endpoint, faults


def attempts(endpoint: _Endpoint) -> tuple[_Endpoint, list[Fault]]:
    """Reports a fault where ``attempts`` or ``backoff`` is set for a connector whose protocol does
    not mark temporary failures, or has a key of its own for retries."""
    spec = _spec(endpoint)
    if spec is not None and spec.retried is not None:
        return endpoint, []
    takes = [s for s in specs().values() if s.retried is not None]
    why = ", ".join(dict.fromkeys(s.retried for s in takes if s.retried))
    if (spec is None or spec.components) and endpoint.use not in table_formats():
        why += "; a WebAssembly connector has resources.max_retries"
    changed = [n for n in ("attempts", "backoff") if getattr(endpoint, n) != getattr(_DEFAULT, n)]
    return endpoint, [(n, f"{_goes_with(n, takes, _role(endpoint))}, {why}") for n in changed]


def keys_of_connectors(destination: Destination) -> tuple[Destination, list[Fault]]:
    """Reports a fault where a key for destination connectors is set for a table."""
    faults: list[Fault] = []
    if destination.acks != "echo" and destination.use in table_formats():
        faults.append(
            ("acks", f"acks goes with a destination connector; {destination.use} is a table, whose "
             "commits need no acks")
        )  # fmt: skip
    return destination, faults


def _spec(connector: ConnectorSection) -> ProtocolSpec | None:
    """Returns the connector's protocol; None for a table and for a name without a protocol."""
    return specs().get(connector.use.partition(":")[0].strip())


def _role(endpoint: ConnectorSection) -> EndpointRole:
    return "source" if isinstance(endpoint, Source) else "destination"


def _declares(spec: ProtocolSpec, role: EndpointRole, name: str) -> bool:
    declared = spec.keys(role)
    return declared is not None and name in declared.__struct_fields__


def _goes_with(name: str, takes: Iterable[ProtocolSpec], role: EndpointRole) -> str:
    return f"{name} goes with {' or '.join(s.called(role) for s in takes)}"


def streams_differ(source: Source) -> tuple[Source, list[Fault]]:
    """Reports a fault for each stream that is listed twice."""
    seen: set[tuple[str | None, str]] = set()
    faults: list[Fault] = []
    for stream in source.streams or ():
        if (stream.namespace, stream.name) in seen:
            faults.append(("streams", f"stream '{stream.name}' is listed twice"))
        seen.add((stream.namespace, stream.name))
    return source, faults


def state_store(state: StateSettings) -> tuple[StateSettings, list[Fault]]:
    """Reports faults where ``url``, ``path`` and ``connection`` do not fit the backend or each
    other."""
    faults: list[Fault] = []
    if state.backend == "sqlite" and state.url is not None:
        faults.append(("url", "url goes with backend postgres; for sqlite give path"))
    if state.backend == "postgres" and state.path is not None:
        faults.append(("path", "path goes with backend sqlite; for postgres give url"))
    if state.backend == "postgres" and not (state.url or state.connection):
        faults.append(("backend", "backend postgres needs url"))
    if state.connection is not None and (state.url or state.path):
        faults.append(("connection", "connection means the same as url and path: give one"))
    return state, faults


def defaults_of_streams(file: PipelineFile) -> tuple[PipelineFile, list[Fault]]:
    """Copies Rapidbyte's ``destination.write_mode`` and ``destination.primary_key`` to
    ``source.defaults``; reports a fault where both have a mode and they differ."""
    destination, defaults = file.destination, file.source.defaults
    faults: list[Fault] = []
    if destination.write_mode is not None:
        if defaults.mode is not None and defaults.mode != destination.write_mode:
            faults.append(("destination", "destination.write_mode and source.defaults.mode differ"))
        else:
            defaults, found = modes_agree(replace(defaults, mode=destination.write_mode))
            faults += found
    if destination.primary_key and defaults.primary_key is None:
        defaults = replace(defaults, primary_key=destination.primary_key)
    return replace(file, source=replace(file.source, defaults=defaults)), faults


RULES: Mapping[type, tuple[Rule, ...]] = {
    StreamSettings: (modes_agree,),
    StreamOptions: (modes_agree,),
    Source: (split_table_use, streams_differ, catalog_file, keys_of_protocol, attempts),
    Transform: (),
    Enrichment: (),
    Destination: (split_table_use, keys_of_connectors, keys_of_protocol, attempts),
    StateSettings: (state_store,),
    PipelineFile: (defaults_of_streams,),
}
