"""Calls ``validate`` or ``discover`` of a connector, in its own instance and thread.

The caller waits for at most the timeout of ``deadlines``, and gets the connector's log lines next
to its answer. Not here: running a stream (``stream_run``).
"""

import re
import threading
import time
from collections.abc import Callable
from typing import Any

from penstock.byte_queue import QueueAbandoned
from penstock.errors import PenstockError
from penstock.protocols.rapidbyte.guest.deadlines import (
    ABANDON_SECONDS,
    LONGEST_CHECK,
    LONGEST_DISCOVER,
    POLL_SECONDS,
    AnswerTimeout,
    Clock,
    waiting_for,
)
from penstock.protocols.rapidbyte.guest.errors import (
    Unresponsive,
    explain,
    first_fault,
    reclassified,
)
from penstock.protocols.rapidbyte.guest.events import ComponentLog, Frame, StageEvent
from penstock.protocols.rapidbyte.guest.host import HostFunctions
from penstock.protocols.rapidbyte.guest.session import ComponentSession
from penstock.protocols.rapidbyte.guest.stage import Stage
from penstock.protocols.rapidbyte.wire.messages import DiscoveredCatalog, ValidationReport

_NO_VALIDATE = "it has no validate: only a run shows whether its configuration is good"


def ask(
    stage: Stage,
    question: Callable[[ComponentSession], Any],
    log: Callable[[ComponentLog], None],
    within: AnswerTimeout | None = None,
) -> Any:
    """Opens the connector, calls ``question`` and closes it, under the permissions and limits of a
    run. ``log`` gets the connector's lines. ``within``: the timeout, which includes the connector's
    own waits; then it is abandoned. Raises an error of the tree."""
    outlet = _LogOutlet(log)
    host = stage.host("", out=outlet)
    clock = Clock(stage)
    answers: list[Any] = []
    failures: list[Exception] = []

    def work() -> None:
        try:
            with stage.session(host) as clock.session:
                clock.session.open(stage.config)
                answers.append(question(clock.session))
        except BaseException as e:  # the caller must get an error, whatever was raised
            failure = e if isinstance(e, Exception) else RuntimeError(repr(e))
            failures.append(reclassified(failure, host))

    thread = threading.Thread(target=work, name=f"penstock-{stage.instance}", daemon=True)
    thread.start()
    late = _awaited(thread, host, clock, within or AnswerTimeout(LONGEST_CHECK))
    host_fault = first_fault(host)
    if late is not None:
        answered = bool(answers)  # an answer after the stop does not count
        host.stop()
        thread.join(ABANDON_SECONDS)
        late = None if answered else late
    outlet.closed = True
    if late is None and answers:
        return answers[0]
    raise explain(stage.loaded.role, late or failures[0], host_fault) from None


def check(
    stage: Stage, log: Callable[[ComponentLog], None], within: AnswerTimeout | None = None
) -> ValidationReport:
    """Calls ``validate``: ``failed`` and ``warning`` are answers, not errors. Without ``validate``
    (:func:`has_none`) the answer is a warning. Raises an error of the tree."""
    try:
        report = ask(stage, lambda session: session.validate(), log, within)
    except PenstockError as e:
        if not has_none(e, "validate"):
            raise
        return ValidationReport(status="warning", message=f"{_NO_VALIDATE} ({e.message})")
    return report or ValidationReport(status="warning", message=_NO_VALIDATE)


def discover(
    stage: Stage, log: Callable[[ComponentLog], None], within: AnswerTimeout | None = None
) -> DiscoveredCatalog:
    """Calls ``discover``. Raises an error of the tree."""
    bound = within or AnswerTimeout(LONGEST_DISCOVER)
    return ask(stage, lambda session: session.discover(), log, bound)


def has_none(error: PenstockError, function: str) -> bool:
    """Returns whether the error shows that the connector lacks the called ``function``.
    ``discover`` and ``validate`` are optional (section 3), but v4's interface requires the exports,
    so that a connector without one can only return an error. Something else may be unsupported too
    (a version of the server): only an error about the function counts."""
    code = str((error.connector or {}).get("code", "")).upper().replace("_", "")
    what = f"(OPERATION|METHOD|FUNCTION|{function.upper()})?"
    return bool(
        re.search("NOTIMPLEMENTED|UNIMPLEMENTED", code)
        or re.fullmatch(f"{what}(UNSUPPORTED|NOTSUPPORTED){what}", code)
    )


def _awaited(
    thread: threading.Thread, host: HostFunctions, clock: Clock, within: AnswerTimeout
) -> Exception | None:
    """Waits until the thread has ended (None), or returns why it is abandoned."""
    until = time.monotonic() + within.seconds
    late: Exception | None = None
    while thread.is_alive() and late is None:
        left = until - time.monotonic()
        late = clock.over_limit() or (_unanswered(within, host) if left <= 0 else None)
        thread.join(min(max(left, 0.0), POLL_SECONDS))
    return late


def _unanswered(within: AnswerTimeout, host: HostFunctions) -> Unresponsive:
    where = "see whether the system that it talks to answers"
    more = "" if within.key is None else f"; if it is only slow, raise {within.key}"
    text = f"it did not answer within {within.seconds:g} s{waiting_for(host)}"
    return Unresponsive(text, "timeout", where + more)


class _LogOutlet:
    """Passes on log lines and refuses frames, since no other stage runs."""

    def __init__(self, log: Callable[[ComponentLog], None]) -> None:
        self._log = log
        self.closed = False

    def put(self, item: StageEvent, size: int, timeout: float, /) -> None:
        if isinstance(item, ComponentLog) and not self.closed:
            self._log(item)
        elif isinstance(item, Frame):
            raise QueueAbandoned("nothing is read or written now")
