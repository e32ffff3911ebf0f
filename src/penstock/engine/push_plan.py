"""What a push task is told: streams as the destination knows them, and the job itself.

Neighbours: ``engine.ends`` has the destination; ``engine.push_task`` runs what is described here.
"""

from collections.abc import Mapping

import msgspec

from penstock.config.pipeline import Pipeline
from penstock.engine.ends import Destination
from penstock.engine.plan import PlannedStream
from penstock.engine.push_job import PushJob
from penstock.model.catalog import StreamId
from penstock.protocols.contract import Acks, WriteStream
from penstock.state.contract import Store


def write_stream(
    destination: Destination,
    planned: Mapping[StreamId, PlannedStream],
    store: Store,
    pipeline: str,
    stream: StreamId,
) -> WriteStream:
    """A stream with every schema version that its parts may have, as the store knows it now."""
    schemas = store.schemas(pipeline, stream)
    known = planned.get(stream)
    if known is None:
        return destination.leftover(stream, schemas)
    generation = store.generations(pipeline).get(stream, 0)
    return destination.planned(known, schemas, generation)


def push_job(
    pipeline: Pipeline,
    destination: Destination,
    source_protocol: str,
    *,
    run: str,
    number: int,
    log_root: str,
    streams: tuple[WriteStream, ...],
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
        secrets=tuple(connector.secrets(destination.config)),
        acks=Acks(told.acks),
        timeouts=destination.timeouts,
        activate_version=wanted,
    )
