"""Holds the collaborators of one sync: the lease and its store, the log, the protocol's rules for
states, the copier of rejects, the observer, and the failures so far.

Built once (``engine.run.wiring``) and passed as a whole. Not here: decisions, plans of streams
(``engine.specs.plan``). Neighbours: ``engine.sync`` and the other modules of ``engine.deliver``
take one.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from penstock.engine.deliver.state_parts import merging
from penstock.engine.log.kept_rejects import RejectsKeeper
from penstock.engine.log.log import Log
from penstock.engine.log.repeated_rejects import RepeatedRejects
from penstock.engine.specs.observer import SyncObserver
from penstock.errors import PenstockError
from penstock.model.catalog import StreamId
from penstock.model.segments import ConsumedSlice
from penstock.protocols.contract import StateRole
from penstock.store.contract import Lease, Merge, Store
from penstock.store.rules import lease_lost


class SyncFailures:
    """The failures of a sync so far. ``errors``: in order of time. ``blocked``: streams that are no
    longer delivered or read, each with its error (None: the destination halted it, which is no
    failure); ``shared_blocked``: a shared state is blocked too. ``shared_halted``: it is blocked
    because the destination halted a stream that it covers."""

    def __init__(self) -> None:
        self.errors: list[PenstockError] = []
        self.blocked: dict[StreamId, PenstockError | None] = {}
        self.shared_blocked = self.shared_halted = False

    def block(self, stream: StreamId, error: PenstockError, *, shared: bool) -> None:
        """Blocks a stream, and (``shared``) the state that it shares."""
        self.blocked[stream] = error
        self.shared_blocked |= shared
        self.errors.append(error)

    def halt(self, streams: Iterable[StreamId], *, shared: bool) -> None:
        """Blocks streams whose rows the destination no longer takes in this run, and (``shared``)
        the state that they share. What it did not take stays sealed: rows that are read or
        delivered now would come before it, or a second time."""
        for stream in streams:
            self.blocked.setdefault(stream, None)
        self.shared_blocked |= shared
        self.shared_halted |= shared

    @property
    def failed(self) -> dict[StreamId, PenstockError]:
        """Returns the blocked streams that failed."""
        return {stream: error for stream, error in self.blocked.items() if error is not None}

    @property
    def halted(self) -> set[StreamId]:
        """Returns the blocked streams that did not fail."""
        return {stream for stream, error in self.blocked.items() if error is None}


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
    repeated: RepeatedRejects
    observer: SyncObserver
    failures: SyncFailures = field(default_factory=SyncFailures)

    @property
    def pipeline(self) -> str:
        return self.lease.pipeline

    def prove_lease(self) -> None:
        """Raises ``LeaseLost`` where another run has taken the pipeline over (L12)."""
        lock = self.store.lock(self.pipeline)
        if lock is None or lock.token != self.lease.token:
            raise lease_lost(self.pipeline, lock.holder if lock else None)

    def give_up(self, items: Iterable[ConsumedSlice]) -> None:
        """Gives up shares of sealed segments: their rows are dropped, and their source sends them
        again."""
        left = list(items)
        if left:
            self.rejects.give_up(self.log.segments(), left)
            self.store.abandon(self.lease, left)

    @property
    def merge(self) -> Merge:
        """Returns how new states join the saved ones."""
        return merging(self.state_role)
