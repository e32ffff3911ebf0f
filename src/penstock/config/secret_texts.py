"""Decides whether a text may be secret, by its form and by the name of its key.

Pure, and light to import, since connectors' processes use it too. Not here: which values are
checked (``reader`` for variables of the pipeline file, ``protocols.json_schema.config_check`` for a
connector's configuration), masking (``runtimes.masking``).
"""

import re

from penstock.config.scalars import plain

MARKS_ONLY = "penstock-anything"
"""The key, in a connector's config schema, under which Penstock adds a schema that marks secrets by
their names."""
_SHORT = 4
_DIGITS = re.compile(r"[-+]?[0-9][0-9.,_]*")
_TIME = re.compile(r"[0-9]{4}-[0-9]{2}(?:-[0-9]{2}(?:[T ][0-9:.,]+)?)?(?:Z|[+-][0-9:]{2,6})?")
# Names of properties whose value is masked even where it looks like a number or a plain word.
_SECRET_KEY = re.compile(
    r"pass|pwd|secret|token|credential|bearer|cookie|signature|auth|pin$|key(?:\W|$)",
    re.IGNORECASE,
)


_OF_NAMES = re.compile(
    r"pipeline|source\.(?:streams|exclude|defaults)\b.*|destination\.(?:namespace|prefix)"
)


def is_name(path: str) -> bool:
    """Returns whether the key of a pipeline file at ``path`` holds names that messages and commands
    need: the pipeline's, and those of streams, their fields and their targets. None of them is a
    secret."""
    return _OF_NAMES.fullmatch(path) is not None


def names_a_secret(key: str) -> bool:
    """Returns whether the name of a property indicates a secret."""
    return _SECRET_KEY.search(key) is not None


def is_harmless(value: str) -> bool:
    """Returns whether a value is too common to be a secret: a number, a truth value, a date, a
    time, a word of a few letters. Masking it would make counts and cursors unreadable and hide
    nothing."""
    return len(value) <= _SHORT or is_plain(value) or _TIME.fullmatch(value) is not None


def is_plain(value: str) -> bool:
    """Returns whether a value is a number or a truth value, as YAML types or as digits."""
    return not isinstance(plain(value), str) or _DIGITS.fullmatch(value) is not None
