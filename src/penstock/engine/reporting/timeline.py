"""Records the times of a run's activities as spans, for the report's seconds and for ``run
--profile``.

A span has a name, a track (one after the other on each) and two readings of ``time.monotonic``. Not
here: the activities inside a lane (its own figures come with its result). Neighbours:
``engine.run`` and ``engine.reporting.accounting`` add spans, ``engine.run`` writes the profile.
"""

import os
import secrets
import threading
import time
from collections.abc import Iterable
from errno import EISDIR
from pathlib import Path
from typing import Any

import msgspec

from penstock.errors import ConfigError
from penstock.files import replace, write_new
from penstock.model.report import TimeSpent

PREPARE, DISCOVER, START = "prepare", "discover", "start Spark"
STAGE, LANE, LOAD = "stage", "lane", "load"
STARTING = "Spark starts"  # during the preparation; the wait for it is START
_DRIVER = "driver"


class Span(msgspec.Struct, frozen=True):
    """A span. ``more``: figures for the profile."""

    name: str
    track: str
    begin: float
    end: float
    more: dict[str, Any] = {}


class Timeline:
    """The spans of one run. Several threads may add."""

    def __init__(self) -> None:
        self.began = time.monotonic()
        self._spans: list[Span] = []
        self._lock = threading.Lock()

    def add(
        self,
        name: str,
        begin: float,
        end: float | None = None,
        *,
        track: str = _DRIVER,
        more: dict[str, Any] | None = None,
    ) -> None:
        """Adds a span. ``end`` None: now."""
        span = Span(name, track, begin, time.monotonic() if end is None else end, more or {})
        with self._lock:
            self._spans.append(span)

    def spans(self) -> tuple[Span, ...]:
        """Returns the spans so far."""
        with self._lock:
            return tuple(self._spans)

    def seconds(self, *names: str) -> float:
        """Returns the seconds in which at least one of these was active."""
        return _covered((s.begin, s.end) for s in self._spans if s.name in names)

    def before_lanes(self) -> dict[str, float]:
        """Returns the seconds so far of the steps before the first lane, by their names in the
        report."""
        return {
            "prepare": self._preparation(),
            "discover": self.seconds(DISCOVER),
            "start": self.seconds(START),
        }

    def _preparation(self) -> float:
        return self.seconds(PREPARE, START, DISCOVER) - self.seconds(START, DISCOVER)

    def settle(self, spent: TimeSpent, total: float) -> None:
        """Sets the seconds that are not counted elsewhere. All add up to ``total``, except
        ``beside`` and ``tail``, which are counted twice. ``lane`` has a lane's seconds without
        those of its connector and of the staging of a model's rows; ``finish`` those outside of
        preparation, Spark's start, lanes and loads."""
        spent.discover = waits = self.seconds(DISCOVER)
        loads, lanes = self.seconds(LOAD), self.seconds(LANE, DISCOVER) - waits
        spent.load = loads
        spent.beside = max(loads + lanes - self.seconds(LOAD, LANE, DISCOVER) + waits, 0.0)
        spent.stage = self.seconds(STAGE)
        spent.lane = max(lanes - spent.stage - spent.extract, 0.0)
        spent.prepare = max(self._preparation() - spent.install, 0.0)
        named = (
            spent.install + spent.prepare + spent.discover + spent.start + spent.stage + spent.lane
        )
        named += spent.extract + spent.load - spent.beside
        spent.finish = max(total - named, 0.0)
        ended = max((s.end - self.began for s in self._spans if s.name == LANE), default=total)
        spent.tail = max(total - ended, 0.0)
        for name in msgspec.structs.fields(TimeSpent):
            setattr(spent, name.name, round(getattr(spent, name.name), 3))

    def write(self, path: Path, run: str) -> None:
        """Writes the spans as trace events, which a browser's trace viewer opens. Raises
        ``OSError``."""
        tracks = {s.track: n for n, s in reversed([*enumerate(self._spans)])}
        events: list[dict[str, Any]] = [
            {"ph": "M", "name": "process_name", "pid": 1, "args": {"name": f"penstock {run}"}}
        ]
        for track, number in sorted(tracks.items(), key=lambda t: t[1]):
            about = {"ph": "M", "name": "thread_name", "pid": 1, "tid": number}
            events.append({**about, "args": {"name": track}})
        for span in sorted(self._spans, key=lambda s: s.begin):
            at, length = span.begin - self.began, span.end - span.begin
            events.append(
                {
                    "ph": "X",
                    "name": span.name,
                    "cat": "penstock",
                    "pid": 1,
                    "tid": tracks[span.track],
                    "ts": round(at * 1e6),
                    "dur": round(length * 1e6),
                    "args": span.more,
                }
            )
        replace(path, msgspec.json.encode({"traceEvents": events, "displayTimeUnit": "ms"}))


def refuse_unwritable(path: Path) -> None:
    """Tries to create a profile's file, and removes it again. Raises ``ConfigError``
    (``config.profile``)."""
    try:
        if path.is_dir():
            raise IsADirectoryError(EISDIR, os.strerror(EISDIR))
        draft = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
        write_new(draft, b"")
        draft.unlink()
    except OSError as e:
        raise ConfigError(
            f"the profile cannot be written: {e.strerror or e}",
            code="config.profile",
            where=str(path),
            hint="name a file in a folder that exists and can be written",
        ) from e


def _covered(spans: Iterable[tuple[float, float]]) -> float:
    covered, until = 0.0, float("-inf")
    for begin, end in sorted(spans):
        covered += max(end - max(begin, until), 0.0)
        until = max(until, end)
    return covered
