"""Holds the collaborators of one sync: the lease and its store, the log, the protocol's rules for
states, the copier of rejects, the observer, and the failures so far.

Built once (``engine.run.wiring``) and passed whole. Not here: decisions, plans of streams
(``engine.specs.plan``). Neighbours: ``engine.sync`` and the other modules of ``engine.deliver``
take one.
"""

from dataclasses import dataclass, field

from penstock.engine.log.kept_rejects import RejectsKeeper
from penstock.engine.log.log import Log
from penstock.engine.specs.observer import SyncObserver
from penstock.errors import PenstockError
from penstock.model.catalog import StreamId
from penstock.protocols.contract import StateRole
from penstock.store.contract import Lease, Store


class SyncFailures:
    """The failures of a sync so far. ``errors``: in order of time. ``blocked``: streams of which
    nothing more is delivered; ``shared_blocked``: nor is a shared state."""

    def __init__(self) -> None:
        self.errors: list[PenstockError] = []
        self.blocked: dict[StreamId, PenstockError] = {}
        self.shared_blocked = False

    def block(self, stream: StreamId, error: PenstockError, *, shared: bool) -> None:
        """Blocks a stream, and (``shared``) the state that it shares."""
        self.blocked[stream] = error
        self.shared_blocked |= shared
        self.errors.append(error)


@dataclass(frozen=True, slots=True)
class SyncSession:
    """The collaborators of one sync. ``state_role``: the source protocol's rules for states, with
    the names that its states use for streams. ``rejects``: copies rejects from the log to the run's
    folder."""

    lease: Lease
    store: Store
    log: Log
    state_role: StateRole
    rejects: RejectsKeeper
    observer: SyncObserver
    failures: SyncFailures = field(default_factory=SyncFailures)

    @property
    def pipeline(self) -> str:
        return self.lease.pipeline
