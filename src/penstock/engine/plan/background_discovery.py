"""Runs the discovery of a source in a thread, while Spark starts and the first records are read.

Not here: the comparison of its result (``engine.plan.catalog_check``). Neighbour:
``engine.plan.source_endpoint`` begins it.
"""

import threading
from collections.abc import Callable

from penstock.model.catalog import Catalog


class BackgroundDiscovery:
    """One discovery. ``discover``: calls the source; its waits are bounded."""

    def __init__(self, discover: Callable[[], Catalog]) -> None:
        self._discover = discover
        self._catalog: Catalog | None = None
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="discovery", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._catalog = self._discover()
        except BaseException as failure:
            self._failure = failure

    def running(self) -> bool:
        """Whether the source has not answered yet."""
        return self._thread.is_alive()

    def result(self) -> Catalog:
        """Waits for the discovery; returns its catalog, or raises what it raised."""
        self._thread.join()
        if self._catalog is None:
            assert self._failure is not None
            raise self._failure
        return self._catalog
