"""Maps all mode words to a sync mode and a destination sync mode of ``model.catalog``.

The words are Airbyte's and its combined names, Rapidbyte v4's write modes, Singer's replication
methods, and the one-word modes of the command line. ``insert`` and ``update`` mean more than a
destination sync mode (only new rows, only existing rows): the pipeline keeps the word as ``mode``,
and the engine follows or refuses it. Not here: whether a source or a table supports a mode
(``engine.plan.stream_plan``).
"""

from typing import NamedTuple, TypeVar

from penstock.config.did_you_mean import hint
from penstock.model.catalog import Change, DestinationSyncMode, SyncMode

_T = TypeVar("_T")


class Modes(NamedTuple):
    """The modes that a word means; None: the word leaves that mode open. ``replaces``: the rows
    read replace the table's rows, with one row per primary key. ``history``: the table keeps every
    version of a key."""

    sync_mode: SyncMode | None
    destination_sync_mode: DestinationSyncMode | None
    replaces: bool = False
    history: bool = False


_FULL, _INCREMENTAL, _CDC = SyncMode.full_refresh, SyncMode.incremental, SyncMode.cdc
_APPEND, _OVERWRITE = DestinationSyncMode.append, DestinationSyncMode.overwrite
_DEDUP = DestinationSyncMode.append_dedup

SYNC_WORDS: dict[str, SyncMode] = {
    "full_refresh": _FULL,
    "incremental": _INCREMENTAL,
    "cdc": _CDC,
    "full_table": _FULL,  # Singer FULL_TABLE
    "log_based": _CDC,  # Singer LOG_BASED
}

DESTINATION_WORDS: dict[str, DestinationSyncMode] = {
    "append": _APPEND,
    "overwrite": _OVERWRITE,
    "append_dedup": _DEDUP,
    "replace": _OVERWRITE,  # Rapidbyte
    "upsert": _DEDUP,  # Rapidbyte
    "append_only": _APPEND,  # Singer append-only
    "insert": _APPEND,
    "update": _DEDUP,
    "merge": _DEDUP,
}

WORDS: dict[str, Modes] = {
    **{word: Modes(mode, None) for word, mode in SYNC_WORDS.items()},
    **{word: Modes(None, mode) for word, mode in DESTINATION_WORDS.items()},
    "mirror": Modes(_FULL, _OVERWRITE),
    "full_refresh_append": Modes(_FULL, _APPEND),
    "full_refresh_overwrite": Modes(_FULL, _OVERWRITE),
    "full_refresh_overwrite_deduped": Modes(_FULL, _DEDUP, replaces=True),
    "incremental_append": Modes(_INCREMENTAL, _APPEND),
    "incremental_append_dedup": Modes(_INCREMENTAL, _DEDUP),
    "incremental_deduped_history": Modes(_INCREMENTAL, _DEDUP, history=True),
}

SENDS: dict[str, tuple[DestinationSyncMode, tuple[Change, ...]]] = {
    "insert": (_APPEND, (Change.added,)),
    "update": (_DEDUP, (Change.changed,)),
    "upsert": (_DEDUP, (Change.added, Change.changed)),
    "mirror": (_DEDUP, (Change.added, Change.changed, Change.removed)),
}
"""The modes that compare a model by its primary key, and which rows each sends."""


class UnknownMode(ValueError):
    """Raised for an unknown word. Its text ends a message: ``'incrementl' is not a sync mode; did
    you mean ...``."""


def canonical(word: str) -> str:
    """Returns the canonical spelling of a word, ignoring case, dashes and blanks: ``append-only``
    -> ``append_only``."""
    return word.strip().lower().replace("-", "_").replace(" ", "_")


def sync_mode(word: str) -> SyncMode:
    """Returns the sync mode that ``word`` means. Raises :class:`UnknownMode`."""
    return _look_up(word, SYNC_WORDS, "a sync mode")


def destination_sync_mode(word: str) -> DestinationSyncMode:
    """Returns the destination sync mode that ``word`` means. Raises :class:`UnknownMode`."""
    return _look_up(word, DESTINATION_WORDS, "a destination sync mode")


def mode(word: str) -> Modes:
    """Returns the modes that any known word means. Raises :class:`UnknownMode`."""
    return _look_up(word, WORDS, "a mode")


def _look_up(word: str, words: dict[str, _T], what: str) -> _T:
    found = words.get(canonical(word))
    if found is not None:
        return found
    also = WORDS.get(canonical(word))
    if also is not None:
        raise UnknownMode(f"{word!r} is not {what}, but a mode that goes with the key 'mode'")
    raise UnknownMode(f"{word!r} is not {what}; {hint(word, words, 'known')}")


def contradiction(word: str, sync: SyncMode | None, dest: DestinationSyncMode | None) -> str | None:
    """Returns why ``mode`` contradicts one of the two separate keys; None where it does not."""
    wanted = mode(word)
    for key, implied, explicit in (
        ("sync_mode", wanted.sync_mode, sync),
        ("destination_sync_mode", wanted.destination_sync_mode, dest),
    ):
        if implied is not None and explicit is not None and implied != explicit:
            return f"mode '{word}' means {key} {implied.value}, but {key} is {explicit.value}"
    return None
