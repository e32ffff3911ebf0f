"""Decides whether a connector is a source or a destination: by the user's choice, else by its name.
No I/O.
"""

import re
from enum import StrEnum
from functools import cache
from pathlib import PurePath
from typing import TYPE_CHECKING

from penstock.config.protocol_spec import specs
from penstock.connectors.reference import ConnectorRef, RefKind

if TYPE_CHECKING:
    from penstock.connectors.destination import DestinationConnector
    from penstock.connectors.source import SourceConnector


class AskedRole(StrEnum):
    """The two roles that a verb can query."""

    source = "source"
    destination = "destination"


@cache
def _words() -> tuple[re.Pattern[str], frozenset[str]]:
    """Returns the pattern of words that connectors' names begin with, and the words among them that
    name a destination."""
    destinations = {p.strip("-") for s in specs().values() for p in s.destinations}
    known = "|".join({*destinations, *(p.strip("-") for s in specs().values() for p in s.sources)})
    return re.compile(rf"(?:^|[-_.])({known})(?=$|[-_.])"), frozenset(destinations)


def class_of(end: AskedRole) -> "type[SourceConnector | DestinationConnector]":
    """Returns the facade of a role."""
    from penstock.connectors.destination import DestinationConnector
    from penstock.connectors.source import SourceConnector

    return SourceConnector if end is AskedRole.source else DestinationConnector


def end_of(ref: ConnectorRef) -> AskedRole:
    """Returns the role that a reference's name indicates: by the first word in it that a protocol's
    names begin with, in any position: ``meltanolabs-target-postgres``, ``./destination``,
    ``dest_postgres.wasm``, ``python my_target.py``. A source where no such word occurs and the
    protocol has sources."""
    spec = specs().get(ref.protocol or "")
    if ref.kind is RefKind.table or (spec is not None and "source" not in spec.roles):
        return AskedRole.destination
    words, destinations = _words()
    for word in (ref.name,) if ref.name else ref.command:
        found = words.search(PurePath(word).name.lower()) if not word.startswith("-") else None
        if found is not None:
            return AskedRole.destination if found[1] in destinations else AskedRole.source
    return AskedRole.source
