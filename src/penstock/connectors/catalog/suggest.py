"""Suggests which connector a user may have meant who named an unknown one, for hints.

Raises nothing: a hint is part of another error, also where the index cannot be read. Neighbours:
``search`` ranks; ``reference`` and ``package_request`` put the suggestions into their errors.
"""

from penstock.config.protocol_spec import specs
from penstock.connectors.catalog import search
from penstock.connectors.catalog.index import indexed
from penstock.errors import ConfigError


def found_for(word: str) -> tuple[str, str] | None:
    """Returns the first connector that a word without a protocol finds, and the word that finds it:
    this one, or a similar one. None: no connector."""
    try:
        for name in (word, *search.near([word], 1)):
            found = next((hit.connector for hit in search.search([name]) if hit.connector), None)
            if found is not None:
                return found, name
    except ConfigError:
        pass  # the index is damaged, which `search` reports
    return None


def listed_as(protocol: str, name: str) -> str | None:
    """Returns the reference of a connector whose name is exactly this; None: the index lacks it, or
    the name is the reference."""
    try:
        hits = search.search([f"{protocol}:{name}"])
    except ConfigError:
        return None
    exact = [hit.connector for hit in hits if hit.protocol == protocol and hit.name == name]
    return exact[0] if exact and f"{protocol}:{name}" not in exact else None


def package_instead(protocol: str, name: str) -> str | None:
    """Returns a maintained package that does the same as a connector that is not a package."""
    listed = listed_as(protocol, name)
    entry = search.named(listed) if listed is not None else None
    same = filter(search.is_kept_up, search.others(entry) if entry is not None else [])
    return next((each.connector for each in same if each.needs == "package"), None)


def meant(protocol: str, name: str) -> str | None:
    """Returns the reference of the protocol's connector whose name is most similar to ``name``."""
    from difflib import get_close_matches

    close = get_close_matches(name, names(protocol), 1, cutoff=0.75)
    if not close or close[0] == name:
        return None
    return listed_as(protocol, close[0]) or f"{protocol}:{close[0]}"


def names(protocol: str) -> list[str]:
    """Returns the names of a protocol's connectors, well-known ones first."""
    try:
        found = {entry.name: None for entry in indexed() if entry.protocol == protocol}
    except ConfigError:
        found = {}
    return [*dict.fromkeys((*specs()[protocol].known, *found))] if protocol in specs() else []


def packages() -> list[str]:
    """Returns the references of all connectors that are packages, in order; empty where the index
    cannot be read."""
    try:
        found = {entry.connector for entry in indexed() if entry.needs == "package"}
    except ConfigError:
        return []
    return sorted(each for each in found if each is not None and "@" not in each)
