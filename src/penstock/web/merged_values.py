"""Merges what a form changed into values that were changed elsewhere meanwhile. Pure."""

from typing import Any, cast

from penstock.web.yaml_text import same

ABSENT: Any = object()


def merged(base: Any, mine: Any, theirs: Any) -> Any:
    """Returns ``theirs`` with what differs between ``base`` and ``mine``. Mappings are merged key
    by key; of lists and scalars mine wins. ``ABSENT``: there is no value."""
    if mine is base or (mine is not ABSENT and base is not ABSENT and same(mine, base)):
        return theirs
    if isinstance(mine, dict) and isinstance(theirs, dict):
        own, other = cast(dict[str, Any], mine), cast(dict[str, Any], theirs)
        first = cast(dict[str, Any], base) if isinstance(base, dict) else {}
        made = {
            key: merged(first.get(key, ABSENT), own.get(key, ABSENT), other.get(key, ABSENT))
            for key in (*other, *(k for k in own if k not in other))
        }
        return {key: value for key, value in made.items() if value is not ABSENT}
    return mine
