"""What a push task is told: streams as the destination knows them, and the job itself.

Neighbours: ``engine.plan.endpoints`` has the destination; ``engine.deliver.feeder_runner`` runs
what is described here.
"""

from collections.abc import Mapping

import msgspec

from penstock.engine.channel.mailbox import Mailbox
from penstock.engine.plan.endpoints import Destination
from penstock.engine.plan.prepare import Prepared
from penstock.engine.specs.feeder import PushJob
from penstock.model.catalog import StreamId
from penstock.model.segments import Shape
from penstock.protocols.contract import Acks, WriteStream
from penstock.state.contract import Store


class FeederJobs:
    """What the push tasks of one run are told."""

    def __init__(
        self, prepared: Prepared, destination: Destination, store: Store, mailbox: Mailbox
    ) -> None:
        self._prepared, self._destination = prepared, destination
        self._store, self._mailbox = store, mailbox

    def streams(self, filled: Mapping[StreamId, Shape]) -> dict[StreamId, WriteStream]:
        """What a conversation begins with. ``filled``: streams that have rows, told with every
        schema version that their parts may have; beside them those of the plan, with the newest
        one. A stream that overwrites is told only with its rows: being told of it empties a
        table."""
        name, destination = self._prepared.pipeline.pipeline, self._destination
        generations = self._store.generations(name)
        schemas = {s: self._store.schemas(name, s) for s in filled}
        found: dict[StreamId, WriteStream] = {}
        for planned in self._prepared.plan.streams:
            if planned.id not in schemas and planned.replaces_table:
                continue
            newest = planned.schema
            its = schemas.pop(planned.id, {newest.version: newest})
            found[planned.id] = destination.planned(planned, its, generations.get(planned.id, 0))
        return found | {s: destination.leftover(s, its, filled[s]) for s, its in schemas.items()}

    def job(self, number: int, streams: tuple[WriteStream, ...], attempt: int) -> PushJob:
        """The message to a push task's process."""
        prepared, destination, mailbox = self._prepared, self._destination, self._mailbox
        section, connector = prepared.pipeline.destination, destination.connector
        return PushJob(
            run=mailbox.run,
            number=number,
            log_root=str(mailbox.log_root),
            protocol=connector.protocol.name,
            source_protocol=prepared.source.package.name,
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
            timeouts=destination.timeouts,
            options=section.protocol_keys,
        )
