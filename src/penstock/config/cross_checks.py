"""What must hold between keys of one section, and what one key means for another.

A rule gets a struct whose own keys are sound and gives it back complete, with the faults it found.
What needs a source's catalog (cursor, key, modes it supports) is ``engine.plan.streams``'s.
"""

from collections.abc import Iterable, Mapping
from typing import TypeVar

from msgspec.structs import replace

from penstock.config import modes
from penstock.config.pipeline import (
    Connector,
    Destination,
    PipelineFile,
    Source,
    StateSettings,
    StreamOptions,
    StreamSettings,
    Transform,
)
from penstock.config.protocol_spec import EndpointRole, ProtocolSpec, specs
from penstock.config.reader import Fault, Rule
from penstock.config.table_reference import TABLES, split_table

_Settings = TypeVar("_Settings", bound=StreamSettings)
_Connector = TypeVar("_Connector", bound=Connector)
_Endpoint = TypeVar("_Endpoint", Source, Destination)

_USUAL = Source(use="")


def modes_agree(settings: _Settings) -> tuple[_Settings, list[Fault]]:
    """``mode`` fills what ``sync_mode`` and ``destination_sync_mode`` leave open."""
    if settings.mode is None:
        return settings, []
    clash = modes.contradiction(settings.mode, settings.sync_mode, settings.destination_sync_mode)
    if clash is not None:
        return settings, [("mode", clash)]
    wanted = modes.mode(settings.mode)
    return (
        replace(
            settings,
            sync_mode=settings.sync_mode or wanted.sync_mode,
            destination_sync_mode=(settings.destination_sync_mode or wanted.destination_sync_mode),
        ),
        [],
    )


def table_place(connector: _Connector) -> tuple[_Connector, list[Fault]]:
    """``use: parquet:./lake`` is ``use: parquet`` with that place in its config."""
    found = split_table(connector.use)
    if found is None:
        return connector, []
    table, key, place = found
    if not place:
        return connector, [("use", f"{table}: needs a place, as in {table}:./lake")]
    if connector.config.get(key, place) != place:
        return connector, [("use", f"the place is said twice: in use and in config.{key}")]
    return replace(connector, use=table, config={**connector.config, key: place}), []


def catalog_file(source: Source) -> tuple[Source, list[Fault]]:
    spec = _spec(source)
    if source.catalog is None or (spec is not None and spec.catalog_file):
        return source, []
    takes = [s for s in specs().values() if s.catalog_file]
    return source, [("catalog", _goes_with("catalog", takes, "source"))]


def keys_of_protocol(end: _Endpoint) -> tuple[_Endpoint, list[Fault]]:
    """A protocol's own keys are for its own connectors."""
    role = _role(end)
    spec = _spec(end)
    faults: list[Fault] = []
    for name in end.protocol_keys:
        takes = [s for s in specs().values() if _declares(s, role, name)]
        if spec not in takes:
            faults.append((name, _goes_with(name, takes, role)))
    return end, faults


def attempts(end: _Endpoint) -> tuple[_Endpoint, list[Fault]]:
    """Others do not say whether a failure may pass, or have a key of their own."""
    spec = _spec(end)
    if spec is not None and spec.retried is not None:
        return end, []
    takes = [s for s in specs().values() if s.retried is not None]
    why = ", ".join(dict.fromkeys(s.retried for s in takes if s.retried))
    if (spec is None or spec.components) and end.use not in TABLES:
        why += "; a WebAssembly connector has resources.max_retries"
    changed = [n for n in ("attempts", "backoff") if getattr(end, n) != getattr(_USUAL, n)]
    return end, [(n, f"{_goes_with(n, takes, _role(end))}, {why}") for n in changed]


def keys_of_connectors(destination: Destination) -> tuple[Destination, list[Fault]]:
    """What is asked of a destination that cannot be asked of it is told, never ignored (L10)."""
    faults: list[Fault] = []
    if destination.acks != "echo" and destination.use in TABLES:
        faults.append(
            ("acks", f"acks goes with a destination connector; {destination.use} is a table, whose "
             "commits need no acks")
        )  # fmt: skip
    return destination, faults


def _spec(connector: Connector) -> ProtocolSpec | None:
    """None: a table, or a name without a protocol."""
    return specs().get(connector.use.partition(":")[0].strip())


def _role(end: Connector) -> EndpointRole:
    return "source" if isinstance(end, Source) else "destination"


def _declares(spec: ProtocolSpec, role: EndpointRole, name: str) -> bool:
    declared = spec.keys(role)
    return declared is not None and name in declared.__struct_fields__


def _goes_with(name: str, takes: Iterable[ProtocolSpec], role: EndpointRole) -> str:
    return f"{name} goes with {' or '.join(s.called(role) for s in takes)}"


def streams_differ(source: Source) -> tuple[Source, list[Fault]]:
    seen: set[tuple[str | None, str]] = set()
    faults: list[Fault] = []
    for stream in source.streams or ():
        if (stream.namespace, stream.name) in seen:
            faults.append(("streams", f"stream '{stream.name}' is listed twice"))
        seen.add((stream.namespace, stream.name))
    return source, faults


def state_store(state: StateSettings) -> tuple[StateSettings, list[Fault]]:
    faults: list[Fault] = []
    if state.backend == "sqlite" and state.url is not None:
        faults.append(("url", "url goes with backend postgres; for sqlite give path"))
    if state.backend == "postgres" and state.path is not None:
        faults.append(("path", "path goes with backend sqlite; for postgres give url"))
    if state.backend == "postgres" and not (state.url or state.connection):
        faults.append(("backend", "backend postgres needs url"))
    if state.connection is not None and (state.url or state.path):
        faults.append(("connection", "connection says the same as url and path: give one"))
    return state, faults


def defaults_of_streams(file: PipelineFile) -> tuple[PipelineFile, list[Fault]]:
    """Rapidbyte's places (``destination.write_mode``, ``destination.primary_key``,
    ``resources.parallelism``) mean the same as Penstock's."""
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
    Source: (table_place, streams_differ, catalog_file, keys_of_protocol, attempts),
    Transform: (),
    Destination: (table_place, keys_of_connectors, keys_of_protocol, attempts),
    StateSettings: (state_store,),
    PipelineFile: (defaults_of_streams,),
}
