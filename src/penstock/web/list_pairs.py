"""Pairs the items of a list with those of its changed version, so that a changed item keeps its own
place and comment in a file, and not those of an item next to it.

Pure. Neighbour: ``file_edit`` writes the changes.
"""

from collections.abc import Sequence
from difflib import SequenceMatcher
from typing import Any, cast

_MOST = 2_500  # comparisons; a larger change is paired by place
_SIMILAR = 0.6
_ANY = 1e-6  # what a pair counts that has nothing in common


def alike(had: Sequence[Any], new: Sequence[Any]) -> list[tuple[int, int]]:
    """Returns pairs of places, both ascending: the most similar ones, else by place. Between two
    pairs, one side has no items."""
    if len(had) * len(new) > _MOST:
        return [(n, n) for n in range(min(len(had), len(new)))]
    best = [[0.0] * (len(new) + 1) for _ in range(len(had) + 1)]
    pair = [[0.0] * len(new) for _ in had]
    for n in reversed(range(len(had))):
        for m in reversed(range(len(new))):
            pair[n][m] = best[n + 1][m + 1] + _ANY + _similar(had[n], new[m])
            best[n][m] = max(pair[n][m], best[n + 1][m], best[n][m + 1])
    found: list[tuple[int, int]] = []
    n = m = 0
    while n < len(had) and m < len(new):
        if pair[n][m] >= best[n][m]:
            found.append((n, m))
            n, m = n + 1, m + 1
        elif best[n + 1][m] >= best[n][m]:
            n += 1
        else:
            m += 1
    return found


def _similar(one: Any, other: Any) -> float:
    """Returns the share of equal values of two mappings, or of equal characters of two texts."""
    if isinstance(one, dict) and isinstance(other, dict):
        first, second = cast(dict[str, Any], one), cast(dict[str, Any], other)
        equal = sum(key in second and second[key] == value for key, value in first.items())
        return equal / max(len(first), len(second), 1)
    if isinstance(one, dict) or isinstance(other, dict):
        entry, name = (one, other) if isinstance(one, dict) else (other, one)
        return float(name in cast(dict[str, Any], entry).values())
    if isinstance(one, str) and isinstance(other, str):
        share = SequenceMatcher(None, one, other, autojunk=False).ratio()
        return share if share >= _SIMILAR else 0.0
    return float(one == other)
