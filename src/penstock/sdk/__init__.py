"""The framework for connectors in Python: protocol-independent classes for sources, destinations
and enrichments.

::

    class Contacts(StreamWriter):
        name = "contacts"
        def write(self, rows): ...

    run(Connector(streams=[Contacts]))

The public names are those listed here, and ``penstock.sdk.testing`` for tests of a connector. Light
to import: msgspec and the standard library. Not here: Penstock's own roles, which host connectors
(``protocols``). Each protocol of a connector is a module (``syncmaven``, ``airbyte``).
"""

from penstock.sdk.connector import (
    Checkpoint,
    Connector,
    Enricher,
    Halt,
    RowError,
    Secret,
    StreamReader,
    StreamWriter,
    Sync,
)
from penstock.sdk.process import run
from penstock.sdk.rate_limit import Backoff, RateLimitError
from penstock.sdk.store import KeyValueStore, StoreError

__all__ = [
    "Backoff",
    "Checkpoint",
    "Connector",
    "Enricher",
    "Halt",
    "KeyValueStore",
    "RateLimitError",
    "RowError",
    "Secret",
    "StoreError",
    "StreamReader",
    "StreamWriter",
    "Sync",
    "run",
]
