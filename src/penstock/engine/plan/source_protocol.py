"""Refuses a source that cannot continue from a pipeline's saved state: one of another protocol, or
another source.

Reads the store, changes nothing. Neighbours: ``prepare``, ``engine.run`` and ``engine.inspect``
call before a source is started.
"""

from collections.abc import Callable
from pathlib import Path

from penstock.connectors.reference import ConnectorRef, parse_ref
from penstock.connectors.same_connector import is_same, shown
from penstock.engine.plan.named_packages import other_name
from penstock.errors import ConfigError, StateError
from penstock.store.contract import Store


def refuse_other_protocol(store: Store, pipeline: str, protocol: str) -> None:
    """Raises ``StateError`` (``state.other_protocol``) where the saved states are not of
    ``protocol``: only sources of the same protocol can read a state."""
    had = store.source_of(pipeline)
    if had is None or had.protocol == protocol or not store.states(pipeline):
        return
    raise StateError(
        f"the saved state of {pipeline!r} is of another protocol: its source was {had.protocol}, "
        f"and a source of {protocol} cannot go on from it",
        code="state.other_protocol",
        hint=f"`penstock state reset {pipeline}` starts over, or give the pipeline another name",
    )


def refuse_other_source(
    store: Store,
    pipeline: str,
    source: ConnectorRef,
    same_as: str | None,
    sealed: Callable[[], bool] = lambda: False,
    *,
    here: Path | None = None,
) -> None:
    """Raises ``ConfigError`` (``config.other_source``) where another source than ``source`` made
    the saved state: only that one can continue from it (L1). ``same_as``: the source's earlier
    reference, by the pipeline file. ``here``: where its relative paths start; None: at the working
    folder. ``sealed``: whether the log has a sealed state that is not saved yet.
    :func:`refuse_other_protocol` handles another protocol."""
    had, here = store.source_of(pipeline), here or Path.cwd()
    if had is None or had.protocol != source.protocol or is_same(had.reference, source, here):
        return
    if same_as is not None and is_same(had.reference, parse_ref(same_as), here):
        return
    if other_name(store, pipeline, had.reference, source):
        return
    if store.states(pipeline) or sealed():
        raise ConfigError(
            f"the saved state of {pipeline!r} is that of {shown(had.reference)}, and the pipeline "
            f"now names {shown(source.text)}, which would go on where the other stopped: give the "
            "pipeline another name (`--name`), forget the state (`penstock state reset "
            f"{pipeline}`), or, if both are the same source, write the earlier `use` as "
            "`source.same_as`",
            code="config.other_source",
            where="source.use",
            hint="nothing was read and nothing was changed",
        )
