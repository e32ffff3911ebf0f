"""Takes a pipeline's lease in the driver, and names the command that breaks its lock.

Every run and every command that changes saved data takes the lease here. Not here: who may take it,
how long to wait for it (``store.pipeline_lock``), renewing it (``heartbeat``).
"""

from collections.abc import Callable

from penstock.config.home import Home
from penstock.config.pipeline import Pipeline
from penstock.engine.channel.heartbeat import LEASE_TTL
from penstock.engine.channel.named_pipeline import words_of
from penstock.store.contract import Holder, Lease, Store
from penstock.store.pipeline_lock import Notice, take, unlock_command


def take_lease(
    store: Store,
    pipeline: Pipeline | str,
    home: Home,
    holder: Holder,
    *,
    waiting: Notice | None = None,
    took: Notice | None = None,
    stopped: Callable[[float], bool] | None = None,
) -> Lease:
    """Takes the lease of a pipeline, which is named by its file or by its name. Raises ``Locked``,
    and ``Cancelled``; callbacks as in ``pipeline_lock.take``."""
    return take(
        store,
        pipeline if isinstance(pipeline, str) else pipeline.pipeline,
        holder,
        LEASE_TTL,
        unlock=unlock_of(pipeline, home),
        waiting=waiting,
        took=took,
        stopped=stopped,
    )


def unlock_of(pipeline: Pipeline | str, home: Home) -> str:
    """Returns the command that breaks the pipeline's lock, as it runs from this folder."""
    return unlock_command(*words_of(pipeline, home))
