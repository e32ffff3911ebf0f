"""What a push task is told: streams as the destination knows them, and the job itself.

Neighbours: ``engine.ends`` has the destination; ``engine.push_task`` runs what is described here.
"""

from collections.abc import Mapping

import msgspec

from penstock.config.pipeline import Pipeline
from penstock.engine.ends import Destination
from penstock.engine.job import KeysAt
from penstock.engine.preparation import Prepared
from penstock.engine.push_job import PushJob
from penstock.model.catalog import DestinationSyncMode, StreamId
from penstock.model.segments import Shape
from penstock.protocols.contract import Acks, WriteStream
from penstock.state.contract import Store


def write_streams(
    destination: Destination,
    prepared: Prepared,
    store: Store,
    pipeline: str,
    filled: Mapping[StreamId, Shape],
) -> dict[StreamId, WriteStream]:
    """What a conversation begins with. ``filled``: streams that have rows, told with every schema
    version that their parts may have; beside them those of the plan, with the newest one. A stream
    that overwrites is told only with its rows: being told of it empties a table."""
    generations = store.generations(pipeline)
    schemas = {s: store.schemas(pipeline, s) for s in filled}
    told: dict[StreamId, WriteStream] = {}
    for planned in prepared.plan.streams:
        if planned.id not in schemas and planned.shape.mode is DestinationSyncMode.overwrite:
            continue
        newest = prepared.schemas[planned.id]
        its = schemas.pop(planned.id, {newest.version: newest})
        told[planned.id] = destination.planned(planned, its, generations.get(planned.id, 0))
    return told | {s: destination.leftover(s, its, filled[s]) for s, its in schemas.items()}


def push_job(
    pipeline: Pipeline,
    destination: Destination,
    source_protocol: str,
    *,
    run: str,
    number: int,
    log_root: str,
    streams: tuple[WriteStream, ...],
    attempt: int,
    keys: KeysAt | None,
) -> PushJob:
    """The message to a push task's process."""
    told = pipeline.destination
    connector = destination.connector
    wanted = {"auto": None, "always": True, "never": False}[told.activate_version]
    return PushJob(
        run=run,
        number=number,
        log_root=log_root,
        protocol=connector.protocol.name,
        source_protocol=source_protocol,
        launch=msgspec.to_builtins(connector.launch()),
        config=destination.config,
        config_hash=destination.base_hash,
        streams=streams,
        attempt=attempt,
        keys=keys,
        secrets=tuple(connector.secrets(destination.config)),
        acks=Acks(told.acks),
        timeouts=destination.timeouts,
        activate_version=wanted,
    )
