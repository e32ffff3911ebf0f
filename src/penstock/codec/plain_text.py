"""Writes texts of people and of files as JSON texts, which ``codec.values`` casts exactly.

Neighbour: ``codec.columns`` calls it for columns of texts that get another type.
"""

from penstock.codec.untyped import Array
from penstock.codec.untyped import compute as pc
from penstock.model.types import Kind

_TRUTH = r"^(?:[Tt][Rr][Uu][Ee]|[Ff][Aa][Ll][Ss][Ee])$"
_JSON_NUMBER = r"^-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]{1,9})?$"
_POINTS = ((r"^(-?)(\.[0-9]+)$", r"\10\2"), (r"^(-?[0-9]+)\.$", r"\1"))


def written_as_json(texts: Array, wanted: Kind) -> Array:
    """Texts of people and of files as JSON has them: ``TRUE`` and ``.5``. A number that JSON does
    not have (``01234``, ``+49``, ``0x1F``: Arrow would read them all, and lose what tells it from
    another) becomes a text, which does not fit."""
    if wanted is Kind.boolean:
        return pc.if_else(_matches(texts, _TRUTH), pc.utf8_lower(texts), texts)
    if wanted in (Kind.number, Kind.decimal):
        for pattern, replacement in _POINTS:
            texts = pc.replace_substring_regex(texts, pattern, replacement)
    if wanted not in (Kind.integer, Kind.number, Kind.decimal):
        return texts
    quoted = pc.binary_join_element_wise('"', texts, '"', "")
    return pc.if_else(_matches(texts, _JSON_NUMBER), texts, quoted)


def _matches(texts: Array, pattern: str) -> Array:
    return pc.match_substring_regex(texts, pattern)
