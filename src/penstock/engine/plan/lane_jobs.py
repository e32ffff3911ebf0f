"""What lanes are told: a sync's plan, a lane's job, a stream as a lane knows it.

Pure but for what the connectors say of themselves. Neighbours: ``engine.plan.prepare`` has what is
told, ``engine.sync.lane_runner`` sends it, ``engine.worker.lane`` reads it.
"""

import os
from collections.abc import Mapping

import msgspec

from penstock.config.pipeline import Pipeline
from penstock.config.sections import MAX_DEAD_LETTERS, Limits
from penstock.engine.plan.endpoints import Source
from penstock.engine.plan.prepare import Prepared
from penstock.engine.plan.transform_endpoint import transform_jobs
from penstock.engine.specs.lane import Bounds, LaneJob, LaneStream, StreamJob
from penstock.engine.specs.plan import LaneStart, PlannedStream, SyncPlan, SyncStream
from penstock.model.catalog import (
    ConfiguredStream,
    DestinationSyncMode,
    Shard,
    StreamId,
    SyncMode,
)
from penstock.model.rejected import MaxRejected
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
        max_rejected=planned.max_rejected,
    )


def sync_plan(pipeline: Pipeline, prepared: Prepared) -> SyncPlan:
    return SyncPlan(
        pipeline=pipeline.pipeline,
        streams=tuple(sync_stream(s, prepared.schemas) for s in prepared.plan.streams),
        open=prepared.plan.open,
        max_epochs=1 if prepared.served else 3,
        keyed=prepared.keys is not None,
        resent=prepared.served,
        max_rejected=pipeline.max_rejected or MaxRejected(),
        lanes=prepared.plan.lanes,
        slots=local_slots(
            choose_master(pipeline.spark.master, os.cpu_count() or 1, prepared.plan.lanes)
        ),
        load_bytes=pipeline.load.max_pending_bytes,
        load_seconds=pipeline.load.max_pending_time,
    )


def make_job(
    pipeline: Pipeline, prepared: Prepared, start: LaneStart, *, run: str, log_root: str,
    limit: int | None, dry: bool, mail_key: bytes,
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
                keyed=keys_are_asked(pipeline, prepared),
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
        bounds=Bounds(reject_quota=reject_quota(pipeline)),
        max_record_bytes=pipeline.max_record_bytes,
        abilities=source.abilities(),
        unchosen=tuple(s for s in prepared.catalog.streams if s.id not in planned),
        served=prepared.served,
        open=start.open,
        tries=start.tries,
        attempts=1 if prepared.served else pipeline.source.attempts,
        backoff=pipeline.source.backoff,
        keys=prepared.keys,
        mail_key=mail_key,
    )


def reject_quota(pipeline: Pipeline) -> int:
    """Rejects of the source and of what stands behind it go to the same files: the widest limit of
    them holds. A component is held to its own by its host."""
    limits = [pipeline.source.limits or Limits()]
    limits += [t.limits for t in pipeline.transforms if t.limits]
    return max(told.max_dead_letters or MAX_DEAD_LETTERS for told in limits)


def keys_are_asked(pipeline: Pipeline, prepared: Prepared) -> bool:
    """A host hears of a record without its key, whatever becomes of its rows."""
    return prepared.served and pipeline.destination.on_data_error == "fail"


def stream_job(
    stream: PlannedStream,
    schemas: Mapping[StreamId, RowSchema],
    generations: Mapping[StreamId, int],
    *,
    lane: int,
    must_say: bool = False,
    keyed: bool = False,
) -> StreamJob:
    """A stream as a lane is told of it. ``keyed``: a record without its key is refused, though
    nothing is merged by it."""
    generation = generations[stream.id]
    configured: ConfiguredStream = stream.configured
    overwrites = stream.shape.mode is DestinationSyncMode.overwrite or stream.shape.replaces
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
        key=stream.configured.primary_key if keyed else stream.key,
        whole=stream.whole,
        ignored=tuple(
            stream.columns.keys() - {f.source for f in (stream.given or stream.schema).fields}
        ),
    )
