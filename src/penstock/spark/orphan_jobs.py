"""Cancels the Spark jobs of a run that was killed, in a JVM that other runs have too: ``python -m
penstock.spark.orphan_jobs``.

Reads one JSON object from stdin: the ``port`` and ``secret`` of the JVM's gateway and ``session``,
the tag that Spark gives all jobs of a session. A thread of the JVM may go on for the killed run and
begin one more job, so it cancels until none is left. Exit code 0: none is left. Uses py4j alone.
Neighbour: ``keeper``, which ends the JVM where this fails.
"""

import json
import sys
import time
from typing import Any

from py4j.java_gateway import GatewayParameters, JavaGateway

REASON = "the run that began it was killed"
QUIET_SECONDS = 1.0
SECONDS = 15.0
_TICK_SECONDS = 0.1


def jobs_of(context: Any, session: str) -> set[int]:
    """Returns the ids of the jobs of a session that run now. ``context``: Java's
    ``SparkContext``."""
    tracker = context.statusTracker()
    if not (active := set(tracker.getActiveJobIds())):
        return set()
    return active & set(tracker.getJobIdsForTag(session))


def cancel(context: Any, session: str) -> bool:
    """Cancels the jobs of a session until none has run for a second; returns whether that was
    reached."""
    began = quiet_since = time.monotonic()
    while (now := time.monotonic()) - began < SECONDS:
        context.cancelJobsWithTag(session, REASON)
        if jobs_of(context, session):
            quiet_since = now
        elif now - quiet_since >= QUIET_SECONDS:
            return True
        time.sleep(_TICK_SECONDS)
    return False


def main() -> int:
    """Runs the command; returns the exit code."""
    told = json.load(sys.stdin)
    at = GatewayParameters(port=int(told["port"]), auth_token=str(told["secret"]))
    gateway: Any = JavaGateway(gateway_parameters=at)
    context = gateway.jvm.org.apache.spark.SparkContext.getOrCreate()
    return 0 if cancel(context, str(told["session"])) else 1


if __name__ == "__main__":
    raise SystemExit(main())
