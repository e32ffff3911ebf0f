"""The page of the machine: the checks of ``doctor``, the Sparks that stay, installed connectors,
disk use of logs.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from penstock.connectors.connector import describe_installed
from penstock.connectors.environments import installed
from penstock.engine.inspect.doctor import examine
from penstock.errors import ConfigError, PenstockError
from penstock.spark import warm
from penstock.web.jobs import JobObserver
from penstock.web.site import Form, Site, go

_SHOWN = 200
_START_SECONDS = 180.0
_CHECKS = "machine"


def machine(site: Site, request: Request) -> Response:
    values: dict[str, Any] = {
        "checks": site.catalogs.get(_CHECKS),
        "daemons": warm.status(warm.folder_of_all()),
        "connectors": [describe_installed(e) for e in installed(site.home.connectors)][:_SHOWN],
        "home": str(site.home.path),
        "used": {name: _size(site.home.path / name) for name in ("runs", "log", "connectors")},
        "nav": "machine",
    }
    return site.page(request, "machine.html", values)


def doctor(site: Site, request: Request, form: Form) -> Response:
    """Checks the machine, which takes seconds."""
    mend = form.get("fix") == ["yes"]

    def work(observer: JobObserver) -> None:
        del observer
        site.catalogs[_CHECKS] = examine(site.home, mend=mend)

    del request
    job = site.jobs.start("Checking this machine", "/machine", work)
    return go(site.jobs.address(job))


def start_spark(site: Site, request: Request, form: Form) -> Response:
    """Starts a Spark that stays, in a process of its own: this one stays small."""
    words = [sys.executable, "-m", "penstock", "spark", "start", "--json"]

    def work(observer: JobObserver) -> None:
        observer.phase("start", "starting Spark")
        try:
            done = subprocess.run(
                [*words, "--home", str(site.home.path)],
                stdin=subprocess.DEVNULL, capture_output=True, timeout=_START_SECONDS,
            )  # fmt: skip
            answer = json.loads(done.stdout)
        except (OSError, ValueError, subprocess.TimeoutExpired) as e:
            raise ConfigError(
                f"Spark could not be started: {e}", code="ui.start",
                hint="start it in a terminal: penstock spark start",
            ) from None  # fmt: skip
        if done.returncode:
            raise PenstockError.from_dict(answer["error"])

    del request, form
    return go(site.jobs.address(site.jobs.start("Starting Spark", "/machine", work)))


def stop_spark(site: Site, request: Request, form: Form) -> Response:
    del site, request, form
    found = warm.stop(warm.folder_of_all())
    stopped = sum(1 for entry in found if entry["state"] == "idle")
    return go("/machine", f"{stopped} stopped, {len(found) - stopped} end with their runs.")


def _size(folder: Path) -> int:
    """Returns the bytes of the files in a folder; links are not followed."""
    found, waiting = 0, [str(folder)]
    while waiting:
        try:
            with os.scandir(waiting.pop()) as entries:
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(entry.path)
                    else:
                        found += entry.stat(follow_symlinks=False).st_size
        except OSError:
            continue
    return found


ROUTES = [
    ("GET", "/machine", machine),
    ("POST", "/machine/doctor", doctor),
    ("POST", "/machine/spark/start", start_spark),
    ("POST", "/machine/spark/stop", stop_spark),
]
