"""A source of two incremental streams, as an Airbyte source or as a Singer tap, written from the
specifications: ``orders`` with a primary key, ``events`` without one. Python's library only.

    python refresh_source.py airbyte spec|check|discover|read ...
    python refresh_source.py singer [--discover] --config FILE --catalog FILE --state FILE

Config: ``top``: how many rows a stream has; ``gone``: ids that were deleted at the source; ``die``:
exits with code 1 in each stream's place after so many rows, two after a state; ``ping``, ``pong``:
files by which it says, in the middle, that it waits, and is told to go on; ``journal``: a file to
which it adds the state that it was given.
"""

import json
import os
import pathlib
import sys
import time

PROPERTIES = {
    "id": {"type": "integer"},
    "text": {"type": ["null", "string"]},
    "changed": {"type": "integer"},
}
STREAMS = ("orders", "events")


def content(path):
    with open(path) as file:
        return json.load(file)


def put(message):
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


def rows(config, begin):
    for n in range(begin + 1, config["top"] + 1):
        if n not in config.get("gone", ()):
            yield {"id": n, "text": f"as of {config['top']}", "changed": n}


def waits(config):
    if "ping" in config:
        pathlib.Path(config["ping"]).touch()
        until = time.monotonic() + 60
        while not os.path.exists(config["pong"]) and time.monotonic() < until:
            time.sleep(0.05)


def journal(config, given):
    with open(config["journal"], "a") as file:
        file.write(json.dumps(given) + "\n")


def play(config, given, names, record, state):
    """Sends the streams one after the other: a state after each second row and at the end."""
    at = dict(given)
    sent = 0
    for name in names:
        for row in rows(config, given.get(name, 0)):
            record(name, row)
            sent += 1
            if sent == config.get("die"):
                time.sleep(0.5)
                os._exit(1)
            if row["id"] == 4:
                waits(config)
            if row["id"] % 2 == 0:
                at[name] = row["changed"]
                state(name, at)
        at[name] = max(config["top"], at.get(name, 0))
        state(name, at)
        yield name


# -- Airbyte


def airbyte(words):
    options = dict(zip(words[1::2], words[2::2], strict=False))
    config = content(options["--config"]) if "--config" in options else {}
    if words[0] == "spec":
        schema = {"type": "object", "properties": {}, "additionalProperties": True}
        put({"type": "SPEC", "spec": {"connectionSpecification": schema}})
    elif words[0] == "check":
        put({"type": "CONNECTION_STATUS", "connectionStatus": {"status": "SUCCEEDED"}})
    elif words[0] == "discover":
        put({"type": "CATALOG", "catalog": {"streams": [described(name) for name in STREAMS]}})
    else:
        catalog = content(options["--catalog"])
        kept = content(options["--state"]) if "--state" in options else []
        airbyte_read(config, [c["stream"]["name"] for c in catalog["streams"]], kept)


def described(name):
    stream = {
        "name": name,
        "json_schema": {"type": "object", "properties": PROPERTIES},
        "supported_sync_modes": ["full_refresh", "incremental"],
        "source_defined_cursor": True,
        "default_cursor_field": ["changed"],
    }
    return {**stream, "source_defined_primary_key": [["id"]]} if name == "orders" else stream


def airbyte_read(config, names, kept):
    given = {}
    for message in kept:
        of = message["stream"]
        given[of["stream_descriptor"]["name"]] = of["stream_state"]["changed"]
    journal(config, given)

    def record(name, row):
        put({"type": "RECORD", "record": {"stream": name, "data": row, "emitted_at": 1}})

    def state(name, at):
        of = {"stream_descriptor": {"name": name}, "stream_state": {"changed": at[name]}}
        put({"type": "STATE", "state": {"type": "STREAM", "stream": of}})

    def status(name, which):
        ends = {"stream_descriptor": {"name": name}, "status": which}
        trace = {"type": "STREAM_STATUS", "emitted_at": 1, "stream_status": ends}
        put({"type": "TRACE", "trace": trace})

    for name in names:
        status(name, "STARTED")
    for name in play(config, given, names, record, state):
        status(name, "COMPLETE")


# -- Singer


def singer(words):
    options = {w: words[i + 1] for i, w in enumerate(words[:-1]) if w.startswith("--")}
    config = content(options["--config"])
    if "--discover" in words:
        print(json.dumps({"streams": [entry(name) for name in STREAMS]}))
        return
    catalog = content(options["--catalog"])
    chosen = [
        e["tap_stream_id"]
        for e in catalog["streams"]
        if any(m["breadcrumb"] == [] and m["metadata"].get("selected") for m in e["metadata"])
    ]
    kept = content(options["--state"]) if "--state" in options else {}
    given = {n: mark["changed"] for n, mark in kept.get("bookmarks", {}).items()}
    journal(config, given)

    def record(name, row):
        put({"type": "RECORD", "stream": name, "record": row})

    def state(name, at):
        marks = {n: {"changed": value} for n, value in at.items()}
        put({"type": "STATE", "value": {"bookmarks": marks}})

    for name in chosen:
        keys = ["id"] if name == "orders" else []
        schema = {"properties": PROPERTIES}
        put(
            {
                "type": "SCHEMA",
                "stream": name,
                "schema": schema,
                "key_properties": keys,
                "bookmark_properties": ["changed"],
            }
        )
    for _ in play(config, given, chosen, record, state):
        pass


def entry(name):
    keys = ["id"] if name == "orders" else []
    about = {
        "inclusion": "available",
        "table-key-properties": keys,
        "valid-replication-keys": ["changed"],
        "forced-replication-method": "INCREMENTAL",
        "replication-key": "changed",
    }
    return {
        "tap_stream_id": name,
        "stream": name,
        "schema": {"type": "object", "properties": PROPERTIES},
        "key_properties": keys,
        "metadata": [
            {"breadcrumb": [], "metadata": about},
            *(
                {"breadcrumb": ["properties", p], "metadata": {"inclusion": "automatic"}}
                for p in PROPERTIES
            ),
        ],
    }


if __name__ == "__main__":
    {"airbyte": airbyte, "singer": singer}[sys.argv[1]](sys.argv[2:])
