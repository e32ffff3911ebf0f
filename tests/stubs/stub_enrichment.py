"""A Syncmaven enrichment that keeps what it hears, and misbehaves as its one argument (JSON) says.

It adds ``company`` and ``visits`` to a row. ``sink``: file for every line that it reads, each with
its process id. ``dialect``: code (default), page, or heading (the page's, whose spec has the name
in its heading). ``roles``, ``credentials``: of its spec.
``answers``: by the row's id, what it answers in place of that: a row, a list of rows, null; or
{"payload": {...}} for a whole payload. ``halt``: {"at": message type, "after": requests, "status"}.
``die``: {"at", "after", "code"}. ``silent``: requests after which it answers none. ``twice``:
requests after which it answers each one twice. ``early``: it answers before it is asked.
``between``: lines of noise before each answer. ``slow``: {id: seconds}.
"""

import json
import os
import sys
import time
from typing import Any

told: dict[str, Any] = json.loads(sys.argv[1]) if len(sys.argv) > 1 else {}
page = told.get("dialect") in ("page", "heading")
DRAFT = {"$schema": "http://json-schema.org/draft-07/schema#"}
ANY = {"type": "object", "properties": {}, "additionalProperties": True, **DRAFT}


def say(type_: str, payload: dict[str, Any]) -> None:
    message: dict[str, Any] = {"type": type_, "payload": payload}
    if page:
        message = {"type": type_, "direction": "reply", **payload}
    for text in told.get("between", ()):
        sys.stdout.write(text + "\n")
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


def matches(what: str, type_: str, asked: int) -> bool:
    overrides = told.get(what)
    return bool(overrides) and overrides["at"] == type_ and asked >= overrides.get("after", 0)


def answer(row: dict[str, Any]) -> dict[str, Any]:
    own = told.get("answers", {})
    key = str(row.get("id", row.get("seq")))
    if key in own:
        found = own[key]
        whole = isinstance(found, dict) and found.keys() == {"payload"}
        return found["payload"] if whole else {"row": found}
    return {"row": {**row, "company": f"company {key}", "visits": int(key or 0)}}


def main() -> None:
    asked = 0
    for line in iter(sys.stdin.readline, ""):
        message = json.loads(line)
        type_ = message["type"]
        if "sink" in told:
            with open(told["sink"], "a") as sink:
                sink.write(json.dumps({"pid": os.getpid(), **message}) + "\n")
        asked += type_ == "enrichment-request"
        if matches("die", type_, asked):
            sys.stderr.write("the disk is full\n")
            sys.stderr.flush()
            os._exit(told["die"].get("code", 3))
        if matches("halt", type_, asked):
            status = told["halt"].get("status", "error")
            say("halt", {"message": "quota", **({"status": status} if status else {})})
            continue
        if type_ == "describe":
            credentials = told.get("credentials", ANY)
            if page:
                name = "spec" if told["dialect"] == "heading" else "connection-spec"
                say(name, {"credentialsSchema": credentials})
            else:
                roles = told.get("roles", ["enrichment"])
                say("spec", {"roles": roles, "connectionCredentials": credentials})
        elif type_ in ("enrichment-connect", "start-enrichment"):
            known = "start-enrichment" if page else "enrichment-connect"
            assert type_ == known, f"{type_} to one that speaks the other dialect"
            if told.get("early"):
                say("enrichment-response", {"row": {}})
        elif type_ == "enrichment-request":
            row = message["payload"]["row"]
            if asked > told.get("silent", asked):
                continue
            time.sleep(told.get("slow", {}).get(str(row.get("id")), 0))
            for _ in range(2 if asked > told.get("twice", asked) else 1):
                say("enrichment-reply" if page else "enrichment-response", answer(row))


main()
