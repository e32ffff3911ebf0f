"""Defines ``penstock.run``, ``run_all``, ``plan``, ``check``, ``discover``, ``state`` and others.

Each takes the arguments of the command line's verb, as Python values, and returns a struct
(``answers``). A failure raises an error of the tree in ``penstock.errors``; an error that ended a
run has the run's report as ``report``. Functions may be called from any thread, and runs of several
pipelines may go on at once. Neighbours: ``pipelines`` loads pipelines; ``engine`` does the work.
"""

import signal
import threading
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, TypedDict, TypeVar, Unpack

import msgspec

from penstock.api.answers import (
    Check,
    Discovered,
    DiscoveredStream,
    PastRun,
    Plan,
    RejectedRow,
    SavedState,
)
from penstock.api.pipelines import (
    are_several,
    is_connector,
    is_file,
    pipeline_of,
    pipeline_or_name,
    project_of,
)
from penstock.api.roles import AskedRole, end_of
from penstock.api.showing import shown
from penstock.config.command_line import Options
from penstock.config.did_you_mean import closest
from penstock.config.home import Home
from penstock.config.load import EnvFiles
from penstock.config.pipeline import Pipeline, StreamOptions
from penstock.config.sections import Install
from penstock.config.selectors import parse_stream
from penstock.config.user_folders import provide
from penstock.engine.specs.observer import RunObserver
from penstock.errors import ConfigError, PenstockError
from penstock.model.report import Report

if TYPE_CHECKING:
    from penstock.engine.run.run_all import PipelineResult

P = ParamSpec("P")
T = TypeVar("T")
Place = str | Path
"""A file, a folder or a reference to a connector."""


class Changes(TypedDict, total=False):
    """Keywords that change a pipeline, as the options of the same names do. ``streams``,
    ``exclude``: names, or one name. ``primary_key``: a field, or a list of fields (a nested one is
    a list of its own). ``config``, ``destination_config``: override the file's, key by key."""

    streams: str | Sequence[str]
    exclude: str | Sequence[str]
    destination_stream: str
    mode: str
    sync_mode: str
    destination_sync_mode: str
    cursor_field: str | Sequence[str]
    primary_key: str | Sequence[str | Sequence[str]]
    config: Mapping[str, Any]
    destination_config: Mapping[str, Any]
    name: str
    lanes: int | str
    max_rejected: int | str
    constraints: Sequence[str]
    no_builds: bool


class PipelineKeywords(TypedDict, total=False):
    """Keywords of functions that name a pipeline. ``env_file``: files of variables; ``lenient``:
    unknown keys of a file are allowed; ``profile``: of the file's ``profiles``. ``yes``: agrees to
    the permissions that a component requests, and to what ``run --yes`` permits. ``home``:
    Penstock's home, by default ``PENSTOCK_HOME``. ``progress``: None: bars on a terminal, a line in
    a notebook, else nothing; True: lines on stderr elsewhere; False: nothing."""

    env_file: EnvFiles
    lenient: bool
    profile: str | None
    yes: bool
    home: Place | Home | None
    progress: bool | None


class _Reading(TypedDict):
    env_file: EnvFiles
    lenient: bool
    profile: str | None


class RunKeywords(Changes, PipelineKeywords, total=False):
    """The keywords of ``run`` and ``plan``."""


def explained(verb: Callable[P, T]) -> Callable[P, T]:
    """Adds to an error's traceback the hint that the command line prints."""

    @wraps(verb)
    def explaining(*given: P.args, **named: P.kwargs) -> T:
        try:
            return verb(*given, **named)
        except PenstockError as error:
            if error.hint and not hasattr(error, "__notes__"):
                error.add_note(f"try: {error.hint}")
            raise

    return explaining


@explained
def run(
    source: Place,
    destination: Place | None = None,
    *,
    full_refresh: bool = False,
    recreate: bool = False,
    limit: int | None = None,
    dry_run: bool = False,
    refresh: bool = False,
    daemon: bool = True,
    **given: Unpack[RunKeywords],
) -> Report:
    """Runs one sync, of a pipeline file or from a source to a destination, and returns its report.

    ``full_refresh``: forget the streams' states first. ``recreate``: read the streams from the
    start; whole ones replace what their tables hold. ``limit``: records per stream; with it, or
    ``dry_run``, nothing is written or saved. ``refresh``: discover the source's streams before the
    read, not during it. ``daemon`` False: start a Spark for this run alone. Raises
    ``PenstockError``, with the ``report`` where the run had begun; also where only some streams are
    complete (``report.status`` is ``partial``)."""
    from penstock.engine.run.attempts import kept_fault

    changes, how = split(given)
    home, dry = home_of(how), dry_run or limit is not None
    words = [str(word) for word in (source, destination) if word is not None]
    with nullcontext() if dry else kept_fault(home, words, changes.get("name")):
        pipeline = _pipeline(source, destination, changes, how)
        agree(pipeline, home, yes=how.get("yes", False))
    with shown(how.get("progress"), pipeline.secret_values) as observer, stoppable() as cancel:
        from penstock.engine.run.start import run_pipeline

        report = run_pipeline(
            pipeline,
            home,
            observer=observer,
            dry_run=dry_run,
            limit=limit,
            full_refresh=full_refresh,
            refresh=refresh,
            recreate=recreate,
            yes=how.get("yes", False),
            daemon=daemon,
            cancel=cancel,
        )
    return succeeded(report)


@explained
def run_all(
    *places: Place,
    select: str | Sequence[str] = (),
    full_refresh: bool = False,
    daemon: bool = True,
    **given: Unpack[RunKeywords],
) -> "list[PipelineResult]":
    """Runs several pipelines one after the other on one Spark session: of files, of a folder with
    pipeline files, or of a Syncmaven project. A failed pipeline does not affect the others. Returns
    the result of each, in order: ``pipeline``, ``status``, ``exit_code``, ``report`` and ``error``.
    ``select``: only these. Raises ``ConfigError`` for a fault in any file, before the first run."""
    from penstock.engine.run.run_all import run_all as run_each

    words = [str(place) for place in places]
    if not words or not (are_several(words) or all(map(is_file, words))):
        raise ConfigError(
            "run_all takes pipeline files, a folder of them, or a project's folder",
            code="usage",
            hint="penstock.run(source, destination) runs one pipeline",
        )
    changes, how = split(given)
    chosen = [select] if isinstance(select, str) else list(select)
    found = project_of(words, chosen, options_of(changes), **_reading(how))
    home = home_of(how)
    for pipeline in found.pipelines.values():
        agree(pipeline, home, yes=how.get("yes", False))

    @contextmanager
    def observe(id_: str) -> Generator[RunObserver]:
        with shown(how.get("progress"), found.pipelines[id_].secret_values) as observer:
            yield observer

    with stoppable() as cancel:
        return run_each(
            found.pipelines, home, observe=observe, full_refresh=full_refresh, daemon=daemon,
            cancel=cancel, yes=how.get("yes", False),
        )  # fmt: skip


@explained
def plan(
    source: Place,
    destination: Place | None = None,
    *,
    refresh: bool = False,
    **given: Unpack[RunKeywords],
) -> Plan:
    """Returns what :func:`run` would do with these keywords; falsy where the run would be refused.
    Reads no record and writes nothing."""
    from penstock.engine.inspect.plan_check import plan_pipeline

    changes, how = split(given)
    pipeline = _pipeline(source, destination, changes, how)
    home = home_of(how)
    if how.get("yes", False):
        agree(pipeline, home, yes=True)
    with shown(how.get("progress"), pipeline.secret_values) as observer:
        answer = plan_pipeline(pipeline, home, observer=observer)
    return msgspec.convert(answer, Plan)


@explained
def check(
    target: Place,
    destination: Place | None = None,
    *,
    config: Mapping[str, Any] | None = None,
    destination_config: Mapping[str, Any] | None = None,
    role: str | None = None,
    **how: Unpack[PipelineKeywords],
) -> Check:
    """Checks a connector, or all ends of a pipeline: are the credentials valid, is a table's place
    writable? Falsy where not. ``role``: ``source`` or ``destination``, where the connector's name
    does not show it."""
    from penstock.api.asking import check_connector, reference

    word, home = str(target), home_of(how)
    if destination is None and is_connector(word) and not is_file(word):
        ref = reference(word)
        end = end_of(ref) if role is None else AskedRole(role)
        with shown(how.get("progress")) as observer:
            result = check_connector(
                ref, end, dict(config or destination_config or {}), home, observer, Install(),
                lambda wanted: _settle(wanted, yes=how.get("yes", False)),
            )  # fmt: skip
    else:
        from penstock.engine.inspect.plan_check import check_pipeline

        changes = Changes()
        if config is not None:
            changes["config"] = config
        if destination_config is not None:
            changes["destination_config"] = destination_config
        pipeline = _pipeline(target, destination, changes, how)
        agree(pipeline, home, yes=how.get("yes", False))
        with shown(how.get("progress"), pipeline.secret_values) as observer:
            result = check_pipeline(pipeline, home, observer=observer)
    status = "succeeded" if result.succeeded else "failed"
    return Check(status=status, message=result.message, end=str(result.end))


@explained
def discover(
    source: str,
    *,
    config: Mapping[str, Any] | None = None,
    constraints: Sequence[str] = (),
    no_builds: bool = False,
    yes: bool = False,
    home: Place | Home | None = None,
    progress: bool | None = None,
) -> Discovered:
    """Returns a source's streams: their modes, keys, cursors and schemas."""
    from penstock.api.asking import asked, source_reference, wanted_of
    from penstock.connectors.source import SourceConnector

    ref = source_reference(source)
    install = Install(builds=not no_builds, constraints=tuple(constraints))
    with shown(progress) as observer:
        connector, _ = asked(
            SourceConnector, ref, home_of(PipelineKeywords(home=home)), observer, install
        )
        _settle(wanted_of(connector), yes=yes)
        catalog = connector.discover(dict(config or {}))
    return Discovered(streams=[*map(DiscoveredStream.of, catalog.streams)], open=catalog.open)


@explained
def state(
    pipeline: Place,
    destination: Place | None = None,
    *,
    stream: str | None = None,
    **how: Unpack[PipelineKeywords],
) -> SavedState:
    """Returns the saved state of a pipeline: of a file, of a source and a destination, or of the
    name of one that ran. ``stream``: only this one's."""
    from penstock.codec.exact_json import with_floats
    from penstock.engine.inspect import states
    from penstock.engine.inspect.pipelines import open_known

    with open_known(_known(pipeline, destination, how), home_of(how)) as known:
        shown = with_floats(states.show(known, _selector(stream)))
        return msgspec.convert(shown, SavedState)


@explained
def runs(
    pipeline: Place | None = None,
    destination: Place | None = None,
    *,
    limit: int = 20,
    **how: Unpack[PipelineKeywords],
) -> list[PastRun]:
    """Returns past runs, newest first, of one pipeline (as for :func:`state`) or of all."""
    from penstock.engine.inspect import runs as history
    from penstock.engine.inspect.pipelines import open_known
    from penstock.store.open import open_store

    home = home_of(how)
    if pipeline is None:
        store = open_store(home.state_url())
        try:
            found = history.runs(store, home, None, limit)
        finally:
            store.close()
    else:
        known_as = _known(pipeline, destination, how)
        with open_known(known_as, home, attempts=True) as known:
            found = history.runs(known.store, home, known.name, limit)
    return msgspec.convert(found, list[PastRun])


@explained
def rejects(
    pipeline: Place,
    destination: Place | None = None,
    *,
    run: str | None = None,
    stream: str | None = None,
    limit: int | None = None,
    **how: Unpack[PipelineKeywords],
) -> list[RejectedRow]:
    """Returns rejected rows with the reason and the original bytes, newest run first. ``run``,
    ``stream``: only of these; ``limit``: the most rows."""
    from itertools import islice

    from penstock.engine.inspect import runs as history
    from penstock.engine.inspect.pipelines import open_known

    home = home_of(how)
    with open_known(_known(pipeline, destination, how), home) as known:
        found = history.rejects(known.store, home, known.name, run=run, stream=_selector(stream))
        return msgspec.convert([*islice(found, limit)], list[RejectedRow])


# -- what the functions share


def succeeded(report: Report) -> Report:
    """Returns the report of a run that succeeded. For any other, raises the error that ended it,
    with the report as ``report``."""
    if report.exit_code == 0:
        return report
    failed = (s.error for s in report.streams if s.error is not None)
    failure = report.error or next(failed, None) or {"message": f"the run is {report.status}"}
    error = PenstockError.from_dict(failure)
    error.report = report
    raise error


@contextmanager
def stoppable() -> Generator[threading.Event]:
    """Yields an event that Ctrl-C sets while the block runs, if this is the main thread: the run
    then stops and keeps what is sealed. A second Ctrl-C raises ``KeyboardInterrupt``."""
    cancel = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield cancel
        return
    before = signal.getsignal(signal.SIGINT)

    def stop(number: int, frame: Any) -> None:
        if cancel.is_set():
            signal.default_int_handler(number, frame)
        cancel.set()

    signal.signal(signal.SIGINT, stop)
    try:
        yield cancel
    finally:
        signal.signal(signal.SIGINT, before)


def agree(pipeline: Pipeline, home: Home, *, yes: bool) -> None:
    """Records consent to the permissions that the pipeline's components request, if ``yes``. Raises
    ``ConfigError`` (``connector.consent``) otherwise."""
    from penstock.engine.inspect.plan_check import consents

    _settle(consents(pipeline, home), yes=yes)


def _settle(wanted: Sequence[Any], *, yes: bool) -> None:
    for want in wanted:
        if not yes:
            raise want.refusal()
        want.agree()


def options_of(changes: Changes) -> Options:
    """Converts the keywords to the options of the command line."""
    options: dict[str, Any] = {**changes}
    for name in ("config", "destination_config", "primary_key", "cursor_field", "streams"):
        value = options.get(name)
        if value is not None and not isinstance(value, str):
            options[name] = _as_json(name, value)
    if not isinstance(options.get("exclude", ""), str):
        options["exclude"] = ",".join(options["exclude"])
    for name in ("lanes", "max_rejected"):
        if name in options:
            options[name] = str(options[name])
    if "constraints" in options:
        options["constraints"] = tuple(options["constraints"])
    return Options(**options)


def _as_json(name: str, value: Any) -> str:
    if name == "primary_key":  # a list of fields: each is a path
        value = [[field] if isinstance(field, str) else [*field] for field in value]
    return msgspec.json.encode(value).decode()


def split(given: RunKeywords) -> tuple[Changes, PipelineKeywords]:
    """Splits keywords into those that change the pipeline and the others. Raises ``TypeError`` for
    an unknown keyword."""
    changes: dict[str, Any] = {k: v for k, v in given.items() if k in Changes.__annotations__}
    how: dict[str, Any] = {k: v for k, v in given.items() if k not in changes}
    unknown = how.keys() - PipelineKeywords.__annotations__.keys()
    if unknown:
        word = min(unknown)
        known = [*Changes.__annotations__, *PipelineKeywords.__annotations__]
        near = closest(word, known)
        more = f"; did you mean {near!r}?" if near else ""
        raise TypeError(f"unexpected keyword {word!r}{more}")
    return Changes(**changes), PipelineKeywords(**how)


def _pipeline(
    first: Place, second: Place | None, changes: Changes, how: PipelineKeywords
) -> Pipeline:
    return pipeline_of(
        str(first),
        None if second is None else str(second),
        options_of(changes),
        **_reading(how),
    )


def _known(first: Place, second: Place | None, how: PipelineKeywords) -> Pipeline | str:
    words = [str(first)] if second is None else [str(first), str(second)]
    return pipeline_or_name(words, **_reading(how), starts_none=True)


def _reading(how: PipelineKeywords) -> "_Reading":
    """Returns the reading options of a file."""
    return {
        "env_file": how.get("env_file"),
        "lenient": how.get("lenient", False),
        "profile": how.get("profile"),
    }


def home_of(how: PipelineKeywords) -> Home:
    """Returns Penstock's home."""
    given = how.get("home")
    home = given if isinstance(given, Home) else Home(given)
    provide(home.lasting)
    return home


def _selector(stream: str | None) -> StreamOptions | None:
    return None if stream is None else parse_stream(stream)
