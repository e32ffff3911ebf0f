"""What a push task is told: streams as the destination knows them, and the job itself.

Neighbours: ``engine.plan.endpoints`` has the destination; ``engine.deliver.feeder_runner`` runs
what is described here.
"""

from collections.abc import Mapping

import msgspec

from penstock.config.pipeline import Pipeline
from penstock.engine.plan.endpoints import Destination
from penstock.engine.plan.prepare import Prepared
from penstock.engine.specs.feeder import PushJob
from penstock.engine.specs.lane import KeysAt
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
        overwrites = planned.shape.mode is DestinationSyncMode.overwrite or planned.shape.replaces
        if planned.id not in schemas and overwrites:
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
    mail_key: bytes,
) -> PushJob:
    """The message to a push task's process."""
    told = pipeline.destination
    connector = destination.connector
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
        attempts=told.attempts,
        backoff=told.backoff,
        keys=keys,
        mail_key=mail_key,
        secrets=tuple(connector.secrets(destination.config)),
        acks=Acks(told.acks),
        timeouts=destination.timeouts,
        options=told.protocol_keys,
    )
