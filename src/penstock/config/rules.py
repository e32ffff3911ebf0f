"""What must hold between keys of one section, and what one key means for another.

A rule gets a struct whose own keys are sound and gives it back complete, with the faults it found.
What needs a source's catalog (cursor, key, modes it supports) is ``engine.plan``'s.
"""

from collections.abc import Mapping
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
from penstock.config.reader import Fault, Rule
from penstock.config.references import TABLES, split_table

_Settings = TypeVar("_Settings", bound=StreamSettings)
_Connector = TypeVar("_Connector", bound=Connector)

_GOES_WITH_TAPS = "goes with a Singer tap (use: singer:NAME)"


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


def catalog_of_a_tap(source: Source) -> tuple[Source, list[Fault]]:
    if _protocol(source) == "singer":
        return source, []
    faults: list[Fault] = []
    if source.catalog is not None:
        faults.append(("catalog", f"catalog {_GOES_WITH_TAPS}"))
    if source.catalog_argument != "auto":
        faults.append(("catalog_argument", f"catalog_argument {_GOES_WITH_TAPS}"))
    return source, faults


def keys_of_connectors(destination: Destination) -> tuple[Destination, list[Fault]]:
    """What is asked of a destination that cannot be asked of it is told, never ignored (L10)."""
    faults: list[Fault] = []
    if destination.acks != "echo" and destination.use in TABLES:
        faults.append(
            ("acks", f"acks goes with a destination connector; {destination.use} is a table, whose "
             "commits need no acks")
        )  # fmt: skip
    if destination.activate_version != "auto" and _protocol(destination) != "singer":
        faults.append(
            ("activate_version", "activate_version goes with a Singer target (use: singer:NAME)")
        )
    return destination, faults


def _protocol(connector: Connector) -> str:
    return connector.use.partition(":")[0].strip()


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
    Source: (table_place, streams_differ, catalog_of_a_tap),
    Transform: (),
    Destination: (table_place, keys_of_connectors),
    StateSettings: (state_store,),
    PipelineFile: (defaults_of_streams,),
}
