"""Cuts foreign names and texts where they are shown: notes, errors, reports, plans, progress.

A source may send a field's name of 100 MB. It names its column and is compared whole; people see
its beginning and its length. :func:`shown` cuts a name in a sentence, :func:`named` a name that is
a value in a report or a plan, :func:`bounded` the middle of any text. Not here: a cell or a bar of
the terminal (``terminal.format``). Imports nothing of ours, so that the error tree can use it.
"""

from typing import Any, cast

MOST_SHOWN = 200  # characters of a name in a sentence
MOST_NAMED = 1_000  # characters of a name in JSON: databases and files have shorter ones
MOST_TEXT = 16_000  # characters of a note or an error
MOST_FOREIGN = 256_000  # for a text in a connector's own error, which may be a trace
_END = 4_000  # of these, at the end of the text: counts, and what to do


def shown(name: object) -> str:
    """Returns a name for use in a sentence."""
    return _cut(str(name), MOST_SHOWN)


def named(name: str) -> str:
    """Returns a name for use as a value of a report or a plan."""
    return _cut(name, MOST_NAMED)


def bounded(text: str, most: int = MOST_TEXT) -> str:
    """Returns a text with its middle left out where it is longer than ``most`` characters."""
    if len(text) <= most:
        return text
    left = len(text) - most
    return f"{text[: most - _END]}… ({left:,} characters left out) …{text[-_END:]}"


def bounded_data(value: Any, most: int = MOST_TEXT) -> Any:
    """Returns JSON data with every text in it :func:`bounded`, also the keys of objects."""
    if isinstance(value, str):
        return bounded(value, most)
    if isinstance(value, dict):
        pairs = cast(dict[Any, Any], value).items()
        return {bounded_data(key, most): bounded_data(item, most) for key, item in pairs}
    if isinstance(value, list | tuple):
        return [bounded_data(item, most) for item in cast(list[Any], value)]
    return value


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[:most]}… ({len(text):,} characters)"
