"""Calls the user's hooks when a run has ended: a command gets the report on stdin, a URL by POST.

A hook does not affect a run: it is called after everything is committed and released, its time is
bounded, and its failure is one sentence in the report. Not here: which hooks there are
(``config.sections.HookSettings``), when they are called (``engine.run``).
"""

import http.client
import shutil
import threading
import time
import urllib.error
import urllib.request
from importlib import metadata
from typing import Any
from urllib.parse import urlsplit

import msgspec

from penstock.config.pipeline import Pipeline
from penstock.engine.specs.observer import RunObserver
from penstock.errors import Cancelled, ConfigError, PenstockError
from penstock.model.report import Report
from penstock.runtimes.fed_command import run_fed
from penstock.runtimes.masking import Masker

_TRIES = 3
_PAUSE = 1.0  # seconds before the second try, twice as long before the third
_AGAIN = (408, 429, 500, 502, 503, 504)
_STEP = 0.1


class Hooks:
    """The hooks of one pipeline."""

    def __init__(self, pipeline: Pipeline, observer: RunObserver) -> None:
        self._name, self._settings, self._observer = pipeline.pipeline, pipeline.hooks, observer
        self._masker = Masker(pipeline.secret_values)

    def refuse_missing(self) -> None:
        """Raises ``ConfigError`` (``config.hook``) where the program of a hook is missing:
        otherwise this would show only when it is needed."""
        for key in ("on_success", "on_failure"):
            hook = getattr(self._settings, key)
            if isinstance(hook, tuple) and shutil.which(hook[0]) is None:
                raise ConfigError(
                    f"hooks.{key}: there is no program {hook[0]}",
                    code="config.hook",
                    hint="give its path, from the pipeline file's folder, and make it executable",
                )

    def ended(self, report: Report) -> str | None:
        """Calls the hook of a run that has a report. Returns the hook's failure."""
        return self._tell(report.exit_code == 0, msgspec.json.encode(report))

    def failed(self, error: PenstockError) -> None:
        """Calls the hook of a run that failed before it began."""
        status = "cancelled" if isinstance(error, Cancelled) else "failed"
        said: dict[str, Any] = {
            "run": None,
            "pipeline": self._name,
            "status": status,
            "exit_code": error.exit_code,
            "error": error.as_report(),
        }
        if problem := self._tell(False, msgspec.json.encode(said)):
            self._observer.note(problem)

    def _tell(self, succeeded: bool, body: bytes) -> str | None:
        key = "on_success" if succeeded else "on_failure"
        hook: str | tuple[str, ...] | None = getattr(self._settings, key)
        if hook is None:
            return None
        deadline = time.monotonic() + self._settings.timeout
        if isinstance(hook, tuple):
            problem = self._run(hook, body)
        else:
            problem = _bounded_post(hook, body, deadline)
        if problem is None:
            return None
        return self._masker.mask(f"hooks.{key} failed, which does not affect the run: {problem}")

    def _run(self, command: tuple[str, ...], body: bytes) -> str | None:
        def log(line: str) -> None:
            self._observer.log("INFO", "hook", line)

        return run_fed(command, body, self._settings.timeout, self._masker, log)


def _bounded_post(url: str, body: bytes, deadline: float) -> str | None:
    """Posts in a thread, since a server that sends one byte at a time would block a socket for
    ever."""
    found: list[str | None] = []
    thread = threading.Thread(
        target=lambda: found.append(_post(url, body, deadline)), name="hook", daemon=True
    )
    thread.start()
    thread.join(max(deadline - time.monotonic(), 0.0) + _STEP)
    return found[0] if found else f"{_shown(url)} did not answer in time"


def _post(url: str, body: bytes, deadline: float) -> str | None:
    headers = {
        "Content-Type": "application/json",
        "User-Agent": f"penstock/{metadata.version('penstock')}",
    }
    request = urllib.request.Request(url, body, headers, method="POST")
    opener = urllib.request.build_opener(_NoRedirect)
    problem = None
    for number in range(_TRIES):
        if (seconds := deadline - time.monotonic()) <= 0:
            break
        try:
            with opener.open(request, timeout=seconds):
                return None
        except urllib.error.HTTPError as e:
            e.close()
            problem = f"{_shown(url)} answered {e.code}"
            if e.code not in _AGAIN:
                return problem
        except http.client.HTTPException as e:  # its message may hold a part of the address
            problem = f"{_shown(url)} sent an invalid HTTP answer ({type(e).__name__})"
        except (OSError, ValueError) as e:
            reason = e.reason if isinstance(e, urllib.error.URLError) else e
            problem = f"{_shown(url)} cannot be reached: {reason}"
        if number + 1 < _TRIES:
            time.sleep(min(_PAUSE * 2**number, max(deadline - time.monotonic(), 0.0)))
    return problem or f"{_shown(url)} did not answer in time"


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Refuses redirects: the report goes only to the host that the file names."""

    def redirect_request(self, *args: Any, **kw: Any) -> None:
        del args, kw


def _shown(url: str) -> str:
    """Returns scheme and host: paths of such addresses are secrets."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.hostname}"
