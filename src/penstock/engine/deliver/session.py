"""Holds what every part of one sync works with: the lease and its store, the log, the rules for
states, the rejects' folder, whoever watches, and what has failed so far.

Put together once (``engine.wiring``) and given whole. Not here: any decision, what becomes of a
stream (``engine.specs.plan``). Neighbours: ``engine.sync`` and the other modules of
``engine.deliver`` take one.
"""

from dataclasses import dataclass, field

from penstock.engine.log.kept_rejects import RejectsKeeper
from penstock.engine.log.log import Log
from penstock.engine.specs.observer import SyncObserver
from penstock.errors import PenstockError
from penstock.model.catalog import StreamId
from penstock.protocols.contract import StateRole
from penstock.state.contract import Lease, Store


class SyncFailures:
    """What has failed so far: shared by everything that decides. ``errors``: in order of time.
    ``blocked``: streams of which nothing goes on; ``shared_blocked``: nor does a state that streams
    share."""

    def __init__(self) -> None:
        self.errors: list[PenstockError] = []
        self.blocked: dict[StreamId, PenstockError] = {}
        self.shared_blocked = False

    def block(self, stream: StreamId, error: PenstockError, *, shared: bool) -> None:
        """Nothing of this stream goes on, nor (``shared``) does a state that it shares."""
        self.blocked[stream] = error
        self.shared_blocked |= shared
        self.errors.append(error)


@dataclass(frozen=True, slots=True)
class SyncSession:
    """``state_role``: the source protocol's rules, which know what states call its streams.
    ``rejects``: moves rejects from the log to where users query them."""

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
