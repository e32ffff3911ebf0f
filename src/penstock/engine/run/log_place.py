"""Refuses a run whose log lacks the rows of loads that are in the ledger.

Homes that share a state store must share the log too (``log.path``). The store remembers the log of
a pipeline's last run. A load in the ledger can be repeated only from that log (L3), so the error of
a run without it names that log. Not here: a log of another state store (``FileLog.belong_to``), a
file of the right log that is missing (``engine.deliver.delivery``). Neighbour: ``engine.run`` calls
it before anything is read.
"""

import shlex
from contextlib import suppress
from pathlib import Path

from penstock.engine.log.log import FileLog
from penstock.engine.log.sealed_rows import give_up_sealed
from penstock.errors import LogError
from penstock.model.catalog import SyncMode
from penstock.model.segments import Load
from penstock.store.contract import Lease, Store
from penstock.store.lock_holder import this_holder
from penstock.store.remembered import LogPlace, Remembered


def settle_log(store: Store, lease: Lease, log: FileLog, home: Path, run: str) -> str | None:
    """Stores that this run's log is the pipeline's. If an earlier run had another log, it started
    from the saved state and read again what this log has sealed and not loaded. These rows are
    given up, or they would be loaded twice (except with cdc, whose source sends nothing again).
    Returns a note where rows are read again; None: there is nothing to note. Raises ``LogError``
    (``log.elsewhere``) where the ledger has loads whose rows are in the other log."""
    pipeline = lease.pipeline
    known = store.remembered(pipeline, ()).log
    after = store.last_epoch(pipeline)
    here = LogPlace(log.id(), this_holder(run).name, str(home), str(log.root), after)
    if known is not None and known.id == here.id:
        return None
    waiting = [load for group in store.open_groups(pipeline) for load in group.loads if load.parts]
    if known is None:  # written by a version that did not store it
        if all((log.root / part.path).exists() for load in waiting for part in load.parts):
            store.remember(lease, Remembered(log=here))
        return None
    if waiting:
        raise _elsewhere(waiting, known, here)
    _give_up(store, lease, log, known.after)
    store.remember(lease, Remembered(log=here))
    if not store.open_epochs(pipeline):
        return None
    return (
        f"an earlier run, of {known.holder} (home {known.home}), kept its log in {known.path}, "
        f"which is not this run's {here.path}: what it had sealed there and not loaded is read "
        "again. Homes that share a state store must share `log.path`"
    )


def _give_up(store: Store, lease: Lease, log: FileLog, until: int) -> None:
    """Gives up the rows that this log sealed up to an epoch and that no load took."""
    modes = store.remembered(lease.pipeline).modes.values()
    if any(mode.sync_mode is SyncMode.cdc for mode in modes):
        return
    with suppress(LogError):  # the sync reports a damaged log
        sealed = [s for s in log.segments() if s.id.epoch <= until]
        give_up_sealed(store, lease, log, sealed)


def _elsewhere(waiting: list[Load], known: LogPlace, here: LogPlace) -> LogError:
    first = waiting[0]
    more = f" and {len(waiting) - 1} more" if len(waiting) > 1 else ""
    same = (known.holder, known.path) == (here.holder, here.path)
    where = (
        f"the log {here.path}, which was emptied or replaced since"
        if same
        else f"the log {known.path} of {known.holder} (home {known.home}), and this run's log is "
        f"{here.path}"
    )
    bring = (
        f"bring the folder {shlex.quote(known.path)} back, whole"
        if same
        else f"run the pipeline there, which finishes the load; or bring the folder "
        f"{shlex.quote(known.path)}, whole, to storage that both share, and name the folder above "
        "it as `log.path` in both pipeline files"
    )
    return LogError(
        f"load {first.number} of {first.stream}{more} is written down, and its rows are in {where}",
        code="log.elsewhere",
        where=known.path,
        stream=str(first.stream),
        hint=f"nothing was read or loaded, and no state moved: {bring}. Homes that share a state "
        "store must share `log.path`",
    )
