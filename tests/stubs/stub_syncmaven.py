"""A Syncmaven destination that keeps what it hears, and misbehaves as its one argument (JSON) says.

``sink``: file for every line that it reads; ``{pid}`` in it stands for its process. ``dialect``:
code (default) or page. ``row_type``, ``options``, ``credentials``: schemas; ``streams``: names, the
first is the default. ``fail``, ``skip``: ids of rows that it counts so. ``halt``: {"at": message
type, "after": rows, "status"}. ``die``: {"at", "after", "code"}. ``silent``: a message type that it
never answers; ``deaf``: after so many rows it reads nothing more. ``noise``: everything is hard to
read. ``echo``: it logs what it hears, as published ones do. ``anonymous``: names of streams that it
tells without credentials; None: it halts then. ``result``: sent in place of its counters.
``stderr``: bytes written there first.
"""

import json
import os
import sys
import time
from typing import Any

told: dict[str, Any] = json.loads(sys.argv[1]) if len(sys.argv) > 1 else {}
page = told.get("dialect") == "page"
DRAFT = {"$schema": "http://json-schema.org/draft-07/schema#"}
ANY = {"type": "object", "properties": {}, "additionalProperties": True, **DRAFT}


def put(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def say(type_: str, **payload: Any) -> None:
    message: dict[str, Any] = {"type": type_, "payload": payload}
    if page:
        message = {"type": type_, "direction": "reply", **payload}
    if not told.get("noise"):
        put(json.dumps(message))
        return
    put("")
    put("loading plugins ...")
    put("{not: 'a message'")
    loose = "{" + ", ".join(f"{k}: {json.dumps(v)}" for k, v in message.items()) + ",}"
    put(f"2026-01-01 INFO  {loose}  // JSON5")


def matches(what: str, type_: str, rows: int) -> bool:
    overrides = told.get(what)
    return bool(overrides) and overrides["at"] == type_ and rows >= overrides.get("after", 0)


def main() -> None:
    sys.stderr.write("x" * int(told.get("stderr", 0)))
    sys.stderr.flush()
    counts = {"received": 0, "skipped": 0, "success": 0, "failed": 0}
    path = told.get("sink", "").replace("{pid}", str(os.getpid()))
    sink = open(path, "a") if path else None  # noqa: SIM115
    for line in iter(sys.stdin.readline, ""):
        if sink:
            sink.write(line)
            sink.flush()
        message = json.loads(line)
        type_ = message["type"]
        if told.get("echo"):
            say("log", level="debug", message=f"Received message {type_}", params=[message])
        if type_ == "row":
            counts["received"] += 1
        if matches("die", type_, counts["received"]):
            sys.stderr.write("the disk is full\n")
            sys.stderr.flush()
            os._exit(told["die"].get("code", 3))
        if matches("halt", type_, counts["received"]):
            told["halt"]["at"] = "never again"
            status = told["halt"].get("status", "error")
            say("halt", message="quota", data={"n": 2}, **({"status": status} if status else {}))
            continue
        if told.get("silent") == type_:
            continue
        if type_ == "row" and counts["received"] == told.get("deaf"):
            time.sleep(600)
        if type_ == "describe":
            credentials = told.get("credentials", ANY)
            if page:
                say("connection-spec", credentialsSchema=credentials)
            else:
                roles = told.get("roles", ["destination"])
                say("spec", description="stub", roles=roles, connectionCredentials=credentials)
        elif type_ == "describe-streams":
            names = told.get("streams", ["contacts"])
            given = message.get("payload", {}).get("credentials")
            if given == {"$empty": True} and "anonymous" in told:
                names = told["anonymous"]
            if names is None:
                say("halt", status="error", message="no credentials")
                continue
            one = {"rowType": told.get("row_type", ANY), "streamOptions": told.get("options")}
            streams = [{"name": n, **{k: v for k, v in one.items() if v}} for n in names]
            say(
                "streams-spec" if page else "stream-spec",
                defaultStream=(names or ["none"])[0],
                streams=streams,
            )
        elif type_ == "row":
            id_ = message["payload"]["row"].get("id")
            kind = "failed" if id_ in told.get("fail", ()) else "success"
            counts["skipped" if id_ in told.get("skip", ()) else kind] += 1
            if told.get("log"):
                say("log", level="info", message="row", params=[id_, {"k": 1}])
        elif type_ == "end-stream":
            result = told.get("result", counts)
            say("stream-result", **result)
            if "exit" in told:
                sys.exit(told["exit"])


main()
