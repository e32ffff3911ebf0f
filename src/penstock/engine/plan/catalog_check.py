"""Compares the catalog with which a read began with the result of a concurrent discovery.

Not here: the consequences (``engine.sync.sync``), the discovery itself
(``engine.plan.background_discovery``), what counts as a difference (``engine.plan.given_catalog``).
"""

import time
from collections.abc import Callable

from penstock.engine.plan.source_endpoint import SourceEndpoint
from penstock.errors import PenstockError

Waited = Callable[[float, float], None]
"""(begin, end) of a wait, as ``time.monotonic`` returns them."""


class CatalogCheck:
    """Implements ``engine.sync.ports.Discovery`` for a sync that is planned with a kept catalog.
    ``waited``: called with the time during which the sync waited for the discovery alone."""

    beside = True

    def __init__(self, source: SourceEndpoint, waited: Waited) -> None:
        self._source, self._waited = source, waited
        self.given = source.given()
        self.first = source.undiscovered is not None
        self._failed_before = self.first
        self._since: float | None = None

    def poll(self, *, reading: bool) -> str | None:
        if self._source.undiscovered is not None:
            raise self._source.undiscovered
        if self._since is None and not reading:
            self._since = time.monotonic()
        if self._source.discovering():
            return None
        try:
            catalog = self._source.discovered_beside()
        except PenstockError:
            if reading:
                return None
            if not self._failed_before:
                self._failed_before = True
                self._source.begin_discovery()
                return None
            self._end_of_wait()
            raise
        self._end_of_wait()
        return self._source.given(catalog)

    def read_failed(self) -> None:
        self._source.discover_first()

    def _end_of_wait(self) -> None:
        if self._since is not None:
            self._waited(self._since, time.monotonic())
            self._since = None
