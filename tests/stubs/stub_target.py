#!/usr/bin/env python3
"""A Singer target that does what its first argument, a JSON object, says.

    stub_target.py '{"ack": "end"}' --config FILE < messages

``save``: file that every line of its input goes to. ``ack``: which states it prints: ``each`` (at
once), ``end`` (the last, at the end), ``last`` (the last, at the end, if no RECORD followed it),
``merge`` (after every ``every`` RECORDs of a stream, that stream's bookmark of the last state;
all of it at the end), ``flushed`` (as PipelineWise's and DuckDB's: the first STATE is kept, and at
each flush, after ``every`` RECORDs or at the end where RECORDs wait, the last one in its place;
what is kept is printed at each flush and at the end), ``with_records`` (the last, at the end, if a
RECORD came at all), ``none``. ``prints``: lines printed at the start. ``after``: lines of input,
then ``say`` on stderr and ``close`` its stdin, ``kill`` itself, ``hang`` or exit with ``code``.
``about``: answer to --about. ``exit``: code at the end.
"""

import json
import os
import sys
import time
from typing import Any

AT_THE_END = ("end", "last", "merge")


def main() -> int:
    overrides: dict[str, Any] = json.loads(sys.argv[1])
    if "--about" in sys.argv:
        if "about" not in overrides:
            print("unrecognized arguments: --about", file=sys.stderr)
            return 2
        print(json.dumps(overrides["about"]))
        return 0
    with open(sys.argv[sys.argv.index("--config") + 1]) as f:
        config = json.load(f)
    if config.get("bad"):
        print("INFO starting\nCRITICAL config is bad\nINFO bye", file=sys.stderr)
        return 1
    for line in overrides.get("prints", []):
        print(line, flush=True)
    ack = overrides.get("ack", "end")
    state: Any = None
    flushed: dict[str, Any] = {"bookmarks": {}}
    kept: Any = None
    counts: dict[str, int] = {}
    waiting = 0  # RECORDs since the last flush
    for lines, raw in enumerate(sys.stdin.buffer, 1):
        if "save" in overrides:
            with open(overrides["save"], "ab") as save:
                save.write(raw)
        message = json.loads(raw)
        match message["type"]:
            case "STATE":
                state = message["value"]
                kept = kept or state
                if ack == "each":
                    print(json.dumps(state), flush=True)
            case "RECORD":
                if ack == "last":
                    state = None
                stream = message["stream"]
                counts[stream] = counts.get(stream, 0) + 1
                waiting += 1
                if ack == "flushed" and waiting == overrides.get("every"):
                    waiting, kept = 0, state
                    print(json.dumps(kept), flush=True)
                known = (state or {}).get("bookmarks", {}) if isinstance(state, dict) else {}
                if ack == "merge" and counts[stream] % overrides["every"] == 0 and stream in known:
                    flushed["bookmarks"][stream] = known[stream]
                    print(json.dumps(flushed), flush=True)
            case _:
                pass
        if lines == overrides.get("after"):
            print(overrides.get("say", ""), file=sys.stderr, flush=True)
            if overrides.get("close"):
                os.close(0)
                time.sleep(3)
            if overrides.get("kill"):
                os.kill(os.getpid(), 9)
            if overrides.get("hang"):
                time.sleep(60)
            return int(overrides.get("code", 0))
    if ack == "flushed":
        print(json.dumps(state if waiting else kept))
    elif state is not None and (counts if ack == "with_records" else ack in AT_THE_END):
        print(json.dumps(state))
    return int(overrides.get("exit", 0))


if __name__ == "__main__":
    sys.exit(main())
