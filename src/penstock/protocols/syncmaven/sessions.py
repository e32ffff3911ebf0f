"""Sends a stream's rows between two checkpoints to one or several processes, and gathers their
results.

A process is started by its first rows, so that none is started for nothing. The processes are
written to and read in turns. If one fails or halts, the sending ends, and nothing of the checkpoint
is acknowledged. Not here: one process (``session``), which process gets which rows (``outgoing``),
judging a result (``writer``).
"""

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from penstock.errors import DestinationError
from penstock.model.events import Tick
from penstock.protocols.syncmaven.messages import HaltMessage, Result
from penstock.protocols.syncmaven.session import Session
from penstock.protocols.writing import Answer

STEP = 0.05  # seconds of one round


@dataclass(slots=True)
class SessionLines:
    """Lines (bytes or a pyarrow.Buffer) of ``rows`` rows, for the process ``part``."""

    part: int
    lines: Any
    rows: int


class RowRate:
    """Spreads rows over time, for any number of processes: ``rate`` a second."""

    def __init__(self, rate: int) -> None:
        self._rate = rate
        self._next_at = 0.0

    @property
    def most_rows(self) -> int:
        """Rows to send at once: a tenth of a second's."""
        return max(1, self._rate // 10)

    def wait(self) -> float:
        """Returns the seconds until rows may be sent."""
        return self._next_at - time.monotonic()

    def sent(self, rows: int) -> None:
        self._next_at = max(self._next_at, time.monotonic()) + rows / self._rate


class Sessions:
    """``make``: makes a process, not started. ``pace``: limits when rows may be sent."""

    def __init__(self, make: Callable[[], Session], pace: RowRate | None = None) -> None:
        self._make, self._pace = make, pace
        self._each: dict[int, Session] = {}

    @property
    def fault(self) -> HaltMessage | DestinationError | None:
        """Why the rows are not taken; None: no fault so far."""
        outcomes = (one.outcome for one in self._each.values())
        return next((o for o in outcomes if isinstance(o, HaltMessage | DestinationError)), None)

    @property
    def results(self) -> list[tuple[int, int, Result]]:
        """(part, rows sent, result) of each process; complete after :meth:`end` without a fault."""
        return [
            (part, one.sent, one.outcome)
            for part, one in self._each.items()
            if isinstance(one.outcome, Result)
        ]

    @property
    def gave_result(self) -> bool:
        """Whether any process gave a result, good or bad."""
        return any(one.gave_result for one in self._each.values())

    @property
    def stderr_tail(self) -> str:
        """The stderr tail of the failed process, else the last one."""
        failed = [
            o for o in self._each.values() if isinstance(o.outcome, HaltMessage | DestinationError)
        ]
        tails = [one.stderr_tail for one in failed or self._each.values()]
        return next((tail for tail in reversed(tails) if tail), "")

    def close(self) -> None:
        """Ends all processes."""
        each = list(self._each.values())
        if len(each) < 2:
            for one in each:
                one.close()
            return
        with ThreadPoolExecutor(len(each)) as pool:  # each may take Timeouts.stop
            list(pool.map(Session.close, each))

    def send(self, shares: Sequence[SessionLines]) -> Iterator[Answer]:
        """Sends the rows, until all are taken or there is a fault. Raises ``DestinationError``
        where a process cannot be started."""
        if self._pace is not None:
            while self.fault is None and (wait := self._pace.wait()) > 0:
                yield from self.listen(min(wait, STEP))
            self._pace.sent(sum(share.rows for share in shares))
        for share in shares:
            one = self._each.get(share.part)
            if one is None:
                one = self._each[share.part] = self._make().open()
            one.give(share.lines, share.rows)
        yield from self._go_on()

    def end(self) -> Iterator[Answer]:
        """Ends the streams, until each process has its result or there is a fault."""
        for one in self._each.values():
            if one.outcome is None:
                one.finish()
        yield from self._go_on()

    def listen(self, timeout: float = 0.0) -> Iterator[Answer]:
        """Reads at most one block of output of each process, within ``timeout`` seconds."""
        if not self._each:
            time.sleep(timeout)
            yield Tick()
        for one in self._each.values():
            yield from one.listen(timeout / len(self._each))

    def _go_on(self) -> Iterator[Answer]:
        while self.fault is None and (busy := sum(one.busy for one in self._each.values())):
            for one in self._each.values():
                yield from one.go_on(STEP / busy) if one.busy else one.look()
