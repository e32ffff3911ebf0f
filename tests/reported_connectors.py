"""Connectors that behave as public reports say: an Airbyte source and a Singer tap that send what a
test gives them, in the order given, and read neither catalog nor state."""

from collections.abc import Sequence
from typing import Any

# ``WORLD``: ``streams``, by name what :func:`stream` makes; ``sent``: [stream, record] each, and a
# version as a third; {"state": N}; {"message": any}; {"exit": N}. ``say`` prints a message;
# ``given(option)`` is the JSON in the file of a command line option. States are of each stream, or
# of all where ``scope`` is GLOBAL. What the connector was given as its state is in ``STATE``.
AIRBYTE = """
streams = WORLD["streams"]
def status(name, what):
    say({"type": "TRACE", "trace": {"type": "STREAM_STATUS", "emitted_at": 1.0, "stream_status":
        {"stream_descriptor": {"name": name}, "status": what}}})
def state(number):
    each = [{"stream_descriptor": {"name": n}, "stream_state": {"at": number}} for n in streams]
    if WORLD.get("scope") == "GLOBAL":
        say({"type": "STATE", "state": {"type": "GLOBAL", "global": {
            "shared_state": {"at": number}, "stream_states": each}}})
        return
    for one in each: say({"type": "STATE", "state": {"type": "STREAM", "stream": one}})
if "spec" in sys.argv:
    say({"type": "SPEC", "spec": {"connectionSpecification": {}}})
elif "check" in sys.argv:
    say({"type": "CONNECTION_STATUS", "connectionStatus": {"status": "SUCCEEDED"}})
elif "discover" in sys.argv:
    say({"type": "CATALOG", "catalog": {"streams": [
        {"name": name, "json_schema": s["schema"], "source_defined_primary_key": s["key"],
         "supported_sync_modes": ["full_refresh", "incremental"], "is_resumable": True,
         "source_defined_cursor": s["log"],
         **({"default_cursor_field": s["cursor"]} if s["cursor"] else {})}
        for name, s in streams.items()]}})
else:
    json.dump(given("--state"), open(STATE, "w"))
    for name in streams: status(name, "STARTED")
    for one in WORLD["sent"]:
        if isinstance(one, list):
            say({"type": "RECORD", "record": {"stream": one[0], "data": one[1], "emitted_at": 1}})
        elif "state" in one: state(one["state"])
        elif "message" in one: say(one["message"])
        else: sys.exit(one["exit"])
    state(WORLD.get("last", 99))
    for name in streams: status(name, "COMPLETE")
"""

SINGER = """
streams = WORLD["streams"]
def method(s): return s["method"] or ("LOG_BASED" if s["log"] else "INCREMENTAL")
def keys(s): return [path[-1] for path in s["key"]]
if "--discover" in sys.argv:
    say({"streams": [{"tap_stream_id": name, "stream": name, "schema": s["schema"], "metadata": [
        {"breadcrumb": [], "metadata": {"table-key-properties": keys(s),
            "replication-method": method(s), "forced-replication-method": method(s),
            **({"valid-replication-keys": s["cursor"], "replication-key": s["cursor"][0]}
               if s["cursor"] else {})}}]}
        for name, s in streams.items()]}); sys.exit(0)
if "--about" in sys.argv or "--help" in sys.argv: sys.exit(2)
json.dump(given("--state"), open(STATE, "w"))
def state(number):
    say({"type": "STATE", "value": {"bookmarks": {n: {"at": number} for n in streams}}})
for name, s in streams.items():
    say({"type": "SCHEMA", "stream": name, "schema": s["schema"], "key_properties": keys(s),
         **({"bookmark_properties": s["cursor"]} if s["cursor"] else {})})
for one in WORLD["sent"]:
    if isinstance(one, list):
        say({"type": "RECORD", "stream": one[0], "record": one[1],
             **({"version": one[2]} if len(one) > 2 else {})})
    elif "state" in one: state(one["state"])
    elif "message" in one: say(one["message"])
    else: sys.exit(one["exit"])
state(WORLD.get("last", 99))
"""

BODIES = {"airbyte": AIRBYTE, "singer": SINGER}
MARKS = {"airbyte": "_ab_cdc_deleted_at", "singer": "_sdc_deleted_at"}
POSITIONS = {"airbyte": "_ab_cdc_lsn", "singer": "_sdc_lsn"}
INTEGER = {"type": ["null", "integer"]}
TEXT = {"type": ["null", "string"]}
TIME = {"type": ["null", "string"], "format": "date-time"}
GONE = "2024-05-05T00:00:00Z"


def stream(
    properties: dict[str, Any],
    key: Sequence[str | Sequence[str]] = ("id",),
    cursor: str | None = None,
    *,
    log: bool = False,
    method: str | None = None,
) -> dict[str, Any]:
    """One stream of a connector. ``log``: it is read from a change log; ``method``: of a tap."""
    return {
        "schema": {"type": "object", "properties": properties},
        "key": [[path] if isinstance(path, str) else [*path] for path in key],
        "cursor": [cursor] if cursor else None,
        "log": log,
        "method": method,
    }


def changes(protocol: str, **properties: Any) -> dict[str, Any]:
    """A stream of a change log: `id`, `v`, the position in the log, and the mark of deletes."""
    position, mark = POSITIONS[protocol], MARKS[protocol]
    columns = {"id": INTEGER, "v": TEXT, position: INTEGER, mark: TIME}
    cursor = position if protocol == "airbyte" else None  # a tap's change log names none
    return stream({**columns, **properties}, cursor=cursor, log=True)


def script(protocol: str, world: str, state: str) -> str:
    """A connector's program. ``world``, ``state``: paths of the files ``WORLD`` and ``STATE``."""
    return (
        "import json, sys\n"
        f"WORLD, STATE = json.load(open({world!r})), {state!r}\n"
        "def say(message): print(json.dumps(message), flush=True)\n"
        "def given(option):\n"
        "    if option not in sys.argv: return None\n"
        "    return json.load(open(sys.argv[sys.argv.index(option) + 1]))\n" + BODIES[protocol]
    )
