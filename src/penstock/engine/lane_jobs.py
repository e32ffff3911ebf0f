"""What lanes are told: a sync's plan, a lane's job, a stream as a lane knows it.

Pure but for what the connectors say of themselves. Neighbours: ``engine.preparation`` has what is
told, ``engine.lanes`` sends it, ``engine.child`` reads it.
"""

import os
from collections.abc import Mapping

import msgspec

from penstock.config.pipeline import Pipeline
from penstock.engine.buffers import Bounds, LaneStream
from penstock.engine.contract import SyncPlan
from penstock.engine.ends import Source
from penstock.engine.epochs import LaneStart, SyncStream
from penstock.engine.job import LaneJob, StreamJob
from penstock.engine.plan import (
    PlannedStream,
)
from penstock.engine.preparation import Prepared
from penstock.engine.transform_end import transform_jobs
from penstock.model.catalog import (
    ConfiguredStream,
    DestinationSyncMode,
    Shard,
    StreamId,
    SyncMode,
)
from penstock.model.types import RowSchema
from penstock.spark.session import choose_master, local_slots


def sync_stream(planned: PlannedStream, schemas: Mapping[StreamId, RowSchema]) -> SyncStream:
    return SyncStream(
        configured=planned.configured,
        shape=planned.shape,
        schema_version=schemas[planned.id].version,
        lane=planned.lane,
        held=planned.held is not None,
        shards=planned.shards,
    )


def sync_plan(pipeline: Pipeline, prepared: Prepared) -> SyncPlan:
    return SyncPlan(
        pipeline=pipeline.pipeline,
        streams=tuple(sync_stream(s, prepared.schemas) for s in prepared.plan.streams),
        open=prepared.plan.open,
        max_epochs=1 if prepared.served else 3,
        keyed=prepared.keys is not None,
        resent=prepared.served,
        lanes=prepared.plan.lanes,
        slots=local_slots(
            choose_master(pipeline.spark.master, os.cpu_count() or 1, prepared.plan.lanes)
        ),
        load_bytes=pipeline.load.max_pending_bytes,
        load_seconds=pipeline.load.max_pending_time,
    )


def make_job(
    pipeline: Pipeline, prepared: Prepared, start: LaneStart, *, run: str, log_root: str,
    limit: int | None, dry: bool,
) -> LaneJob:  # fmt: skip
    """The message to a lane's process."""
    source: Source = prepared.source
    planned = {s.id: s for s in prepared.plan.streams}
    generations = dict(start.generations)
    return LaneJob(
        run=run,
        lane=start.lane,
        epoch=start.epoch,
        log_root=log_root,
        protocol=source.package.name,
        launch=msgspec.to_builtins(source.connector.launch()),
        config=source.config,
        config_hash=source.base_hash,
        streams=tuple(
            stream_job(
                planned[s.id],
                prepared.schemas,
                generations,
                lane=start.lane,
                must_say=s.id in prepared.must_say,
            )
            for s in start.streams
        ),
        transforms=transform_jobs(pipeline, prepared.transforms),
        states=start.states,
        secrets=tuple({s for e in (source, *prepared.transforms) for s in e.secrets()}),
        strict=pipeline.strict,
        on_data_error=pipeline.destination.on_data_error,
        change_words=source.package.change_words,
        limit=limit,
        dry=dry,
        shared_states=prepared.plan.lanes == 1,
        timeouts=source.timeouts,
        bounds=Bounds(),
        max_record_bytes=pipeline.max_record_bytes,
        abilities=source.abilities(),
        unchosen=tuple(s for s in prepared.catalog.streams if s.id not in planned),
        served=prepared.served,
        open=start.open,
        tries=start.tries,
        keys=prepared.keys,
    )


def stream_job(
    stream: PlannedStream,
    schemas: Mapping[StreamId, RowSchema],
    generations: Mapping[StreamId, int],
    *,
    lane: int,
    must_say: bool = False,
) -> StreamJob:
    """A stream as a lane is told of it."""
    generation = generations[stream.id]
    configured: ConfiguredStream = stream.configured
    overwrites = stream.shape.mode is DestinationSyncMode.overwrite
    minimum = generation if overwrites and configured.fills_generation else 0
    return StreamJob(
        configured=msgspec.structs.replace(
            configured,
            generation_id=generation,
            minimum_generation_id=minimum,
            sync_id=stream.shape.sync_id,
        ),
        lane=LaneStream(
            stream=stream.id,
            shape=stream.shape,
            schema_version=schemas[stream.id].version,
            generation=generation,
            fills_generation=configured.fills_generation,
            must_say=must_say,
            consumes=configured.sync_mode is SyncMode.cdc,
            shard=Shard(lane, stream.shards) if stream.shards > 1 else None,
        ),
        schema=stream.schema,
        given=stream.given,
        made=() if stream.chain is None else stream.chain.made,
        key=stream.key,
        whole=stream.whole,
        ignored=tuple(
            stream.columns.keys() - {f.source for f in (stream.given or stream.schema).fields}
        ),
    )
