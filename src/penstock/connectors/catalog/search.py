"""Searches the index of connectors: by names, labels and keywords, the best hit first.

An exact reference comes first; points rank the others. Connectors lose points by how little the
words match: a whole name, its beginning, some of its words, beginnings of words, a keyword. They
gain points by what runs with little work and keeps running: a package before a repository or an
image, the variant that is maintained and that its hub chose, a recent release. Nothing depends on
the machine or on today's date. Not here: reading the index (``index``), whether a connector runs on
this machine (``engine.inspect.runs_here``).
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from difflib import SequenceMatcher
from functools import cache

from penstock.config.protocol_spec import EndpointRole, specs
from penstock.connectors.catalog.index import IndexedConnector, indexed

_ROLES: dict[str, EndpointRole] = {
    "source": "source",
    "sources": "source",
    "tap": "source",
    "destination": "destination",
    "destinations": "destination",
    "target": "destination",
    "sink": "destination",
}
_SHORT = {
    "bq": "bigquery",
    "fb": "facebook",
    "ga": "google analytics",
    "gads": "google ads",
    "gsheet": "google sheets",
    "gsheets": "google sheets",
    "pg": "postgres",
    "sfdc": "salesforce",
}
"""Names that people write and no connector has."""
_WRITTEN, _WHOLE, _BEGIN, _WORDS, _BEGINNINGS, _RUN_ON, _KEYWORDS, _INSIDE = (
    -1000, 0, 40, 45, 50, 55, 65, 75,
)  # fmt: skip
"""The cost of each kind of match; lower is better."""
_NEEDS = {"package": 30, "git": 10, "image": 5, "build": 0}
_MAINTENANCE = {"active": 12, "beta": 6, "development": 2, "inactive": -10}
_QUALITY = {"gold": 4, "silver": 2}
_WELL_KNOWN = 15
_CHOSEN = 10
_FORK = 10
_OLD_MONTHS, _OLD = 60, 20
_DEPRECATED = 30
_SOURCE = 5
_NEAR, _VERY_NEAR = 0.72, 0.9
_WORD = re.compile(r"[a-z0-9]+")


def search(words: Sequence[str], role: EndpointRole | None = None) -> list[IndexedConnector]:
    """Returns the connectors that all words match, the best first, each reference once. Words that
    name a role (``postgres target``) choose it, unless ``role`` does. No words: all connectors.
    Raises ``ConfigError`` (``connector.index``)."""
    wanted, role = _read(words, role)
    ranked: list[tuple[int, str, IndexedConnector]] = []
    for entry in indexed():
        if role in (None, entry.role):
            lost = _match(entry, wanted)
            if lost is not None:
                ranked.append((lost - _worth(entry), entry.connector or "", entry))
    ranked.sort(key=lambda found: found[:2])
    once: dict[str, IndexedConnector] = {}
    for *_, entry in ranked:
        once.setdefault(entry.connector or f"{entry.name}, {entry.variant}", entry)
    return [*once.values()]


def near(words: Sequence[str], most: int = 3) -> list[str]:
    """Returns names in the index that the words may have meant, with letters swapped, missing or
    doubled; where none is very near, those of several words that are found alone. :func:`search`
    finds something for each."""
    read = _read(words, None)[0]
    word = _plain(" ".join(read))
    found: dict[str, float] = {}
    for name in {name for entry in indexed() for name in _names(entry)}:
        likeness = _likeness(word, _plain(name))
        if likeness >= _NEAR:
            found[name] = likeness
    if len(read) > 1 and max(found.values(), default=0) < _VERY_NEAR:
        alone = [word for word in read if search([word])]
        if alone:
            return alone[:most]
    return sorted(found, key=lambda name: (-found[name], len(name), name))[:most]


def named(reference: str) -> IndexedConnector | None:
    """Returns the connector of the index that a reference names, ignoring its version."""
    known = _references()
    return known.get(reference) or known.get(_unversioned(reference))


def others(entry: IndexedConnector) -> list[IndexedConnector]:
    """Returns alternatives to a connector: those of the same role with its name or its label, the
    best first."""
    names = set(map(_plain, _names(entry)))
    same = [
        other
        for other in search((), entry.role)
        if other.connector != entry.connector and names & set(map(_plain, _names(other)))
    ]
    return sorted(same, key=lambda other: -_worth(other))


def is_kept_up(entry: IndexedConnector) -> bool:
    """Returns whether its hub calls it active, or its last release is younger than five years."""
    return entry.maintenance == "active" or (entry.month is not None and _recency(entry.month) >= 0)


# -- what a word may match


def _read(words: Sequence[str], role: EndpointRole | None) -> tuple[list[str], EndpointRole | None]:
    """Splits the words, writes short names out, and takes out the words that name a role."""
    split = [word for given in words for word in given.casefold().split()]
    kept = [part for word in split if word not in _ROLES for part in _long(word)]
    if role is None:
        role = next((_ROLES[word] for word in split if word in _ROLES), None)
    return kept, role


def _long(word: str) -> list[str]:
    return _SHORT.get(word, word).split()


def _match(entry: IndexedConnector, words: list[str]) -> int | None:
    """Returns the points that a match costs; None: the words do not match."""
    text = " ".join(words)
    if not words or text in _written(entry):
        return _WRITTEN
    joined, asked = _plain(text), _WORD.findall(text)
    if not joined:
        return None
    plain, parts, known = _matched(entry)
    if joined in plain:
        return _WHOLE
    if any(part[: len(asked)] == asked for part in parts):
        return _BEGIN
    if any(set(asked) <= set(part) for part in parts):
        return _WORDS
    if any(_begin(asked, part) for part in parts):
        return _BEGINNINGS
    if any(name.startswith(joined) for name in plain):
        return _RUN_ON
    if _begin(asked, known):
        return _KEYWORDS
    return _INSIDE if len(joined) > 3 and any(joined in name for name in plain) else None


def _begin(asked: list[str], words: Iterable[str]) -> bool:
    """Returns whether each word of ``asked`` begins one of ``words``."""
    return all(any(word.startswith(each) for word in words) for each in asked)


@cache
def _all_matched() -> dict[int, tuple[list[str], list[list[str]], list[str]]]:
    found: dict[int, tuple[list[str], list[list[str]], list[str]]] = {}
    for entry in indexed():
        names = _names(entry)
        parts = [_WORD.findall(name) for name in names]
        more = " ".join((entry.name, entry.variant or "", *entry.keywords)).casefold()
        known = [*{word for part in parts for word in part}, *_WORD.findall(more)]
        found[id(entry)] = (["".join(part) for part in parts], parts, known)
    return found


def _matched(entry: IndexedConnector) -> tuple[list[str], list[list[str]], list[str]]:
    """Returns the texts to compare words with: the names in one piece, their words, all words."""
    return _all_matched()[id(entry)]


def _written(entry: IndexedConnector) -> set[str]:
    """Returns the forms in which a user writes the connector's reference."""
    own = {f"{entry.protocol}:{entry.name}", *entry.references}
    behind = {text.partition(":")[2] for text in own}
    return {text.casefold() for text in (*own, *behind)}


def _plain(text: str) -> str:
    return "".join(_WORD.findall(text.casefold()))


def _names(entry: IndexedConnector) -> tuple[str, ...]:
    """Returns the names of the systems it connects to, from all connectors that share its name or
    its label: tap-zendesk and source-zendesk-support both have the label Zendesk (Support)."""
    cores, labels = _shared()
    own, label = _core(entry), (entry.label or "").casefold()
    names = {own, *labels[own]}
    if label:
        names |= {label, *cores[label]}
    return tuple(sorted(names))


@cache
def _shared() -> tuple[dict[str, set[str]], dict[str, set[str]]]:
    """Returns the names of each label, and the labels of each name."""
    cores: dict[str, set[str]] = defaultdict(set)
    labels: dict[str, set[str]] = defaultdict(set)
    for entry in indexed():
        if entry.label is not None:
            cores[entry.label.casefold()].add(_core(entry))
            labels[_core(entry)].add(entry.label.casefold())
    return cores, labels


def _core(entry: IndexedConnector) -> str:
    """Returns ``google ads`` for ``airbyte-source-google-ads``, ``pipelinewise-tap-google-ads``."""
    return _beginning(entry.protocol).sub("", entry.name).casefold().replace("-", " ")


@cache
def _beginning(protocol: str) -> re.Pattern[str]:
    words = "|".join(map(re.escape, specs()[protocol].prefixes))
    return re.compile(rf"^(.*?-)?(?:{words})")


@cache
def _references() -> dict[str, IndexedConnector]:
    found: dict[str, IndexedConnector] = {}
    for entry in sorted(indexed(), key=_worth, reverse=True):
        for reference in entry.references:
            found.setdefault(reference, entry)
    for entry in indexed():
        for reference in entry.references:
            found.setdefault(_unversioned(reference), entry)
    return found


def _unversioned(reference: str) -> str:
    """Returns ``airbyte:source-x`` for ``airbyte:source-x@1.2``, ``airbyte:docker:x/y`` for
    ``airbyte:docker:x/y:1.2``, a repository without its revision."""
    if "://" in reference:
        return re.sub(r"(?:\.git)?(?:@[^/@#]*)?(?=#|$)", "", reference, count=1)
    bare = reference.partition("@")[0]
    return re.sub(r"(?<!:docker):[^/:]+$", "", bare) if ":docker:" in bare else bare


# -- what is worth more


def _worth(entry: IndexedConnector) -> int:
    """Returns the points for what makes a connector run with little work, and keep running."""
    spec = specs()[entry.protocol]
    reference = (entry.connector or "").partition(":")[2]
    alone = entry.maintenance is None and len(spec.sources) == 1 and not spec.own_names
    points = _NEEDS[entry.needs] + _QUALITY.get(entry.quality or "", 0)
    points += _MAINTENANCE["active"] if alone else _MAINTENANCE.get(entry.maintenance or "", 0)
    points += _CHOSEN if alone or entry.default else 0
    points += _WELL_KNOWN if reference in spec.known else 0
    points += _SOURCE if entry.role == "source" else 0
    points += 2 if entry.settings else 0
    points -= _DEPRECATED if "deprecated" in entry.title.casefold() else 0
    if entry.maintenance is None and spec.own_names and reference not in spec.known:
        points -= 0 if entry.name.startswith(spec.prefixes) else _FORK
    return points + _recency(entry.month)


def _recency(month: str | None) -> int:
    """Returns 12 points for a release in the index's last month, one less for each three months
    before; none where no release is known, and a negative number above five years."""
    if month is None:
        return 0
    age = _months(_newest()) - _months(month)
    return -_OLD if age > _OLD_MONTHS else max(0, 12 - age // 3)


@cache
def _newest() -> str:
    return max((entry.month for entry in indexed() if entry.month), default="0000-00")


def _months(month: str) -> int:
    year, _, number = month.partition("-")
    return int(year) * 12 + int(number)


# -- near


def _likeness(word: str, name: str) -> float:
    """Returns the similarity of two words, 0 to 1; 0 where their lengths exclude it."""
    longest = max(len(word), len(name), 1)
    if abs(len(word) - len(name)) > longest * (1 - _NEAR) * 2:
        return 0.0
    return SequenceMatcher(None, word, name, autojunk=False).ratio()
