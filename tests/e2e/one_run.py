"""One real run in a process of its own, driven by one JSON argument; the answer on stdout.

Calls ``engine.run.start.run_pipeline`` as a command line would, SIGTERM and SIGINT included, so
that what a test kills is a whole program. Keys of the argument: ``source``, ``destination``,
``home``, ``options`` (of ``config.command_line.Options``), ``master``, ``conf``, ``load``,
``state`` (the pipeline's sections), ``shards`` (pinned), ``timeouts``, ``folders`` (that the
destination may write), ``protocol_keys`` (the destination's), ``bounds`` (of
``engine.worker.sealer.Bounds``) and ``plan`` (of ``engine.sync.sync.SyncPlan``): the last two make
segments and loads small enough for a test of seconds, as ``java_stopped_seconds`` (of
``spark.jvm``) makes a wait. The answer is the report, or ``{"error": ...}``; the exit code is the
run's.
"""

import gc
import json
import signal
import sys
import time
from functools import partial
from typing import Any

import msgspec

from penstock.config.command_line import pipeline_from_arguments
from penstock.config.home import Home
from penstock.config.pipeline import Pipeline
from penstock.config.sections import (
    Autotune,
    FilesystemPermissions,
    LoadBounds,
    Permissions,
    Resources,
    SparkSettings,
    StateSettings,
)
from penstock.engine.plan import lane_jobs
from penstock.engine.run import start, wiring
from penstock.engine.specs.lane import LaneBounds
from penstock.errors import PenstockError
from penstock.unused_packages import OF_CONNECT, leave_out


class StageEvent:
    """A run's observer: one line an event on stderr, with the seconds since the start."""

    def __init__(self) -> None:
        self._began = time.monotonic()

    def _say(self, *words: object) -> None:
        print(f"[{time.monotonic() - self._began:6.2f}]", *words, file=sys.stderr, flush=True)

    def phase(self, name: str, detail: str) -> None:
        self._say("phase", name, detail)

    def stream(self, *about: object) -> None:
        self._say("stream", *about)

    def expected(self, *about: object) -> None:
        self._say("expected", *about)

    def log(self, level: str, origin: str, message: str) -> None:
        self._say(level, origin, message[:300])

    def note(self, text: str) -> None:
        self._say("note", text)


def pipeline_of(told: dict[str, Any]) -> Pipeline:
    pipeline = pipeline_from_arguments(
        told["source"], told["destination"], **told.get("options", {})
    )
    replaced: dict[str, Any] = {
        "spark": SparkSettings(master=told.get("master"), conf=told.get("conf", {}))
    }
    if told.get("state"):
        replaced["state"] = msgspec.convert(told["state"], StateSettings)
    if "load" in told:
        replaced["load"] = LoadBounds(**told["load"])
    if "shards" in told:
        replaced["resources"] = Resources(autotune=Autotune(pin_parallelism=told["shards"]))
    if "protocol_keys" in told:
        replaced["destination"] = msgspec.structs.replace(
            pipeline.destination, protocol_keys=told["protocol_keys"]
        )
    if "timeouts" in told:
        replaced["timeouts"] = msgspec.structs.replace(pipeline.timeouts, **told["timeouts"])
    if "folders" in told:
        folders = FilesystemPermissions(allowed_preopens=tuple(told["folders"]))
        replaced["destination"] = msgspec.structs.replace(
            replaced.get("destination", pipeline.destination), permissions=Permissions(fs=folders)
        )
    return msgspec.structs.replace(pipeline, **replaced)


def make_small(bounds: dict[str, Any], plan: dict[str, Any]) -> None:
    """Smaller segments and loads than a user has a reason to ask for."""
    whole = wiring.sync_plan

    def sync_plan(*args: Any, **kw: Any) -> Any:
        return msgspec.structs.replace(whole(*args, **kw), **plan)

    lane_jobs.LaneBounds = partial(LaneBounds, **bounds)  # type: ignore[misc]
    wiring.sync_plan = sync_plan


def main() -> int:
    told = json.loads(sys.argv[1])
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: start.request_cancel())
    if "java_stopped_seconds" in told:
        from penstock.spark import jvm

        jvm.STOPPED_SECONDS = told["java_stopped_seconds"]
    make_small(told.get("bounds", {}), told.get("plan", {}))
    try:
        report = start.run_pipeline(pipeline_of(told), Home(told["home"]), observer=StageEvent())
    except PenstockError as error:
        print(json.dumps({"error": error.as_dict()}))
        return error.exit_code
    print(msgspec.json.encode(report).decode())
    return report.exit_code


if __name__ == "__main__":
    leave_out(*OF_CONNECT)  # as the command line does
    gc.set_threshold(200_000, 20, 100)
    sys.exit(main())
