"""Notes pending refreshes (``run --recreate``). Refuses a run that leaves out their streams and
could therefore save nothing.

Pure. Not here: what a refresh is (``store.remembered``), which states wait for it
(``engine.deliver.load_plan``). Neighbours: ``engine.plan.streams`` calls before a run,
``engine.sync.sync`` where only the read shows the form of the source's state.
"""

from collections.abc import Iterable, Sequence

from penstock.config.pipeline import Pipeline
from penstock.engine.specs.plan import PlannedStream
from penstock.errors import ConfigError
from penstock.model.catalog import StreamId
from penstock.model.state import StoredState
from penstock.protocols.contract import SharedStates, StateRole
from penstock.store.remembered import Remembered


def refresh_notes(
    pipeline: Pipeline, streams: Sequence[PlannedStream], earlier: Remembered
) -> list[str]:
    """Returns a note for each stream whose refresh an earlier run has not completed."""
    planned = {s.id for s in streams if s.configured.refreshes}
    return [
        f"stream {stream}: its refresh is pending since run {refresh.run} ({refresh.at}): its table"
        " and its state stay as they are until it is complete"
        + (", and this run goes on with it" if stream in planned else "")
        + f"; to end it: `penstock state reset {pipeline.pipeline} --cancel-refresh {stream}`"
        for stream, refresh in sorted(earlier.pending_refreshes.items())
    ]


def refuse_left_out(
    pipeline: Pipeline,
    streams: Sequence[PlannedStream],
    role: StateRole,
    states: Sequence[StoredState],
    earlier: Remembered,
) -> None:
    """Raises ``ConfigError`` where a stream whose refresh is pending is not read, and its state
    cannot be separated from that of the streams that are read: nothing of them could be saved.
    ``states``: saved and sealed ones; in a first run only the read shows the form of the state."""
    planned = {s.id for s in streams}
    shared = any(s.scope.stream is None for s in states)
    left = [s for s in sorted(earlier.pending_refreshes) if s not in planned]
    alone = not isinstance(role, SharedStates) or role.stands_alone(states, left)
    if left and planned and shared and not alone:
        raise left_out(pipeline.pipeline, left)


def left_out(pipeline: str, streams: Iterable[StreamId]) -> ConfigError:
    """Returns the error of a run without these streams, whose refreshes are pending."""
    names = [str(stream) for stream in streams]
    ways = ", ".join(f"`penstock state reset {pipeline} --cancel-refresh {name}`" for name in names)
    them, is_pending = ("it", "is") if len(names) == 1 else ("them", "are")
    return ConfigError(
        f"the refresh of {', '.join(names)} {is_pending} pending, and the source's one state cannot"
        f" be saved without {them}",
        code="config.refresh_pending",
        stream=names[0],
        hint=f"run {them} with the others, or end the refresh: {ways}",
    )
