"""Verbs that look at a pipeline and move no data: no JVM is started, nothing is written.

Neighbours: ``cli`` calls; ``engine.preparation`` and ``engine.ends`` do the asking.
"""

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import msgspec

from penstock.config.home import Home
from penstock.config.pipeline import Pipeline
from penstock.engine.ends import DESTINATION, SOURCE, Destination, Save, source_of
from penstock.engine.keepalive import LEASE_TTL
from penstock.engine.mailbox import NewConfig
from penstock.engine.plan import StreamsPlan, describe
from penstock.engine.preparation import destination_of, prepare
from penstock.engine.progress import RunObserver
from penstock.engine.refusals import permissions_asked
from penstock.engine.transform_end import TransformEnd, transforms_of
from penstock.errors import ConfigError
from penstock.model.catalog import CheckResult
from penstock.state.contract import Store
from penstock.state.holder import this_holder
from penstock.state.open import open_store


@contextmanager
def _opened(pipeline: Pipeline, home: Home) -> Generator[Store]:
    store = open_store(home.state_url(pipeline.state))
    try:
        yield store
    finally:
        store.close()


def _saver(store: Store, pipeline: Pipeline, role: str) -> Save:
    """CONTROL outside a run: stored under a lease of its own."""

    def save(new: NewConfig) -> None:
        lease = store.acquire(pipeline.pipeline, this_holder("config"), LEASE_TTL)
        try:
            store.set_config_override(lease, role, new.base_hash, new.config)
        finally:
            store.release(lease)

    return save


def plan_pipeline(pipeline: Pipeline, home: Home, *, observer: RunObserver) -> dict[str, Any]:
    """What ``run`` would do; nothing is read or written. Problems are listed, not raised."""
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
            save = _saver(store, pipeline, SOURCE)
            source = source_of(pipeline, home, store, observer, save=save)
            place = destination_of(
                pipeline, home, store, observer, save=_saver(store, pipeline, DESTINATION)
            )
            transforms = transforms_of(pipeline, home, store, observer)
            prepared = prepare(pipeline, source, place, store, transforms)
        except ConfigError as e:
            answer["problems"] = e.problems or [e.message]
            return answer
        lines, notes = prepared.held()
        answer["held"] = msgspec.to_builtins(lines)
        answer["notes"] += notes
        plan: StreamsPlan = prepared.plan
        target = place.target if isinstance(place, Destination) else None
        answer["streams"] = describe(plan, place, target)
        if isinstance(place, Destination):
            answer["guarantee"] = "at-least-once"
            answer["notes"] += place.fidelity(source.package.name, plan.streams)
        held = {s.held for s in plan.streams if s.held}
        answer["notes"] += [*plan.notes, *sorted(held)]
        if any(e.connector.protocol.manifest is None for e in prepared.ends()):
            answer["notes"].append(
                "a connector that runs as a process can read what its user can read; containers "
                "and WebAssembly isolate"
            )
        return answer


def check_pipeline(pipeline: Pipeline, home: Home, *, observer: RunObserver) -> CheckResult:
    """Are the source's credentials good, are the transforms content, and is the destination there
    to be written to? The first of them that fails is the answer."""
    with _opened(pipeline, home) as store:
        source = source_of(pipeline, home, store, observer, save=_saver(store, pipeline, SOURCE))
        place = destination_of(
            pipeline, home, store, observer, save=_saver(store, pipeline, DESTINATION)
        )
        transforms = transforms_of(pipeline, home, store, observer)
        source.validate()
        for transform in transforms:
            transform.check()
        place.check()
        result = source.connector.check(source.config, source.timeouts)
        for end in (*transforms, place):
            if result.succeeded and isinstance(end, (TransformEnd, Destination)):
                result = end.ask()
        return result
