"""Cleans the names of properties and streams into names that every table format accepts.

Pure functions: the result does not depend on the order of the input. The store keeps the results
(``Store.remember``) and passes them as ``taken``, which always wins: a stored name never changes.
Not here: how a format quotes a name, or a shorter limit of one database (Postgres: 63 bytes).
Neighbours: ``codec`` cleans columns, ``engine.plan.table_names`` tables; ``store`` keeps the maps.

Spark, many databases and some file systems treat two names that differ only by case (or by Unicode
composition) as the same: one of them keeps the plain form, every other one gets ``_`` and eight
hexadecimal digits of a hash of its original."""

import hashlib
import itertools
import re
import unicodedata
from collections.abc import Iterable, Mapping
from typing import NamedTuple

import msgspec

from penstock.model.catalog import StreamId

MAX_BYTES = 200  # of UTF-8: a file name may have 255, and writers add to it
INTERNAL_PREFIX = "_penstock_"  # the columns of ``model.types``; compared without case

# Parquet writers and Delta refuse these; surrogates have no UTF-8 form.
_COLUMN_REFUSED = re.compile("[ ,;{}()=\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")


class _Candidate(NamedTuple):
    """A name to be assigned."""

    original: str
    plain: str  # the name without a suffix
    seed: str  # what the suffix is a hash of


def clean_columns(
    originals: Iterable[str], taken: Mapping[str, str] = {}, reserved: Iterable[str] = ()
) -> dict[str, str]:
    """Assigns column names to the properties of one object: ``{original: cleaned}``.

    ``taken``: the same map as stored so far. ``reserved``: names that the table itself uses (its
    metadata columns); names that begin with ``_penstock_`` are always reserved.
    """
    wanted = list(dict.fromkeys(originals))
    used = {folded(n) for n in (*taken.values(), *reserved)}
    fresh = _assign(
        {o: _Candidate(o, _COLUMN_REFUSED.sub("_", o) or "_", o) for o in wanted if o not in taken},
        used,
    )
    return {o: taken[o] if o in taken else fresh[o] for o in wanted}


def clean_tables(streams: Iterable[StreamId], taken: Mapping[str, str] = {}) -> dict[str, str]:
    """Assigns table names: ``{StreamId.key: text}``; :func:`split_table` reads the text.

    The text is a JSON pair [namespace or null, name], so that one map (``TableNames.tables``) holds
    both and a namespace has one cleaned form for all its streams. Each is a folder name that Spark
    does not hide and an identifier: letters, marks and digits of any script, and ``_`` (not first).
    A table without a namespace and a namespace never share a name, since both are folders of the
    same root.
    """
    wanted = list(dict.fromkeys(streams))
    spaces: dict[str, str] = {}  # original namespace -> cleaned
    used: dict[str | None, set[str]] = {None: set()}  # cleaned namespace -> folded names in it
    for key, text in taken.items():
        space, name = split_table(text)
        if space is not None:
            spaces[msgspec.json.decode(key, type=tuple[str, str])[0]] = space
            used[None].add(folded(space))
        used.setdefault(space, set()).add(folded(name))
    fresh = [s for s in wanted if s.key not in taken]
    new = {s.namespace for s in fresh if s.namespace} - spaces.keys()
    spaces |= _assign({n: _Candidate(n, _identifier(n) or "namespace", n) for n in new}, used[None])
    inside: dict[str | None, dict[str, _Candidate]] = {}
    for s in fresh:
        space = spaces[s.namespace] if s.namespace else None
        # ``~``: of a stream without namespace and one under "" the first keeps the plain form
        seed = f"~{s.key}" if s.namespace == "" else s.key
        candidate = _Candidate(s.name, _identifier(s.name) or "table", seed)
        inside.setdefault(space, {})[s.key] = candidate
    assigned: dict[str, str] = {}
    for space, candidates in inside.items():
        for key, name in _assign(candidates, used.setdefault(space, set())).items():
            assigned[key] = msgspec.json.encode([space, name]).decode()
    return {s.key: taken[s.key] if s.key in taken else assigned[s.key] for s in wanted}


def split_table(text: str) -> tuple[str | None, str]:
    """Returns the pair (namespace or None, name) in a value of :func:`clean_tables`."""
    return msgspec.json.decode(text, type=tuple[str | None, str])


def _assign(candidates: Mapping[str, _Candidate], used: set[str]) -> dict[str, str]:
    """Assigns a name to each key, no two equal when folded, and adds them, folded, to ``used``.
    Names that need no cleaning are assigned first, then by order of the originals, so that the
    result does not depend on the order of arrival."""
    assigned: dict[str, str] = {}
    ranked = sorted(
        candidates,
        key=lambda k: (candidates[k].plain != candidates[k].original, candidates[k][::2]),
    )
    clashing: list[str] = []
    for key in ranked:
        name = candidates[key].plain
        if folded(name) in used or not _may_stay_plain(name):
            clashing.append(key)
        else:
            used.add(folded(name))
            assigned[key] = name
    for key in clashing:
        tries = (_suffixed(candidates[key], again) for again in itertools.count())
        assigned[key] = next(name for name in tries if folded(name) not in used)
        used.add(folded(assigned[key]))
    return assigned


def _may_stay_plain(name: str) -> bool:
    return len(name.encode()) <= MAX_BYTES and not folded(name).startswith(INTERNAL_PREFIX)


def _suffixed(candidate: _Candidate, again: int) -> str:
    seed = candidate.seed.encode("utf-8", "surrogatepass") + b"\0" * again
    suffix = "_" + hashlib.sha256(seed).hexdigest()[:8]
    return candidate.plain.encode()[: MAX_BYTES - len(suffix)].decode("utf-8", "ignore") + suffix


def _identifier(name: str) -> str:
    composed = unicodedata.normalize("NFC", name)
    kept = "".join(c if c.isalnum() or unicodedata.category(c)[0] == "M" else "_" for c in composed)
    return kept.lstrip("_")


def folded(name: str) -> str:
    """Returns the same text for all names that differ only by case or Unicode composition."""
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", name).casefold())
