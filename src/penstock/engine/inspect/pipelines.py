"""Opens a pipeline's state store, by the pipeline's file or by its name.

For the commands that inspect what runs left; a run itself opens its store in ``engine.run``.
Neighbours: ``engine.inspect.states`` and ``engine.inspect.runs`` work on what :func:`open_known`
yields.
"""

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from penstock.config.did_you_mean import hint
from penstock.config.home import Home
from penstock.config.pipeline import Pipeline, StreamOptions
from penstock.connectors.reference import ConnectorRef, parse_ref
from penstock.connectors.same_connector import lasting
from penstock.engine.channel.lease import take_lease
from penstock.engine.channel.named_pipeline import CompleteCommands
from penstock.engine.inspect.runs import has_attempts
from penstock.engine.plan.endpoint import running_folder
from penstock.engine.plan.named_packages import used
from penstock.engine.plan.place import other_place, refuse_other_place
from penstock.engine.plan.source_protocol import refuse_other_protocol, refuse_other_source
from penstock.engine.plan.state_names import state_role
from penstock.errors import ConfigError, PenstockError, StateError
from penstock.protocols import load
from penstock.protocols.contract import ProtocolPackage, StateRole
from penstock.store.contract import Lease, Store
from penstock.store.lock_holder import this_holder
from penstock.store.open import open_store
from penstock.store.pipeline_lock import Notice
from penstock.store.remembered import Remembered

_FROM_ANY_PLACE = ("adopt", "unlock")


@dataclass(frozen=True, slots=True)
class OpenPipeline:
    """A pipeline with its store open. ``protocol``: of the source whose states are saved, by the
    store; None: the store has none. ``source``: the reference in the pipeline file; None: the
    pipeline was named without a file. ``same_as``: the source's earlier reference, by the pipeline
    file. ``listed``: the streams that the file names; None: no file, or every stream. ``what``: as
    it was named. ``waiting``: called with what a change waits for. ``here``: where the source's
    relative paths start."""

    name: str
    store: Store
    home: Home
    what: Pipeline | str
    waiting: Notice | None = None
    protocol: str | None = None
    source: ConnectorRef | None = None
    same_as: str | None = None
    listed: tuple[StreamOptions, ...] | None = None
    here: Path | None = None

    @contextmanager
    def lease(self, verb: str) -> Generator[Lease]:
        """Holds the pipeline's lease while ``verb`` of ``penstock state`` changes saved data.
        Raises ``Locked`` during a run, and ``ConfigError`` (``config.other_place``) where the state
        is not that of the named pipeline file."""
        if isinstance(self.what, Pipeline) and verb not in _FROM_ANY_PLACE:
            refuse_other_place(self.what, self.store, self.home)
        holder = this_holder(f"state {verb}")
        lease = take_lease(self.store, self.what, self.home, holder, waiting=self.waiting)
        try:
            yield lease
        finally:
            self.store.release(lease)

    def elsewhere(self) -> str | None:
        """Returns the folder, or the id, of another pipeline of the same name, whose state and
        tables these are; None: they are those of the named file."""
        known = other_place(self.what, self.store) if isinstance(self.what, Pipeline) else None
        return None if known is None else known.id or known.folder

    def package(self) -> ProtocolPackage:
        """Returns the protocol package of the saved states. Raises ``StateError`` where neither the
        store nor a pipeline file names the protocol."""
        named = None if self.source is None else self.source.protocol
        protocol = self.protocol or named
        if protocol is not None:
            return load(protocol)
        raise StateError(
            f"what the state of {self.name!r} means depends on its source's protocol",
            code="state.protocol_unknown",
            hint="name the pipeline by its file, or by its source and destination",
        )

    def states(self) -> StateRole:
        """Returns the protocol's rules for the states. Raises as :meth:`package`."""
        earlier, synced = self.store.remembered(self.name), self.store.known_streams(self.name)
        return state_role(self.package(), earlier, synced)

    def remember(self, lease: Lease) -> None:
        """Records the file's source as the one whose states are saved. Raises ``StateError``."""
        if self.source is not None and self.source.protocol is not None:
            refuse_other_protocol(self.store, self.name, self.source.protocol)
            if self.store.source_of(self.name) is None:
                self.store.remember(lease, Remembered(packages=used(())))
            kept = lasting(self.source, self.here or Path.cwd())
            self.store.remember_source(lease, self.source.protocol, kept)

    def refuse_other(self) -> None:
        """Raises ``ConfigError`` where the file's source is not the one whose states are saved."""
        if self.source is not None:
            refuse_other_source(self.store, self.name, self.source, self.same_as, here=self.here)


@contextmanager
def open_known(
    what: Pipeline | str,
    home: Home,
    *,
    must_exist: bool = True,
    waiting: Notice | None = None,
    attempts: bool = False,
) -> Generator[OpenPipeline]:
    """Yields the pipeline with its store open. A name without a file is looked up in the default
    store; raises ``ConfigError`` (``config.unknown_pipeline``) where that store does not have it.
    ``must_exist``: raise that for the pipeline of a file too, if it never ran. ``waiting``: as in
    ``pipeline_lock.take``. ``attempts``: a pipeline counts as known even if all of its runs failed
    before they began."""
    settings = None if isinstance(what, str) else what.state
    store = open_store(home.state_url(settings))
    try:
        name = what if isinstance(what, str) else what.pipeline
        if (must_exist or isinstance(what, str)) and not (attempts and has_attempts(home, name)):
            _must_be_known(name, store, by_name=isinstance(what, str))
        if isinstance(what, str):
            had = store.source_of(name)
            protocol = None if had is None else had.protocol
            yield OpenPipeline(name, store, home, what, waiting, protocol)
        else:
            source = parse_ref(what.source.use)
            # where nothing is saved, the file may have changed its source
            had = store.source_of(name) if store.states(name, only_sound=True) else None
            protocol = None if had is None else had.protocol
            same_as, listed = what.source.same_as, what.source.streams
            yield OpenPipeline(
                name, store, home, what, waiting, protocol, source, same_as, listed,
                running_folder(what.source),
            )  # fmt: skip
    except PenstockError as error:
        CompleteCommands(what, home).error(error)
        raise
    finally:
        store.close()


def _must_be_known(name: str, store: Store, *, by_name: bool) -> None:
    known = store.pipelines()
    if name in known:
        return
    if not by_name:
        raise ConfigError(
            f"the pipeline {name!r} has never run with this home: it has no saved state",
            code="config.unknown_pipeline",
            hint="`penstock run` runs it; if it ran elsewhere, give that --home",
        )
    advice = "no pipeline has run with this home; name a pipeline file, or give --home"
    ran = [p for p in known if store.runs(p, 1)]
    if ran:
        advice = hint(name, ran, "pipelines that ran")
    raise ConfigError(
        f"the pipeline {name!r} has never run with this home: there is no such pipeline in the"
        " state store",
        code="config.unknown_pipeline",
        hint=advice,
    )
