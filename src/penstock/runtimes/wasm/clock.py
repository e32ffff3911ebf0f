"""The engine of this process, and the clock that lets guests be interrupted.

An engine and a ticking thread do not survive a fork whole, so both belong to the process that made
them. Compilation is never parallel: the pool of a forked worker's parent is gone, and the child
would wait for it for ever.
"""

import os
import threading
from collections.abc import Generator
from contextlib import contextmanager

from wasmtime import Config, Engine

TICK = 0.05
"""Seconds between two epochs: how exactly a guest's time is measured."""
FAR = 1 << 62
"""Ticks of a deadline that never comes."""


class _Clocked:
    """An engine whose epoch grows as long as somebody is inside :meth:`ticking`."""

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
        return self._pid == os.getpid()

    @contextmanager
    def ticking(self) -> Generator[None]:
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
    """This process's; made when first asked for."""
    with _lock:
        if not _current or not _current[0].here:
            _current[:] = [_Clocked()]
        return _current[0]


def _fresh_lock() -> None:
    global _lock
    _lock = threading.Lock()


os.register_at_fork(after_in_child=_fresh_lock)
