"""A pipeline as the store knows it: by its file, or by its bare name.

For the verbs that look at what runs left behind; a run itself opens its store in ``engine.run``.
Neighbours: ``engine.states`` and ``engine.history`` work on what :func:`open_known` gives.
"""

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass

from penstock.config.home import Home
from penstock.config.pipeline import Pipeline, StreamOptions
from penstock.config.suggest import hint
from penstock.connectors.reference import parse_ref
from penstock.errors import ConfigError, StateError
from penstock.protocols import KNOWN, load
from penstock.protocols.contract import ProtocolPackage
from penstock.state.contract import Store
from penstock.state.open import open_store


@dataclass(frozen=True, slots=True)
class Known:
    """``protocol``: None where a bare name does not tell. ``listed``: the streams that the pipeline
    file names; None: no file, or every stream."""

    name: str
    store: Store
    protocol: str | None = None
    listed: tuple[StreamOptions, ...] | None = None

    def package(self) -> ProtocolPackage:
        """Of the source's protocol. Raises ``StateError`` where only the pipeline file tells it."""
        if self.protocol is not None:
            return load(self.protocol)
        if len(KNOWN) == 1:
            return load(KNOWN[0])
        raise StateError(
            f"what the state of {self.name!r} means depends on its source's protocol",
            code="state.protocol_unknown",
            hint="name the pipeline by its file, or by its source and destination",
        )


@contextmanager
def open_known(what: Pipeline | str, home: Home, *, must_exist: bool = True) -> Generator[Known]:
    """The pipeline with its store open. A bare name is looked up in the default store; raises
    ``ConfigError`` (``config.unknown_pipeline``) where that has none such. ``must_exist``: the same
    for a pipeline that never ran."""
    settings = None if isinstance(what, str) else what.state
    store = open_store(home.state_url(settings))
    try:
        name = what if isinstance(what, str) else what.pipeline
        if must_exist or isinstance(what, str):
            _must_be_known(name, store, by_name=isinstance(what, str))
        if isinstance(what, str):
            yield Known(name, store)
        else:
            protocol = parse_ref(what.source.use).protocol
            yield Known(name, store, protocol, what.source.streams)
    finally:
        store.close()


def _must_be_known(name: str, store: Store, *, by_name: bool) -> None:
    known = store.pipelines()
    if name in known:
        return
    advice = "it has never run, so nothing is saved"
    if by_name and known:
        advice = hint(name, known, "pipelines that ran")
    elif by_name:
        advice = "no pipeline has run with this home; name a pipeline file, or give --home"
    raise ConfigError(
        f"there is no pipeline {name!r} in the state store",
        code="config.unknown_pipeline",
        hint=advice,
    )
