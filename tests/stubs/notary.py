"""A Syncmaven destination that writes down what it hears, made from the protocol's page alone.

Its one argument (JSON) says: ``book``: the file that it writes; ``page``: whether it speaks the
page's words or those of the code (reference, 1.3); ``at``: where it waits once, ``row`` (between
two rows), ``asked`` (the end of a stream was told, no result given) or ``told`` (the result is
given); ``streams``: those that it has; ``stop``: the folder in which it leaves its pid when it
waits, and finds the file ``go``.

It waits only where an earlier stream had a result, so that something is acknowledged by then.
"""

import json
import os
import sys
import time
from pathlib import Path

ORDERS = json.loads(sys.argv[1])
STOP, BOOK = Path(ORDERS["stop"]), ORDERS["book"]
WAIT_SECONDS = 120
ANYTHING = {"$schema": "http://json-schema.org/draft-07/schema#", "type": "object"}


def answer(kind, **parts):
    body = parts if ORDERS["page"] else {"payload": parts}
    sys.stdout.write(json.dumps({**body, "type": kind}, separators=(", ", " : ")) + "\n")
    sys.stdout.flush()


def note(**entry):
    with open(BOOK, "a") as book:
        book.write(json.dumps({"by": os.getpid(), **entry}) + "\n")


def wait(place):
    if ORDERS["at"] != place or not (STOP / "results").exists():
        return
    try:
        mark = os.open(STOP / "waits.tmp", os.O_CREAT | os.O_EXCL | os.O_WRONLY)
    except FileExistsError:
        return
    os.write(mark, str(os.getpid()).encode())
    os.close(mark)
    os.rename(STOP / "waits.tmp", STOP / "waits")
    (STOP / "waits.tmp").touch()
    until = time.monotonic() + WAIT_SECONDS
    while not (STOP / "go").exists() and time.monotonic() < until:
        time.sleep(0.02)


rows, sync = 0, ""
while line := sys.stdin.readline():
    said = json.loads(line)
    kind, given = said["type"], said.get("payload", {})
    if kind == "describe":
        if ORDERS["page"]:
            answer("connection-spec", credentialsSchema=ANYTHING)
        else:
            answer("spec", roles=["destination"], connectionCredentials=ANYTHING)
    elif kind == "describe-streams":
        streams = [{"name": name, "rowType": ANYTHING} for name in ORDERS["streams"]]
        kind = "streams-spec" if ORDERS["page"] else "stream-spec"
        answer(kind, streams=streams, defaultStream=ORDERS["streams"][0])
    elif kind == "start-stream":
        rows, sync = 0, given["syncId"]
        answer("log", level="info", message=f"began {sync}")
    elif kind == "row":
        rows += 1
        note(sync=sync, seq=given["row"]["seq"])
        if rows == 7:
            wait("row")
    elif kind == "end-stream":
        wait("asked")
        note(sync=sync, took=rows)
        answer("stream-result", received=rows, success=rows, skipped=0, failed=0)
        wait("told")
        (STOP / "results").touch()
        break
