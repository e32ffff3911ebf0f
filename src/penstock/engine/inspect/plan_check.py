"""Plans and checks a pipeline without moving data (`penstock plan`, `penstock check`): no JVM is
started.

Writes nothing but a configuration that a connector changed during a call (CONTROL). Neighbours:
``cli`` calls; ``engine.plan.prepare`` and ``engine.plan.open_source`` call the connectors.
"""

from collections.abc import Generator
from contextlib import contextmanager
from functools import partial
from typing import Any

import msgspec

from penstock.config.home import Home
from penstock.config.pipeline import ConnectorSection, Pipeline
from penstock.connectors.component_files import component_launch
from penstock.connectors.connector import restricted
from penstock.connectors.consent import ConsentRequest, consent_request
from penstock.connectors.reference import RefKind, parse_ref
from penstock.engine.channel.lease import take_lease
from penstock.engine.channel.named_pipeline import CompleteCommands
from penstock.engine.inspect.waiting_rows import waiting_note
from penstock.engine.plan.description import describe
from penstock.engine.plan.destination import destination_of
from penstock.engine.plan.endpoint import (
    DESTINATION,
    SOURCE,
    Endpoint,
    Save,
    component_settings,
    running_folder,
)
from penstock.engine.plan.load_ways import host_notes, load_way
from penstock.engine.plan.lost_tables import found_tables, lost_tables, replaced_rows
from penstock.engine.plan.nested_tables import rewritten_tables
from penstock.engine.plan.notes_of_streams import joined_notes
from penstock.engine.plan.open_source import source_of, source_reference
from penstock.engine.plan.place import settle_place
from penstock.engine.plan.prepare import Prepared, prepare
from penstock.engine.plan.repeats import may_repeat
from penstock.engine.plan.source_protocol import refuse_other_source
from penstock.engine.plan.transform_endpoint import transforms_of
from penstock.engine.plan.unsupported import permissions_asked
from penstock.engine.specs.lane import NewConfig
from penstock.engine.specs.observer import RunObserver
from penstock.errors import ConfigError, Role
from penstock.model.catalog import Catalog, CheckResult, SyncMode
from penstock.short_texts import bounded_data
from penstock.store.contract import Store
from penstock.store.lock_holder import this_holder
from penstock.store.open import open_store
from penstock.transforms.open import BUILT_IN


@contextmanager
def _opened(pipeline: Pipeline, home: Home) -> Generator[Store]:
    store = open_store(home.state_url(pipeline.state))
    try:
        yield store
    finally:
        store.close()


def _saver(store: Store, pipeline: Pipeline, home: Home, role: str) -> Save:
    """Returns a function that stores a configuration that a connector changed (CONTROL) outside a
    run, under a lease of its own."""

    def save(new: NewConfig) -> None:
        lease = take_lease(store, pipeline, home, this_holder("config"))
        try:
            store.set_config_override(lease, role, new.base_hash, new.config)
        finally:
            store.release(lease)

    return save


def plan_pipeline(pipeline: Pipeline, home: Home, *, observer: RunObserver) -> dict[str, Any]:
    """Returns what ``run`` would do, as ``penstock plan`` prints it; no record is read or written.
    Problems are listed, not raised."""
    commands = CompleteCommands(pipeline, home)
    with _opened(pipeline, home) as store:
        permissions, limits, _ = permissions_asked(pipeline)
        answer: dict[str, Any] = {
            "pipeline": pipeline.pipeline,
            "streams": [],
            "permissions": permissions,
            "limits": limits,
            "guarantee": "exactly-once",
            "notes": [],
            "problems": [],
        }
        try:
            placed = settle_place(pipeline, store, home)
            pipeline = placed.pipeline
            ref, same_as = source_reference(pipeline), pipeline.source.same_as
            here = running_folder(pipeline.source)
            refuse_other_source(store, pipeline.pipeline, ref, same_as, here=here)
            save = _saver(store, pipeline, home, SOURCE)
            source = source_of(pipeline, home, store, observer, save=save)
            destination = destination_of(
                pipeline, home, store, observer, save=_saver(store, pipeline, home, DESTINATION)
            )
            transforms = transforms_of(pipeline, home, store, observer)
            answer["asks"] = _asks(source, *transforms, *destination.connectors)
            prepared = prepare(pipeline, source, destination, store, transforms)
        except ConfigError as e:
            commands.error(e)
            answer["problems"] = bounded_data(e.problems or [_with_ways(e)])
            return answer
        answer["problems"] = _problems_of_tables(pipeline, store, home, prepared)
        answer["notes"] += placed.notes
        answer["notes"] += found_tables(pipeline, store, prepared.plan.streams)
        lines, notes = prepared.effective_limits()
        answer["held"] = msgspec.to_builtins(lines)
        answer["notes"] += notes
        plan = prepared.plan
        place = destination.place
        way = partial(load_way, prepared)
        answer["streams"] = describe(plan, place, destination.written_to, way)
        answer["guarantee"] = destination.guarantee
        answer["notes"] += destination.fidelity(source.package.name, plan.streams)
        states = store.states(pipeline.pipeline)
        answer["notes"] += destination.sent_whole(plan.streams, states)
        if any(may_repeat(s, place) for s in plan.streams):
            answer["guarantee"] = "at-least-once"
        waits = {s.deferred for s in plan.streams if s.deferred}
        answer["notes"] += [*plan.notes, *sorted(waits)]
        answer["notes"] += rewritten_tables(plan.streams, place) + host_notes(prepared)
        answer["notes"] += _discovery(prepared) + waiting_note(pipeline, store, home)
        notes = [*map(commands.text, answer["notes"]), *_isolation(*prepared.endpoints())]
        names = [str(stream.id) for stream in plan.streams]
        answer["notes"] = bounded_data(joined_notes(notes, names))
        return answer


def _problems_of_tables(
    pipeline: Pipeline, store: Store, home: Home, prepared: Prepared
) -> list[str]:
    planned, destination = prepared.plan.streams, prepared.destination
    problems = lost_tables(pipeline, store, home, planned)
    if destination.has_tables:
        others = replaced_rows(pipeline, store, home, planned, destination.place.location)
        problems += [] if others is None else [_with_ways(others)]
    return problems


def _with_ways(error: ConfigError) -> str:
    """Returns the error's text; for an error about a place or a table, with its hint, which
    has the ways out."""
    placed = error.code in ("config.other_place", "config.other_folder", "config.other_pipeline")
    return f"{error.message}. {error.hint}" if placed else error.message


def _discovery(prepared: Prepared) -> list[str]:
    """Returns why an installed source is discovered before it is read, and not during its read."""
    source = prepared.source
    if not source.kept_beside() or prepared.pipeline.source.catalog is not None:
        return []
    reason = source.discovers_first()
    if reason is None and any(
        s.configured.sync_mode is SyncMode.cdc for s in prepared.plan.streams
    ):
        reason = "a stream is read by cdc"
    return [] if reason is None else [f"the source is discovered before it is read: {reason}"]


def _isolation(*ends: Endpoint[Any]) -> list[str]:
    """Returns the isolation of each process connector."""
    images = [e.connector.image for e in ends]
    notes = [
        "a connector that runs as a process can read what its user can read; containers "
        "(PROTOCOL:docker:IMAGE) and WebAssembly isolate"
        for e, image in zip(ends, images, strict=True)
        if image is None and e.connector.protocol.manifest is None
    ]
    notes += [
        f"{e.role_name} runs as a container of {image.reference}: without capabilities, and sees "
        "only those files of this machine that permissions.fs.allowed_preopens names"
        for e, image in zip(ends, images, strict=True)
        if image is not None
    ]
    return list(dict.fromkeys(notes))


def _asks(*ends: Endpoint[Any]) -> dict[str, Any]:
    """Returns the permissions that the manifest of each component requests, before any of its code
    runs."""
    found = {end.role_name: msgspec.to_builtins(end.connector.asks()) for end in ends}
    return {name: lines for name, lines in found.items() if lines}


def consents(pipeline: Pipeline, home: Home) -> list[ConsentRequest]:
    """Lists the permissions that components of the pipeline request and the user has not agreed to;
    no code is run. Raises ``ConfigError``, ``SourceError``."""
    ends: list[tuple[ConnectorSection, str]] = [(pipeline.source, SOURCE)]
    ends += [(section, f"transform:{i}") for i, section in enumerate(pipeline.transforms)]
    ends.append((pipeline.destination, DESTINATION))
    found: list[ConsentRequest] = []
    for section, place in ends:
        ref = None if section.use in BUILT_IN else parse_ref(section.use)
        if ref is None or ref.kind is not RefKind.component:
            continue
        settings = component_settings(pipeline, section, place)
        launch = component_launch(ref, running_folder(section), home.connectors, settings)
        role: Role = "destination" if place == DESTINATION else "source"
        request = consent_request(
            restricted(launch, role, section.permissions, section.limits), ref.text
        )
        found += [] if request is None else [request]
    return found


def check_pipeline(pipeline: Pipeline, home: Home, *, observer: RunObserver) -> CheckResult:
    """Runs the checks of source, transforms and destination, in this order: credentials,
    configuration, reachability. Returns the first result that failed, else the last."""
    with _opened(pipeline, home) as store:
        source = source_of(
            pipeline, home, store, observer, save=_saver(store, pipeline, home, SOURCE)
        )
        destination = destination_of(
            pipeline, home, store, observer, save=_saver(store, pipeline, home, DESTINATION)
        )
        transforms = transforms_of(pipeline, home, store, observer)
        source.validate()
        for transform in transforms:
            transform.check()
        destination.place.check()
        for end in (source, *transforms, *destination.connectors):
            for note in end.notes:
                observer.log("WARN", end.role_name, note)
        result = source.connector.check(source.config, source.timeouts)
        for end in (*transforms, *destination.connectors):
            if result.succeeded:
                result = end.ask()
        return result


def discover_pipeline(pipeline: Pipeline, home: Home, *, observer: RunObserver) -> Catalog:
    """Returns the streams of a pipeline's source, as ``penstock discover`` does. Raises
    ``ConfigError``, ``SourceError``."""
    with _opened(pipeline, home) as store:
        source = source_of(
            pipeline, home, store, observer, save=_saver(store, pipeline, home, SOURCE)
        )
        source.validate()
        return source.connector.discover(source.config, source.timeouts)


def preview_pipeline(
    pipeline: Pipeline, home: Home, stream: str | None, limit: int, *, observer: RunObserver
) -> dict[str, Any]:
    """Returns the first rows of one stream of a pipeline's source, as ``penstock preview`` does.
    Raises ``ConfigError``, ``SourceError``."""
    from penstock.engine.inspect.preview import preview

    with _opened(pipeline, home) as store:
        source = source_of(
            pipeline, home, store, observer, save=_saver(store, pipeline, home, SOURCE)
        )
        source.validate()
        return preview(source.connector, source.config, stream, limit)
