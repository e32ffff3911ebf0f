"""Loads what the first decode needs while the source starts, and runs the related guards.

A guard that fires there ends the lane. Neighbours: ``codec.decode`` has what is loaded,
``engine.worker.lane`` checks between events and at the end.
"""

import threading

from penstock.codec.decode import warm

_LONGEST_SECONDS = 60.0


class Warming:
    """Loads in a thread, from its creation on; :meth:`check` and :meth:`finish` raise what failed
    there, ``ConfigError`` for a guard."""

    def __init__(self) -> None:
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="warm", daemon=True)
        self._thread.start()

    def check(self) -> None:
        """Raises what has failed so far."""
        if self._failure is not None:
            raise self._failure

    def finish(self) -> None:
        """Waits for the end, then checks."""
        self._thread.join(_LONGEST_SECONDS)
        self.check()

    def _run(self) -> None:
        try:
            warm()
        except BaseException as e:  # raised again in the lane's thread
            self._failure = e
