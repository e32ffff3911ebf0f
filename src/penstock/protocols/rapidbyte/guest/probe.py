"""One question to a connector, in an instance and on a thread of its own: check, discover.

Whoever asks waits as long as ``deadlines`` says, and gets what the connector says beside its answer
as lines of the log. Neighbour: ``stream_run`` runs a stream.
"""

import threading
import time
from collections.abc import Callable
from typing import Any

from penstock.byte_queue import Abandoned
from penstock.protocols.rapidbyte.guest.deadlines import (
    LETTING_GO,
    LONGEST_CHECK,
    LONGEST_DISCOVER,
    LOOK,
    Clock,
    Within,
    waiting_for,
)
from penstock.protocols.rapidbyte.guest.errors import Late, explain, first_fault, judged
from penstock.protocols.rapidbyte.guest.events import Frame, Logged, Told
from penstock.protocols.rapidbyte.guest.host import Host
from penstock.protocols.rapidbyte.guest.session import Session
from penstock.protocols.rapidbyte.guest.stage import Stage
from penstock.protocols.rapidbyte.wire.messages import DiscoveredCatalog, ValidationReport


def ask(
    stage: Stage,
    question: Callable[[Session], Any],
    log: Callable[[Logged], None],
    within: Within | None = None,
) -> Any:
    """Open, one question, close, under the same permissions and limits as a run. Raises an error of
    the tree. ``log`` gets what the connector said. ``within``: its waits for others included; then
    it is given up."""
    aside = _Aside(log)
    host = stage.host("", out=aside)
    clock = Clock(stage)
    answers: list[Any] = []
    failures: list[Exception] = []

    def work() -> None:
        try:
            with stage.session(host) as clock.session:
                clock.session.open(stage.config)
                answers.append(question(clock.session))
        except BaseException as e:  # whoever asked must be told, whatever it was
            known = e if isinstance(e, Exception) else RuntimeError(repr(e))
            failures.append(judged(known, host))

    thread = threading.Thread(target=work, name=f"penstock-{stage.instance}", daemon=True)
    thread.start()
    late = _awaited(thread, host, clock, within or Within(LONGEST_CHECK))
    told = first_fault(host)
    if late is not None:
        answered = bool(answers)  # what it says once it was stopped is none
        host.stop()
        thread.join(LETTING_GO)
        late = None if answered else late
    aside.closed = True
    if late is None and answers:
        return answers[0]
    raise explain(stage.loaded.role, late or failures[0], told) from None


def check(
    stage: Stage, log: Callable[[Logged], None], within: Within | None = None
) -> ValidationReport:
    """Its answer to ``validate``: ``failed`` and ``warning`` are answers, not errors. Raises an
    error of the tree."""
    return ask(stage, lambda session: session.validate(), log, within)


def discover(
    stage: Stage, log: Callable[[Logged], None], within: Within | None = None
) -> DiscoveredCatalog:
    """Its streams. Raises an error of the tree."""
    bound = within or Within(LONGEST_DISCOVER)
    return ask(stage, lambda session: session.discover(), log, bound)


def _awaited(
    thread: threading.Thread, host: Host, clock: Clock, within: Within
) -> Exception | None:
    """Until the thread has ended; or why nobody waits for it any more."""
    until = time.monotonic() + within.seconds
    late: Exception | None = None
    while thread.is_alive() and late is None:
        left = until - time.monotonic()
        late = clock.overworked() or (_unanswered(within, host) if left <= 0 else None)
        thread.join(min(max(left, 0.0), LOOK))
    return late


def _unanswered(within: Within, host: Host) -> Late:
    where = "see whether the system that it talks to answers"
    more = "" if within.key is None else f"; if it is only slow, raise {within.key}"
    text = f"it did not answer within {within.seconds:g} s{waiting_for(host)}"
    return Late(text, "timeout", where + more)


class _Aside:
    """What is told beside an answer: lines of the log; there is no stage that takes frames."""

    def __init__(self, log: Callable[[Logged], None]) -> None:
        self._log = log
        self.closed = False

    def put(self, item: Told, size: int, patience: float) -> None:
        if isinstance(item, Logged) and not self.closed:
            self._log(item)
        elif isinstance(item, Frame):
            raise Abandoned("nothing is read or written now")
