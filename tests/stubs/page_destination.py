"""A Syncmaven destination written from the protocol's page alone: it answers ``end-stream`` by its
end. Its one argument is a file of JSON that says how it behaves; without one it behaves well.

``kept``: file to which it writes the ids of its rows once the stream has ended, as who uploads a
batch does. ``quits_at``: it ends with 0 at this id, and keeps nothing. ``code``: its exit code.
``halt``: the status of a halt before its end. ``loops``: it reads on to the end of its input.
``closes``: it closes its stdout before it keeps its rows. ``leaves``: it leaves them to a child,
which takes so many seconds (``quiet``: which has no stdout). ``result``: fields of a
``stream-result`` that it gives all the same. ``names``: of its streams, which it tells by
``answer``; or by the fields ``specs`` of it.
"""

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

told: dict[str, Any] = json.loads(Path(sys.argv[1]).read_text()) if len(sys.argv) > 1 else {}
rows: list[Any] = []


def say(type_: str, **fields: Any) -> None:
    print(json.dumps({"type": type_, **fields}), flush=True)


def keep() -> None:
    if "kept" in told:
        with open(told["kept"], "a") as file:
            file.writelines(f"{row['id']}\n" for row in rows)
    rows.clear()


def leave() -> None:
    if os.fork() == 0:
        if told.get("quiet"):
            for number in (0, 1, 2):
                os.close(number)
        time.sleep(told["leaves"])
        keep()
    os._exit(0)


def end() -> None:
    if "halt" in told:
        say("halt", message="the quota is used up", **told["halt"])
    elif "result" in told:
        say("stream-result", **told["result"])
    if "leaves" in told:
        leave()
    if told.get("closes"):
        os.close(1)
        time.sleep(0.5)
    if "halt" not in told:
        keep()


for line in iter(sys.stdin.readline, ""):
    message = json.loads(line)
    if message["type"] == "describe":
        say("connection-spec", credentialsSchema={"type": "object"})
    elif message["type"] == "describe-streams":
        names = told.get("names", ["contacts"])
        fields = told.get("specs", {"streams": [{"name": name} for name in names]})
        say(told.get("answer", "streams-spec"), **fields)
    elif message["type"] == "row":
        row = message["payload"]["row"]
        rows.append(row)
        if row["id"] == told.get("quits_at"):
            sys.exit(0)
    elif message["type"] == "end-stream":
        end()
        if not told.get("loops"):
            break
sys.stdout.flush() if not told.get("closes") else None
os._exit(told.get("code", 0))
