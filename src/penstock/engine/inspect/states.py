"""Shows, exports, imports and resets the saved state of a pipeline (`penstock state`).

Not here: what a state means (the protocol's ``StateRole``). Every change holds the pipeline's
lease, so it is refused while a run holds it (L12), and raises the floor, so that no segment sealed
before restores an older state. Neighbours: ``engine.inspect.pipelines`` opens the pipeline;
``cli.state`` prints.
"""

import json
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

import msgspec

from penstock.codec.exact_json import exact
from penstock.config.pipeline import Pipeline, StreamOptions
from penstock.config.place import Place, working_folder
from penstock.config.selectors import find_stream
from penstock.engine.channel.heartbeat import LEASE_TTL
from penstock.engine.channel.lease import unlock_of
from penstock.engine.channel.named_pipeline import state_command
from penstock.engine.inspect import waiting_rows
from penstock.engine.inspect.pipelines import OpenPipeline
from penstock.engine.plan.place import move_place
from penstock.engine.plan.state_names import meant
from penstock.engine.plan.unread import separable, with_own
from penstock.errors import Locked, StateError
from penstock.model.catalog import StreamId
from penstock.model.state import StateType, StoredState
from penstock.protocols.contract import SharedStates, StateRole
from penstock.store.contract import Lease, Reset
from penstock.store.damage import state_damaged
from penstock.store.lock_holder import this_holder
from penstock.store.pipeline_lock import locked
from penstock.store.remembered import Remembered

_SHOWN = 10

Change = Callable[[Sequence[StoredState]], list[StoredState]]


def show(known: OpenPipeline, stream: StreamOptions | None = None) -> dict[str, Any]:
    """Returns ``{"pipeline", "type", "streams", "shared"}``, limited to one stream if it is given;
    ``connector_keys`` where connectors keep keys; ``waiting``, a list of ``{"namespace", "name",
    "rows"}``, where sealed rows wait to be delivered; and ``refreshes``, a list of ``{"namespace",
    "name", "run", "at"}``, where refreshes are pending. A stream that the last run did not read has
    ``unread``: ``{"state"}``, from which it continues when it is read again (None: it begins at its
    start). Raises ``ConfigError`` for a stream that has no state."""
    described = known.states().describe(known.store.states(known.name))
    given = {_id(e): e["state"] for e in known.states().describe(given_states(known))["streams"]}
    for entry in described["streams"]:
        own = given.pop(_id(entry), None)
        if own != entry["state"]:
            entry["unread"] = {"state": own}
    described["streams"] += [
        {"namespace": s.namespace, "name": s.name, "state": None, "unread": {"state": own}}
        for s, own in given.items()
    ]
    if stream is not None:
        pending = known.store.remembered(known.name).pending_refreshes
        named = {*(_id(entry) for entry in described["streams"]), *pending}
        wanted = find_stream(stream, sorted(named, key=str))
        described["streams"] = [e for e in described["streams"] if _id(e) == wanted]
    kept = known.store.connector_keys(known.name)
    keys = [{**msgspec.to_builtins(place), "value": value} for place, value in kept.items()]
    answer: dict[str, Any] = {"pipeline": known.name, **described, **_refreshes(known)}
    answer |= _waiting(known)
    return {**answer, "connector_keys": keys} if keys else answer


def _waiting(known: OpenPipeline) -> dict[str, Any]:
    rows = waiting_rows.waiting(known)
    return {"waiting": rows} if rows else {}


def _refreshes(known: OpenPipeline) -> dict[str, Any]:
    pending = known.store.remembered(known.name).pending_refreshes
    listed = [
        {"namespace": s.namespace, "name": s.name, "run": refresh.run, "at": refresh.at}
        for s, refresh in sorted(pending.items())
    ]
    return {"refreshes": listed} if listed else {}


def export(known: OpenPipeline, stream: StreamOptions | None = None) -> Any:
    """Returns the state that the source would be given, as JSON data in which numbers keep all
    their digits (``Decimal``); None: there is no state."""
    states = given_states(known)
    if stream is not None:
        states = _of_stream(states, stream)
    return known.states().export(states)


def history(
    known: OpenPipeline, stream: StreamOptions | None = None, limit: int = 100
) -> list[dict[str, Any]]:
    """Returns changes of the state, newest first: ``{"at", "run", "type", "namespace", "name",
    "state"}``. ``state``: the source's own message; None: it was removed. ``name`` None: a state
    for all streams. ``damaged``: the saved value is no longer known."""
    entries: list[dict[str, Any]] = []
    for entry in known.store.state_history(known.name, limit):
        scope, blob = str(entry["scope"]), entry["blob"]
        of = None if scope == "*" else StreamId(*json.loads(scope))
        if stream is not None and of is not None and not stream.matches(of):
            continue
        entries.append(
            {
                "at": entry["at"],
                "run": entry["run"],
                "type": entry.get("type"),
                "namespace": None if of is None else of.namespace,
                "name": None if of is None else of.name,
                "state": None if blob is None else exact(blob),
                **({"damaged": True} if entry.get("damaged") else {}),
            }
        )
    return entries


def reset(known: OpenPipeline, stream: StreamOptions | None = None) -> dict[str, Any]:
    """Deletes the state, or one stream's. Returns the remaining state, as :func:`show` does. Raises
    ``StateError`` where the protocol cannot reset one stream, ``Locked`` during a run."""
    role = known.states()
    if stream is None:
        return _change(known, "reset", lambda _: [], settled=lambda _: _unread(known))
    described = role.describe(known.store.states(known.name, only_sound=True))
    streams = {_id(entry) for entry in described["streams"]}
    # A LEGACY state names no streams: role.reset() refuses it.
    wanted = StreamId.of(stream.namespace, stream.name)
    if streams or described["shared"] is None:
        wanted = find_stream(
            stream, sorted(streams | known.store.known_streams(known.name), key=str)
        )
    wanted = meant(known.store.remembered(known.name), wanted)
    reset = Reset((wanted,), lambda states: role.without(states, [wanted]))
    reset_one = partial(role.reset, stream=wanted)
    return _change(known, "reset", reset_one, reset, settled=lambda _: {wanted})


def give_up_waiting(
    pipeline: Pipeline, known: OpenPipeline, *, yes: bool = False
) -> dict[str, Any]:
    """Gives up the rows that wait, and the state with them where the destination is a table.
    Returns the state, as :func:`show` does, with ``given_up``. Raises as ``waiting_rows.refuse``,
    before anything is changed."""
    waiting_rows.refuse(pipeline, known, yes=yes)
    if waiting_rows.is_table(pipeline):
        reset(known)
    given = waiting_rows.give_up(pipeline, known)
    return {**show(known), "given_up": given}


def cancel_refresh(known: OpenPipeline, stream: StreamOptions) -> dict[str, Any]:
    """Ends the pending refresh of a stream: its rows and its state stay, and the next run gives up
    what was read for the refresh. Returns the state, as :func:`show` does. Raises ``StateError``
    (``state.no_refresh``) where none is pending, ``Locked`` during a run."""
    store, name = known.store, known.name
    wanted = find_stream(stream, sorted(store.known_streams(name), key=str))
    with known.lease("reset") as lease:
        refresh = store.remembered(name, [wanted]).pending_refreshes.get(wanted)
        if refresh is None:
            raise StateError(
                f"no refresh of {wanted} is pending",
                code="state.no_refresh",
                stream=str(wanted),
                hint=f"`penstock state show {name}` lists those that are; nothing was changed",
            )
        ended = refresh.ended(store.last_epoch(name), cancelled=True)
        store.remember(lease, Remembered(refresh={wanted: ended}))
    return show(known)


def adopt_place(known: OpenPipeline) -> dict[str, Any]:
    """Makes the place of the pipeline's file, or the folder in which Penstock was started, the
    state's place. Load numbers are compared as before. Returns ``{"pipeline", "adopted",
    "place"}``."""
    with known.lease("adopt") as lease:
        place = _move_place(known, lease)
    return {"pipeline": known.name, "adopted": [], "place": place}


def _move_place(known: OpenPipeline, lease: Lease) -> str:
    named = known.what if isinstance(known.what, Pipeline) else None
    here = None if named is None else named.place
    here, id = here or Place(folder=working_folder()), None if named is None else named.id
    move_place(here, id, known.store, lease)
    return id or here.folder


def adopt(known: OpenPipeline, stream: StreamOptions | None = None) -> dict[str, Any]:
    """Accepts the tables, of one stream or all, at whatever load number they have: the next run
    continues from the saved state, with a higher number. If the pipeline is named by its file and
    all tables are accepted, its place becomes the state's too. Returns ``{"pipeline", "adopted"}``,
    a list of ``{"namespace", "name"}``, and ``place`` where that is stored. Raises ``Locked``
    during a run."""
    streams = sorted(known.store.known_streams(known.name), key=str)
    if stream is not None:
        streams = [find_stream(stream, streams)]
    with known.lease("adopt") as lease:
        known.store.adopt(lease, streams)
        by_file = isinstance(known.what, Pipeline) and known.what.place is not None
        moved = {"place": _move_place(known, lease)} if by_file and stream is None else {}
    adopted = [{"namespace": s.namespace, "name": s.name} for s in streams]
    return {"pipeline": known.name, "adopted": adopted, **moved}


def unlock(known: OpenPipeline) -> dict[str, Any]:
    """Breaks the pipeline's lock where its holder is dead, or cannot be checked from here. A new
    token takes the lock's place first, so that the holder can commit nothing more (L12). Returns
    ``{"pipeline", "unlocked", "checked", "holder"}``; ``holder``: ``{"name", "pid", "run",
    "started_at"}`` of the former holder, None: there was none. Raises ``Locked`` where the holder's
    process lives."""
    store, name = known.store, known.name
    while (found := store.lock(name)) is not None:
        unlock = unlock_of(known.what, known.home)
        if found.alive:
            raise locked(name, found, unlock)
        with suppress(Locked):  # it was renewed, or is another's, since it was read
            store.release(store.acquire(name, this_holder("state unlock"), LEASE_TTL, found))
            break
    had = None if found is None else found.holder
    holder = had and {
        "name": had.name, "pid": had.pid, "run": had.run, "started_at": had.started_at
    }  # fmt: skip
    checked = found is not None and found.alive is False
    return {"pipeline": name, "unlocked": had is not None, "checked": checked, "holder": holder}


def replace(known: OpenPipeline, raw: Any, *, force: bool = False) -> dict[str, Any]:
    """Replaces everything saved by the given state (``import``). ``force``: also by a state of
    streams that the pipeline never had, and saved states of streams by one value for all. Raises
    ``StateError``."""
    role = known.states()
    given = role.parse(raw)
    _refuse_foreign(known, given, force)
    described = role.describe(given)
    if given and described["type"] == StateType.legacy and not described["streams"] and not force:
        _refuse_loss(known, known.store.states(known.name, only_sound=True), set(), "import")

    def settled(after: Sequence[StoredState]) -> set[StreamId]:
        return _unread(known) | _named(known, after)

    return _change(known, "import", lambda _: given, brings=True, settled=settled)


def update(
    known: OpenPipeline, raw: Any, stream: StreamOptions | None = None, *, force: bool = False
) -> dict[str, Any]:
    """Merges the given state into what is saved (``set``); streams that it does not name keep
    theirs. ``stream``: take over only this one, also in the form in which :func:`show` has it.
    ``force``: even if streams would lose theirs, or the pipeline never had them. Raises
    ``StateError``, and ``ConfigError`` where another source made the saved state."""
    role = known.states()
    given = role.parse(raw)
    if stream is not None:
        if not given and not (raw == {} and isinstance(role, SharedStates)):
            raise _no_state(known, stream)
        if not given or any(s.scope.stream is None for s in given):
            return _set_shown(known, stream, raw, given)
        given = _of_stream(given, stream)
    _refuse_foreign(known, given, force)
    known.refuse_other()
    named = _named(known, given) or _unread(known)

    def merged(saved: Sequence[StoredState]) -> list[StoredState]:
        # every saved bookmark is a stream's that keeps it
        owners = _ids(role, saved) - known.store.remembered(known.name).state_names.keys()
        ours = role.called(dict.fromkeys(owners, ())).reading(_ids(role, given) | named)
        after = ours.merge(saved, given)
        if not force:
            _refuse_loss(known, saved, _ids(role, after) | _ids(role, given), "set")
        return after

    return _change(known, "set", merged, brings=True, settled=lambda _: named)


def _set_shown(
    known: OpenPipeline, stream: StreamOptions, raw: Any, given: Sequence[StoredState]
) -> dict[str, Any]:
    """Replaces the state of one stream by ``raw``, or by its part in ``raw`` where that is a state
    of several streams that share no position. Raises ``StateError`` (``state.shared``)."""
    role = known.states()
    streams = role.describe(given)["streams"]
    saved = known.store.states(known.name, only_sound=True)
    if streams:
        named = find_stream(stream, map(_id, streams))
        if isinstance(role, SharedStates) and role.own(given, named) is None:
            raise _shared(known, stream, "the given state")
        raw = next(e["state"] for e in streams if _id(e) == named)
    had = _ids(role, saved)
    if saved and not had:
        raise _shared(known, stream, "the saved state")
    wanted = find_stream(stream, sorted(had | known.store.known_streams(known.name), key=str))
    known.refuse_other()

    def put(saved: Sequence[StoredState]) -> list[StoredState]:
        after = role.with_shown(saved, wanted, raw) if isinstance(role, SharedStates) else None
        if after is None:
            raise _shared(known, stream, "the saved state")
        return after

    settled = {meant(known.store.remembered(known.name), wanted)}
    return _change(known, "set", put, brings=True, settled=lambda _: settled)


def _shared(known: OpenPipeline, stream: StreamOptions, what: str) -> StateError:
    out = state_command("export", known.what, known.home)
    back = state_command("import", known.what, known.home, "state.json")
    return StateError(
        f"{what} has no part for {stream.name!r} alone",
        code="state.shared",
        stream=stream.name,
        hint=f"`{out} > state.json`, change it there, then `{back}`; nothing was changed",
    )


def _no_state(known: OpenPipeline, stream: StreamOptions) -> StateError:
    reset = state_command("reset", known.what, known.home, "--stream", spelled(stream))
    return StateError(
        f"no state is given for {stream.name!r}",
        code="state.none_given",
        stream=stream.name,
        hint=f"`{reset}` forgets the saved one; nothing was changed",
    )


def moved(known: OpenPipeline, stream: StreamId, states: Sequence[StoredState]) -> dict[str, Any]:
    """Replaces the saved state with one in which only this stream's cursor differs (``rewind``);
    the cursor's field stays the same. Returns the state as :func:`show` does."""
    return _change(
        known, "rewind", lambda _: list(states), settled=lambda _: {stream}, same_cursor=True
    )


def goes_on_from(known: OpenPipeline, stream: StreamId) -> list[StoredState]:
    """Returns the saved states in which this stream has its own share, if the last run did not read
    it."""
    unread = known.store.remembered(known.name).unread
    role, states = known.states(), known.store.states(known.name)
    own = {stream: unread[stream]} if stream in unread else {}
    return with_own(role, states, separable(role, states, own))


def read_state(text: str, origin: str) -> Any:
    """Parses JSON data without losing digits. Raises ``StateError`` (``state.not_json``) with line
    and column."""
    try:
        return exact(text)
    except (msgspec.DecodeError, RecursionError) as error:
        line, column, reason = _place(text, str(error))
        raise StateError(
            f"{origin}:{line}:{column}: not JSON: {reason}",
            code="state.not_json",
            where=f"{origin}:{line}:{column}",
            hint="give what `penstock state export` writes; nothing was changed",
        ) from None


def _place(text: str, reason: str) -> tuple[int, int, str]:
    try:
        json.loads(text)
    except json.JSONDecodeError as error:
        return error.lineno, error.colno, error.msg
    except RecursionError:
        return 1, 1, "nested too deep"
    return 1, 1, reason


def _id(entry: dict[str, Any]) -> StreamId:
    return StreamId(entry["namespace"], entry["name"])


def _ids(role: StateRole, states: Sequence[StoredState]) -> set[StreamId]:
    return {_id(entry) for entry in role.describe(states)["streams"]}


def spelled(stream: StreamOptions) -> str:
    """Returns the stream as ``--stream`` takes it."""
    if stream.namespace is None:
        return stream.name
    return json.dumps({"namespace": stream.namespace, "name": stream.name}, ensure_ascii=False)


def _of_stream(states: Sequence[StoredState], stream: StreamOptions) -> list[StoredState]:
    """Returns one stream's own state. Raises ``StateError`` where all streams share one."""
    if any(s.scope.stream is None for s in states):
        raise StateError(
            f"one state covers all streams: that of {stream.name!r} cannot be taken out of it",
            code="state.shared",
            stream=stream.name,
            hint="leave --stream out",
        )
    wanted = find_stream(stream, [s.scope.stream for s in states if s.scope.stream])
    return [s for s in states if s.scope.stream == wanted]


def _refuse_foreign(known: OpenPipeline, given: Sequence[StoredState], force: bool) -> None:
    """Raises ``StateError`` (``state.foreign``) for a state of streams that this pipeline never
    had: it is most likely another pipeline's."""
    role = known.states()
    had = known.store.known_streams(known.name)
    saved = known.store.states(known.name, only_sound=True)
    had |= {_id(e) for e in role.describe(saved)["streams"]}
    listed = known.listed or ()
    if force or not (had or listed):
        return
    foreign = [
        stream
        for stream in (_id(entry) for entry in role.describe(given)["streams"])
        if stream not in had and not any(entry.matches(stream) for entry in listed)
    ]
    if not foreign:
        return
    shown = ", ".join(str(s) for s in foreign[:_SHOWN])
    more = f" and {len(foreign) - _SHOWN} more" if len(foreign) > _SHOWN else ""
    raise StateError(
        f"this state is another pipeline's: {known.name!r} never had the streams {shown}{more}",
        code="state.foreign",
        stream=str(foreign[0]),
        hint="give the right file, or --force to save it all the same; nothing was changed",
    )


def _refuse_loss(
    known: OpenPipeline, saved: Sequence[StoredState], left: set[StreamId], verb: str
) -> None:
    """Raises ``StateError`` (``state.drops_streams``) where a stream that has a saved state is not
    in ``left``."""
    role = known.states()
    had = {_id(e) for e in role.describe(saved)["streams"] if e["state"] is not None}
    lost = sorted(map(str, had - left))
    if not lost:
        return
    shown = ", ".join(lost[:_SHOWN])
    more = f" and {len(lost) - _SHOWN} more" if len(lost) > _SHOWN else ""
    one = "add --stream S where it is that of the stream S; " if verb == "set" else ""
    form = state_command("export", known.what, known.home)
    raise StateError(
        f"with this state the saved ones of these streams would be lost: {shown}{more}",
        code="state.drops_streams",
        stream=lost[0],
        hint=f"{one}`{form}` prints the form; --force saves it all the same; nothing was changed",
    )


def given_states(known: OpenPipeline) -> list[StoredState]:
    """Returns the saved states in which each stream has its own share, whether or not the last run
    read it."""
    role, states = known.states(), known.store.states(known.name)
    unread = known.store.remembered(known.name).unread
    return with_own(role, states, separable(role, states, unread))


def _unread(known: OpenPipeline) -> set[StreamId]:
    return {*known.store.remembered(known.name).unread}


def _named(known: OpenPipeline, states: Sequence[StoredState]) -> set[StreamId]:
    """Returns the streams that states name, by the ids that the store has for them."""
    earlier = known.store.remembered(known.name)
    return {meant(earlier, _id(entry)) for entry in known.states().describe(states)["streams"]}


def _change(
    known: OpenPipeline,
    verb: str,
    change: Change,
    reset: Reset | None = None,
    *,
    settled: Callable[[Sequence[StoredState]], set[StreamId]],
    brings: bool = False,
    same_cursor: bool = False,
) -> dict[str, Any]:
    """Applies a change under the pipeline's lease. ``settled``: the streams for which the new
    states are what the user wants, whether or not the last run read them; the cursors of these
    states are no longer known, except under ``same_cursor``. ``brings``: the states come from
    outside, and must be of the source's protocol."""
    store, role = known.store, known.states()
    with known.lease(verb) as lease:
        if brings:
            known.remember(lease)
        after = change(store.states(known.name, only_sound=True))
        streams = settled(after)
        if verb not in ("import", "reset") or reset is not None:
            _refuse_damaged(known, after, streams)
        if brings:
            store.remember(lease, _joining(known, after))
        store.replace_states(lease, after, reset)
        had = store.remembered(known.name).cursors
        unknown = {} if same_cursor else dict.fromkeys(streams & had.keys(), ())
        store.remember(lease, Remembered(cursors=unknown), taken_up=streams)
    return {"pipeline": known.name, **role.describe(after), **_waiting(known)}


def _refuse_damaged(
    known: OpenPipeline, after: Sequence[StoredState], streams: set[StreamId]
) -> None:
    """Raises ``StateError`` (``state.damaged``) for a damaged state that a change does not replace.
    ``after``: the states after the change; ``streams``: those that it concerns."""
    replaced = {state.scope.key for state in after}
    for scope in known.store.damaged_states(known.name):
        if scope.key not in replaced and scope.stream not in streams:
            raise state_damaged(known.name, scope)


def _joining(known: OpenPipeline, states: Sequence[StoredState]) -> Remembered:
    """Returns, for each stream, the versions in a state from outside that this store has never
    seen: the table is assumed to hold their rows, and later rows of these versions join them
    (L6)."""
    store, role = known.store, known.states()
    joining: dict[StreamId, dict[int, int]] = {}
    for stream in store.known_streams(known.name):
        seen = store.remembered(known.name, [stream])
        newest = seen.newest_visible(stream)
        had = {*seen.versions.get(stream, {}), *seen.visible.get(stream, {}).values()}
        if newest:
            joining[stream] = dict.fromkeys(role.versions(states, stream) - had, newest)
    return Remembered(versions=joining)
