"""Builds what lanes need: a sync's plan, a lane's job, a stream of that job.

Pure apart from calls to connectors (launch, secrets, abilities). Neighbours:
``engine.plan.prepare`` has the inputs, ``engine.run.lane_runner`` sends the job,
``engine.worker.lane`` reads it.
"""

import os
from collections.abc import Callable

import msgspec

from penstock.config.pipeline import Pipeline
from penstock.config.protocol_spec import spec_of
from penstock.config.sections import MAX_DEAD_LETTERS, Limits
from penstock.engine.channel.mailbox import Mailbox
from penstock.engine.plan.load_ways import shaped, shaped_with_keys
from penstock.engine.plan.prepare import Prepared
from penstock.engine.plan.table_types import json_texts
from penstock.engine.specs.lane import (
    LaneBounds,
    LaneJob,
    LaneStream,
    RetriedFile,
    StreamJob,
)
from penstock.engine.specs.plan import ContinuedStream, LaneStart, PlannedStream, SyncPlan
from penstock.model.catalog import DestinationSyncMode, FieldPath, Shard, SyncMode
from penstock.model.delete_marks import DeleteMark, is_time
from penstock.model.rejected import MaxRejected
from penstock.model.segments import PartLayout
from penstock.spark.session import choose_master, local_slots
from penstock.tables.files.direct_parts import layout


def sync_plan(prepared: Prepared) -> SyncPlan:
    """Returns the plan of a prepared run in the form that ``engine.sync`` takes."""
    pipeline, lanes = prepared.pipeline, prepared.plan.lanes
    return SyncPlan(
        streams=prepared.plan.streams,
        unread=prepared.plan.unread,
        open=prepared.plan.open,
        max_epochs=1 if prepared.served else 3,
        keyed=prepared.keys is not None,
        resent=prepared.served,
        max_rejected=pipeline.max_rejected or MaxRejected(),
        lanes=lanes,
        slots=local_slots(choose_master(pipeline.spark.master, os.cpu_count() or 1, lanes)),
        load_bytes=pipeline.load.max_pending_bytes,
        load_seconds=pipeline.load.max_pending_time,
    )


class LaneJobs:
    """Builds the jobs of one run's lanes. ``limit``: records per stream, from ``--limit``; ``dry``:
    a dry run, which keeps nothing. ``retried``: returns the rejects that the lane reads in place of
    its connector."""

    def __init__(
        self,
        prepared: Prepared,
        mailbox: Mailbox,
        *,
        limit: int | None,
        dry: bool,
        retried: Callable[[], tuple[RetriedFile, ...]] | None = None,
    ) -> None:
        self._prepared, self._mailbox, self._limit, self._dry = prepared, mailbox, limit, dry
        self._retried = retried

    def job(self, start: LaneStart) -> LaneJob:
        """Returns the message to a lane's process."""
        prepared, mailbox = self._prepared, self._mailbox
        pipeline, source = prepared.pipeline, prepared.source
        planned, generations = prepared.by_id(), dict(start.generations)
        host = spec_of(source.package.name).served if prepared.served else None
        return LaneJob(
            run=mailbox.run,
            lane=start.lane,
            epoch=start.epoch,
            log_root=str(mailbox.log_root),
            protocol=source.package.name,
            launch=msgspec.to_builtins(source.connector.launch()),
            config=source.config,
            config_hash=source.base_hash,
            streams=tuple(
                self._stream_job(
                    stream, generations[stream.id], start.lane, anew=self._anew(stream, start)
                )
                for stream in start.streams
            ),
            transforms=prepared.rules.transforms,
            states=start.states,
            secrets=tuple({s for e in (source, *prepared.transforms) for s in e.secrets()}),
            strict=pipeline.strict,
            on_data_error=pipeline.destination.on_data_error if self._retried is None else "dlq",
            change_words=source.package.change_words,
            limit=self._limit,
            dry=self._dry,
            shared_states=prepared.plan.lanes == 1,
            timeouts=source.timeouts,
            bounds=LaneBounds(reject_quota=reject_quota(pipeline)),
            max_record_bytes=pipeline.max_record_bytes,
            abilities=source.abilities(),
            unchosen=tuple(s for s in prepared.catalog.streams if s.id not in planned),
            served=prepared.served,
            every_state=host is not None and host.every_state,
            open=start.open,
            tries=start.tries,
            attempts=1 if prepared.served else pipeline.source.attempts,
            backoff=pipeline.source.backoff,
            keys=prepared.keys,
            mail_key=mailbox.key,
            change_lists=prepared.destination.has_tables and prepared.rules.metadata is not None,
            retried=() if self._retried is None else self._retried(),
        )

    def continued(self, stream: ContinuedStream, lane: int) -> StreamJob:
        """Returns the answer to a lane's question how to continue a stream."""
        served = self._prepared.served
        job = self._stream_job(stream.stream, stream.generation, lane)
        if stream.version is None:
            return job
        versioned = msgspec.structs.replace(
            job.lane,
            fills_generation=stream.fills,
            version=stream.version,
            requires_complete_status=job.lane.requires_complete_status or (served and stream.fills),
        )
        return msgspec.structs.replace(job, lane=versioned)

    def _anew(self, stream: PlannedStream, start: LaneStart) -> bool:
        """Whether the epoch reads the stream from its beginning, after its state was deleted."""
        known = any(s.scope.stream in (None, stream.id) for s in start.states)
        return self._prepared.anew and not known

    def _stream_job(
        self, stream: PlannedStream, generation: int, lane: int, *, anew: bool = False
    ) -> StreamJob:
        """Builds a stream of a lane's job. Under ``penstock serve`` with ``on_data_error: fail`` a
        record without its key is refused in every mode, so that the host receives the error."""
        prepared, configured = self._prepared, stream.configured
        asked = prepared.served and prepared.pipeline.destination.on_data_error == "fail"
        return StreamJob(
            configured=stream.configured_for(generation),
            lane=LaneStream(
                stream=stream.id,
                disposition=msgspec.structs.replace(
                    stream.disposition, anew=anew, retried=self._retried is not None
                ),
                schema_version=stream.schema.version,
                generation=generation,
                fills_generation=configured.fills_generation,
                requires_complete_status=stream.id in prepared.requires_complete_status,
                consumes=configured.sync_mode is SyncMode.cdc and self._retried is None,
                shard=Shard(lane, stream.shards) if stream.shards > 1 else None,
                layout=self._layout(stream, generation),
            ),
            schema=stream.schema,
            given=stream.given,
            made=() if stream.chain is None else stream.chain.made,
            key=configured.primary_key if asked else stream.key,
            exact=self._exact_key(stream),
            whole=stream.whole,
            ignored=stream.ignored,
            undeclared=stream.undeclared,
            closed=stream.closed,
            mark=stream.mark,
            deletes=self._delete_mark(stream),
            json_texts=json_texts(stream.given or stream.schema, stream.declared),
            texts=not stream.queried,
        )

    def _delete_mark(self, stream: PlannedStream) -> DeleteMark | None:
        """Returns the rule that decides whether a mark means a delete; None where no deletes are
        carried out. For a destination connector every mark that is not null is a delete."""
        fields = (*(stream.given or stream.schema).fields, *stream.schema.fields)
        mark = next((f for f in fields if f.name == stream.disposition.deleted_column), None)
        if mark is None:
            return None
        to_connector = not self._prepared.destination.has_tables
        return DeleteMark(mark.source, is_time(mark.type), null_if_live=to_connector)

    def _exact_key(self, stream: PlannedStream) -> tuple[FieldPath, ...]:
        """Returns the key by which a table merges the rows (L9); connectors get unchanged keys."""
        merges = stream.disposition.mode is DestinationSyncMode.append_dedup
        tables = self._prepared.destination.has_tables
        return stream.configured.primary_key if merges and tables else ()

    def _layout(self, stream: PlannedStream, generation: int) -> PartLayout | None:
        """Returns the layout of parts that the stream's table can take unchanged; None where rows
        must be more than appended, or the table is not on this machine."""
        names, disposition = self._prepared.rules.metadata, stream.disposition
        prepared = self._prepared
        if names is None or not (shaped(prepared, stream) or shaped_with_keys(prepared, stream)):
            return None
        given = disposition.generation_id
        number = generation if given is None else given
        return layout(stream.schema, names, disposition.sync_id, number)


def reject_quota(pipeline: Pipeline) -> int:
    """Returns the bytes of rejects that a lane may write. Rejects of the source and of transforms
    go to the same files, so the largest limit of them applies; a component's host enforces the
    component's own limit."""
    limits = [pipeline.source.limits or Limits()]
    limits += [t.limits for t in (*pipeline.transforms, *pipeline.enrichments) if t.limits]
    return max(limit.max_dead_letters or MAX_DEAD_LETTERS for limit in limits)
