"""Builds a push task's job: its streams as the destination sees them, and the message itself. Also
names the streams whose rejected rows are recorded.

Neighbours: ``engine.plan.destination_endpoint`` has the destination;
``engine.deliver.feeder_runner`` runs the job.
"""

from collections.abc import Collection, Mapping
from pathlib import Path

import msgspec

from penstock.engine.channel.mailbox import Mailbox
from penstock.engine.log.rejected_keys import RejectedKeys, RetriedRejects
from penstock.engine.plan.destination_endpoint import DestinationEndpoint
from penstock.engine.plan.prepare import Prepared
from penstock.engine.specs.feeder import PushJob
from penstock.model.catalog import Change, StreamId
from penstock.model.segments import WriteDisposition
from penstock.protocols.writing import Acks, WriteStream
from penstock.store.contract import Lease, Store
from penstock.store.remembered import Remembered


def rejected_keys(prepared: Prepared, log_root: Path) -> RejectedKeys | None:
    """Returns the recorder of rejects that later runs retry, may not remove, or may insert once
    they have changed; None: there is no such stream."""
    streams = {
        s.id: RetriedRejects(tuple(path[0] for path in s.configured.primary_key), s.retry_rejected)
        for s in prepared.plan.streams
        if s.retry_rejected or _removes_or_inserts(s.configured.sends)
    }
    return RejectedKeys(log_root / "snapshots", streams) if streams else None


def _removes_or_inserts(sends: Collection[Change]) -> bool:
    return Change.removed in sends or (bool(sends) and Change.changed not in sends)


class FeederJobs:
    """Builds the jobs of one run's push tasks."""

    def __init__(
        self, prepared: Prepared, destination: DestinationEndpoint, store: Store, mailbox: Mailbox
    ) -> None:
        self._prepared, self._destination = prepared, destination
        self._store, self._mailbox = store, mailbox

    def streams(self, filled: Mapping[StreamId, WriteDisposition]) -> dict[StreamId, WriteStream]:
        """Returns the streams with which a push task begins: those of ``filled``, which have rows,
        with every schema version that their parts may have; and the other streams of the plan with
        the newest version. A stream that overwrites is included only if it has rows: a destination
        may empty its table when it is configured."""
        name, destination = self._prepared.pipeline.pipeline, self._destination
        generations = self._store.generations(name)
        schemas = {s: self._store.schemas(name, s) for s in filled}
        found: dict[StreamId, WriteStream] = {}
        for planned in self._prepared.plan.streams:
            if planned.id not in schemas and planned.replaces_table:
                continue
            newest = planned.schema
            versions = schemas.pop(planned.id, {newest.version: newest})
            found[planned.id] = destination.planned(
                planned,
                versions,
                generations.get(planned.id, 0),
                filled=filled.get(planned.id),
            )
        return found | {
            s: destination.leftover(s, versions, filled[s]) for s, versions in schemas.items()
        }

    def gave_result(self, lease: Lease) -> None:
        """Stores that the destination answers the end of a stream with a result. May be called
        repeatedly; writes once."""
        if not self._gives_results():
            name = self._destination.lasting
            self._store.remember(lease, Remembered(results=frozenset([name])))

    def _gives_results(self) -> bool:
        known = self._store.remembered(self._prepared.pipeline.pipeline, ()).results
        return self._destination.lasting in known

    def job(self, number: int, streams: tuple[WriteStream, ...], attempt: int) -> PushJob:
        """Returns the message to a push task's process. ``number``: unique in the run. ``attempt``:
        from 1."""
        prepared, destination, mailbox = self._prepared, self._destination, self._mailbox
        section, connector = prepared.pipeline.destination, destination.connector
        return PushJob(
            run=mailbox.run,
            number=number,
            log_root=str(mailbox.log_root),
            protocol=connector.protocol.name,
            source_protocol=prepared.source.package.name,
            pipeline=prepared.pipeline.pipeline,
            launch=msgspec.to_builtins(connector.launch()),
            config=destination.config,
            config_hash=destination.base_hash,
            streams=streams,
            attempt=attempt,
            attempts=section.attempts,
            backoff=section.backoff,
            keys=prepared.keys,
            mail_key=mailbox.key,
            secrets=tuple(connector.secrets(destination.config)),
            acks=Acks(section.acks),
            gives_results=self._gives_results(),
            timeouts=destination.timeouts,
            options=section.protocol_keys,
            on_data_error=section.on_data_error,
        )
