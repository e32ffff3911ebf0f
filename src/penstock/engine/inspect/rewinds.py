"""Moves one stream's saved cursor to another value (``penstock state rewind``): a backfill.

A state belongs to the source, so only one scalar in it changes, and keeps its type and form. A
later value would skip rows, so it is refused. Not here: how a change is saved (``states``), the
order of cursors (``cursor_order``), and ranges with an end, which only a connector's configuration
can express.
"""

import re
from collections.abc import Iterator, Set
from copy import deepcopy
from decimal import Decimal
from typing import Any, cast

import msgspec

from penstock.codec.exact_json import exact
from penstock.config.pipeline import StreamOptions
from penstock.config.selectors import find_stream
from penstock.engine.channel.named_pipeline import state_command
from penstock.engine.inspect import states
from penstock.engine.inspect.cursor_order import is_later
from penstock.engine.inspect.pipelines import OpenPipeline
from penstock.engine.plan.state_names import meant
from penstock.errors import StateError
from penstock.model.catalog import StreamId

_SINGER = "replication_key_value"
_TIME = re.compile(r"\d{4}-\d\d-\d\d(?:[T ].*)?")
_DAY = re.compile(r"\d{4}-\d\d-\d\d")
_ZONE = re.compile(r"(?:Z|[+-]\d\d:?\d\d)$")

Path = tuple[str, ...]


def rewind(
    known: OpenPipeline,
    stream: StreamOptions,
    to: str,
    field: str | None = None,
    *,
    force: bool = False,
) -> dict[str, Any]:
    """Sets the cursor in the saved state of one stream to ``to``. ``field``: its name in the state,
    ``a.b`` for a nested one; None: it is the only one, or the only time. A day in place of a time
    means its first moment. ``force``: also to a later value. Returns the state as ``show`` does,
    with ``notes`` where it is not known which value is the later one. Raises ``StateError``:
    ``state.cursor`` where no or several values could be meant, or ``to`` is of another type,
    ``state.cursor_ahead`` where it is later."""
    role = known.states()
    entries = {
        StreamId(entry["namespace"], entry["name"]): entry["state"]
        for entry in role.describe(states.given_states(known))["streams"]
    }
    wanted = find_stream(stream, entries)
    old, own = entries[wanted], meant(known.store.remembered(known.name), wanted)
    given = states.goes_on_from(known, own)
    path = _cursor(_leaves(old), field, wanted)
    saved = _at(old, path)
    value = _in_form_of(saved, to, wanted, path)
    later = is_later(value, saved)
    if later and not force:
        raise _ahead(known, stream, path, saved, value, to, field)
    raw = deepcopy(role.export(given))
    spelled = {StreamId(None, wanted.name), StreamId("", wanted.name)}
    names = {wanted} if wanted not in spelled or spelled <= entries.keys() else spelled
    places = [*_places(raw, wanted, names, old, here=False)]
    if not places:
        raise _no_cursor(wanted, "its state is shared with other streams", [])
    for place in places:
        cast(dict[str, Any], _at(place, path[:-1]))[path[-1]] = value
    answer = states.moved(known, own, role.merge(given, role.parse(raw)))
    if later is None:
        answer["notes"] = [
            f"it is not known whether {value} is later than {saved}, the saved"
            f" {'.'.join(path)} of {wanted}: if it is, the next run skips what lies between"
        ]
    return answer


def _ahead(
    known: OpenPipeline,
    stream: StreamOptions,
    path: Path,
    saved: Any,
    value: Any,
    to: str,
    field: str | None,
) -> StateError:
    named = () if field is None else ("--field", field)
    options = ("--stream", states.spelled(stream), "--to", to, *named, "--force")
    forced = state_command("rewind", known.what, known.home, *options)
    return StateError(
        f"{value} is later than {saved}, the saved {'.'.join(path)} of {stream.name}: the next"
        " run would skip what lies between",
        code="state.cursor_ahead",
        stream=stream.name,
        hint=f"give an earlier value; `{forced}` moves it there all the same; nothing was changed",
    )


def _leaves(state: Any, path: Path = ()) -> Iterator[tuple[Path, Any]]:
    """Yields the scalars of a state with their paths. Skips lists, which hold no cursor of a
    stream."""
    if isinstance(state, dict):
        for key, value in cast(dict[str, Any], state).items():
            yield from _leaves(value, (*path, key))
    elif path and isinstance(state, (str, int, float, Decimal)) and not isinstance(state, bool):
        yield path, state


def _cursor(leaves: Iterator[tuple[Path, Any]], field: str | None, stream: StreamId) -> Path:
    found = dict(leaves)
    names = [".".join(path) for path in found]
    if field is not None:
        meant = [p for p in found if ".".join(p) == field or p[-1] == field]
        why = f"it has no value {field}" if not meant else f"{field} occurs in several places"
    else:
        meant = [p for p in found if p[-1] == _SINGER] or [*found]
        if len(meant) > 1:
            meant = [p for p in found if isinstance(found[p], str) and _TIME.fullmatch(found[p])]
        why = "it is not clear which value is the cursor"
    if len(meant) != 1:
        raise _no_cursor(stream, why, names)
    return meant[0]


def _no_cursor(stream: StreamId, why: str, names: list[str]) -> StateError:
    listed = f"name one of {', '.join(names)} with --field, or " if names else ""
    return StateError(
        f"the saved state of {stream}: {why}",
        code="state.cursor",
        stream=str(stream),
        hint=f"{listed}change it with `penstock state export` and `state set`; nothing was changed",
    )


def _in_form_of(old: Any, to: str, stream: StreamId, path: Path) -> Any:
    if isinstance(old, str):
        if _DAY.fullmatch(to) and _TIME.fullmatch(old) and not _DAY.fullmatch(old):
            clock, zone = old[10:], _ZONE.search(old)
            length = len(clock) - (len(zone[0]) if zone else 0)
            return to + re.sub(r"\d", "0", clock[:length]) + (zone[0] if zone else "")
        if _TIME.fullmatch(old) and not _TIME.fullmatch(to):
            raise _other_type(stream, path, old, to, "a time")
        return to
    try:
        value = exact(to)
    except msgspec.DecodeError:
        value = None
    if isinstance(value, bool) or not isinstance(value, (int, Decimal)):
        raise _other_type(stream, path, old, to, "a number")
    return value


def _other_type(stream: StreamId, path: Path, old: Any, to: str, kind: str) -> StateError:
    return StateError(
        f"{to!r} is not {kind}, and {'.'.join(path)} in the saved state of {stream} is one: {old}",
        code="state.cursor",
        stream=str(stream),
        hint="give a value in the form of the saved one; nothing was changed",
    )


def _at(node: Any, path: Path) -> Any:
    for step in path:
        node = node[step]
    return node


def _places(
    node: Any, stream: StreamId, names: Set[StreamId], state: Any, *, here: bool
) -> Iterator[dict[str, Any]]:
    """Yields the objects in an exported state that are the stream's: under its descriptor
    (Airbyte; ``names``: its spellings), under its name (Singer), or a document of the list
    (Rapidbyte, models)."""
    if isinstance(node, list):
        for each in cast(list[Any], node):
            yield from _places(each, stream, names, state, here=here or each == state)
    if not isinstance(node, dict):
        return
    known = cast(dict[str, Any], node)
    if here and known == state:
        yield known
        return
    descriptor = known.get("stream_descriptor")
    if isinstance(descriptor, dict):
        about = cast(dict[str, Any], descriptor)
        here = StreamId(about.get("namespace"), str(about.get("name"))) in names
    for key, value in known.items():
        inside = here or key in (str(stream), stream.name)
        yield from _places(value, stream, names, state, here=inside)
