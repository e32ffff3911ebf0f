"""Makes this process's wasmtime engine, and advances its epoch so that guests can be interrupted.

The engine and the thread that advances it do not survive a fork, so each process makes its own.
Compilation is never parallel: after a fork the parent's thread pool is gone, and the child would
wait for it for ever. Not here: a guest's deadline (``instance``).
"""

import os
import threading
from collections.abc import Generator
from contextlib import contextmanager

from wasmtime import Config, Engine

TICK = 0.05
"""Seconds between two epochs: the precision of a guest's time limit."""
FAR = 1 << 62
"""Ticks to a deadline that is never reached."""


class _Clocked:
    """Holds an engine, whose epoch advances while any thread is inside :meth:`ticking`."""

    def __init__(self) -> None:
        config = Config()
        config.epoch_interruption = True
        config.parallel_compilation = False
        self.engine = Engine(config)
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._users = 0
        self._wanted = threading.Event()
        self._thread: threading.Thread | None = None

    @property
    def here(self) -> bool:
        """Returns whether this process made the engine, rather than a parent that it was forked
        from."""
        return self._pid == os.getpid()

    @contextmanager
    def ticking(self) -> Generator[None]:
        """Advances the engine's epoch every :data:`TICK` seconds inside."""
        with self._lock:
            self._users += 1
            self._wanted.set()
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._tick, name="penstock-epochs", daemon=True
                )
                self._thread.start()
        try:
            yield
        finally:
            with self._lock:
                self._users -= 1
                if not self._users:
                    self._wanted.clear()

    def _tick(self) -> None:
        pause = threading.Event()
        while True:
            self._wanted.wait()
            pause.wait(TICK)
            self.engine.increment_epoch()


_lock = threading.Lock()
_current: list[_Clocked] = []


def clocked() -> _Clocked:
    """Returns this process's engine and clock, which the first call makes."""
    with _lock:
        if not _current or not _current[0].here:
            _current[:] = [_Clocked()]
        return _current[0]


def _fresh_lock() -> None:
    global _lock
    _lock = threading.Lock()


os.register_at_fork(after_in_child=_fresh_lock)
