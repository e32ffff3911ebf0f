"""Runs in a thread what takes longer than a request (querying a connector, check, discover, plan),
and keeps the lines that it shows meanwhile.

A job's page polls until the job has ended, then redirects to the page that shows its answer. Jobs
end with the server; nothing of theirs is needed later. Not here: runs, which are processes of their
own (``launches``).
"""

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from secrets import token_hex
from typing import Any

from penstock.engine.specs.observer import NullObserver
from penstock.errors import ConfigError, Defect, PenstockError
from penstock.terminal.output import Output

_LINES = 200
_KEPT = 100
_QUICK_SECONDS = 1.0
_FORM_SECONDS = 60.0


class JobObserver(NullObserver):
    """Keeps a job's progress as lines, secrets masked. Implements ``RunObserver``."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        self._output = Output()
        self.secrets: set[str] = set()
        self.hide(secrets)
        self.lines: deque[str] = deque(maxlen=_LINES)

    def phase(self, name: str, detail: str) -> None:
        self._add(f"{name}: {detail}")

    def log(self, level: str, origin: str, message: str) -> None:
        if level not in ("DEBUG", "TRACE"):
            self._add(f"{level} {origin}: {message}")

    def note(self, text: str) -> None:
        self._add(f"note: {text}")

    def hide(self, secrets: Iterable[str]) -> None:
        """Masks these values too from now on."""
        self.secrets |= {*secrets}
        self._output.hide(self.secrets)

    def safe(self, text: str) -> str:
        """Returns a text with secrets masked, as one line."""
        return self._output.safe_line(text)

    def _add(self, text: str) -> None:
        self.lines.append(self._output.safe_line(text))


Work = Callable[[JobObserver], Any]


class Job:
    """One job. ``then``: the page that shows the answer. ``answer``, ``error``: one of them once it
    has ended."""

    def __init__(self, title: str, then: str, work: Work) -> None:
        self.id, self.title, self.then = token_hex(8), title, then
        self.observer = JobObserver()
        self.answer: Any = None
        self.error: PenstockError | None = None
        self.began = time.monotonic()
        self._work: Work | None = work
        self._thread = threading.Thread(target=self._run, name=f"job-{title}", daemon=True)
        self._thread.start()

    @property
    def ended(self) -> bool:
        return not self._thread.is_alive()

    @property
    def seconds(self) -> float:
        return time.monotonic() - self.began

    def wait(self, seconds: float) -> bool:
        """Waits for the end; returns whether it came."""
        self._thread.join(seconds)
        return self.ended

    def _run(self) -> None:
        work, self._work = self._work, None  # what it refers to ends with it
        assert work is not None
        try:
            self.answer = work(self.observer)
        except PenstockError as e:
            self.error = e
        except Exception as e:  # shown on the page: nobody else sees a thread's error
            self.error = Defect(f"{type(e).__name__}: {self.observer.safe(str(e))}")


def done_by(job: Job) -> None:
    """Waits for a job that a form needs: only the browser has what was typed into it. Raises the
    job's error, or ``ConfigError`` (``ui.waits``) where it takes too long."""
    ended = job.wait(_FORM_SECONDS)
    if job.error is not None:
        raise job.error
    if not ended:
        raise ConfigError(
            "the connectors of this file have not answered yet, and nothing is saved",
            code="ui.waits",
            hint="go back to the form, and send it again",
        )


class Jobs:
    """The jobs of one server; the newest ended ones are kept."""

    def __init__(self) -> None:
        self._jobs: dict[str, Job] = {}
        self._lock = threading.Lock()

    def start(self, title: str, then: str, work: Work) -> Job:
        """Starts a job."""
        job = Job(title, then, work)
        with self._lock:
            ended = [id_ for id_, each in self._jobs.items() if each.ended]
            for id_ in ended[: max(0, len(self._jobs) - _KEPT)]:
                del self._jobs[id_]
            self._jobs[job.id] = job
        return job

    def address(self, job: Job) -> str:
        """Returns the page to show next: the answer's if it comes at once, else the job's."""
        quick = job.wait(_QUICK_SECONDS) and job.error is None
        return job.then if quick else f"/jobs/{job.id}"

    def get(self, id_: str) -> Job | None:
        """Returns a job; None: the id is unknown."""
        return self._jobs.get(id_)
