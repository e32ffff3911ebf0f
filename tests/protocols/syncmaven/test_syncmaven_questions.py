"""The phases in which a connector is asked one question: its environment, its bounds, its answers.

The connector is written from the page ("State management"): it opens the state manager as it
starts, whatever it is then sent.
"""

import json
import os
import stat
import sys
from pathlib import Path
from typing import Any

import pytest
from test_syncmaven_write import USERS, stream

from penstock.errors import DestinationError
from penstock.model.events import Event, LogEvent
from penstock.protocols.syncmaven.destination import SyncmavenDestination
from penstock.protocols.syncmaven.enrichment import SyncmavenEnrichment
from penstock.protocols.syncmaven.host import Host
from penstock.protocols.syncmaven.probe import (
    DESTINATION,
    ENRICHMENT,
    ProbedRole,
    ask_spec,
    ask_streams,
)
from penstock.runtimes.contract import RunTimeouts
from penstock.runtimes.masking import Masker
from penstock.runtimes.process import ProcessRuntime

CONNECTOR = """
import json, os, sys, urllib.request

def call(method, **body):
    head = {"Authorization": "Bearer " + os.environ["RPC_SECRET"]}
    url = os.environ["RPC_URL"] + "/" + method
    asked = urllib.request.Request(url, json.dumps(body).encode(), head, method="POST")
    with urllib.request.urlopen(asked, timeout=10) as answer:
        return json.loads(answer.read())

before = call("state.get", key=["syncId=1", "type=cursor"])
call("state.set", key=["syncId=1", "type=cursor"], value={"n": 1})
after = call("state.get", key=["syncId=1", "type=cursor"])
line = json.loads(sys.stdin.readline())
schema = {"$schema": "http://json-schema.org/draft-07/schema#", "type": "object"}
print(json.dumps({"type": "log", "payload": {"level": "info",
      "message": json.dumps([before, after, os.environ["RPC_SECRET"]])}}))
kind = {"describe": "spec", "describe-streams": "stream-spec"}[line["type"]]
payload = {"roles": ["destination", "enrichment"], "description": "d",
           "connectionCredentials": schema}
if kind == "stream-spec":
    payload = {"roles": ["destination"], "defaultStream": "users",
               "streams": [{"name": "users", "rowType": schema}]}
print(json.dumps({"type": kind, "payload": payload}), flush=True)
"""
BOUNDS = RunTimeouts(start=20, heartbeat=20, stop=2)


@pytest.fixture
def host(tmp_path: Path) -> Host:
    file = tmp_path / "connector"
    file.write_text(f"#!{sys.executable}\n{CONNECTOR}")
    file.chmod(file.stat().st_mode | stat.S_IXUSR)
    kept = {"PATH": os.environ["PATH"]}
    return Host(
        lambda env: ProcessRuntime([str(file)], env={**kept, **env}, role="destination"),
        masker=Masker(),
    )


@pytest.mark.parametrize("party", [DESTINATION, ENRICHMENT])
def test_a_connector_that_is_described_is_served_a_state(
    host: Host, party: ProbedRole[DestinationError]
) -> None:
    said: list[Event] = []
    assert ask_spec(host, BOUNDS, said.append, party).roles == ("destination", "enrichment")
    (line,) = [event.message for event in said if isinstance(event, LogEvent)]
    assert line.startswith('[{}, {"value": {"n": 1}}, ')


def test_each_question_has_an_empty_state_of_its_own(host: Host) -> None:
    for _ in range(2):
        said: list[Event] = []
        assert ask_streams(host, {"apiKey": "k"}, BOUNDS, said.append).default == "users"
        (line,) = [event.message for event in said if isinstance(event, LogEvent)]
        assert line.startswith('[{}, {"value": {"n": 1}}, ')


# -- a Zod schema, written out (the page, `spec`: "maybe a Zod-schema or JSON-schema")

_NEVER = {"_def": {"typeName": "ZodNever"}, "~standard": {"version": 1, "vendor": "zod"}}
_TEXT = {"_def": {"checks": [], "typeName": "ZodString", "coerce": False}}
ZOD_3 = {
    "_def": {"unknownKeys": "strip", "catchall": _NEVER, "typeName": "ZodObject"},
    "~standard": {"version": 1, "vendor": "zod"},
    "_cached": None,
}
_TEXT_4 = {"def": {"type": "string"}, "type": "string"}
ZOD_4: dict[str, Any] = {
    "def": {"type": "object", "shape": {"apiKey": _TEXT_4}}, "type": "object",
}  # fmt: skip
UNION_4: dict[str, Any] = {"def": {"type": "union", "options": [ZOD_4]}, "type": "union"}
DESCRIBED = """
import json, sys
schema = json.loads(sys.argv[1])
streams = [{"name": "users", "rowType": schema}]
said = {"describe": {"type": "connection-spec", "credentialsSchema": schema},
        "describe-streams": {"type": "streams-spec", "streams": streams}}
print(json.dumps(said[json.loads(sys.stdin.readline())["type"]]), flush=True)
"""


def described_by(schema: dict[str, Any]) -> Host:
    command = [sys.executable, "-c", DESCRIBED, json.dumps(schema)]
    return Host(lambda env: ProcessRuntime(command, role="destination"))


@pytest.mark.parametrize(
    "schema", [ZOD_3, ZOD_4, UNION_4, {"apiKey": _TEXT}, {"apiKey": _TEXT_4, "user": _TEXT_4}]
)
def test_a_zod_schema_that_was_written_out_is_recognised(schema: dict[str, Any]) -> None:
    """Issue 35, A8: its rules were taken for those of a JSON Schema, so that a union was refused as
    no type, and an object took anything without a word."""
    said: list[Event] = []
    spec = SyncmavenDestination().spec(described_by(schema), BOUNDS, said.append)
    assert (spec.config_schema, spec.abilities["streams"]["streams"][0]["row_type"]) == ({}, None)
    (hint,) = [e.message for e in said if isinstance(e, LogEvent) and "Zod" in e.message]
    assert "z.toJSONSchema" in hint
    notes = SyncmavenDestination().fidelity(spec, "singer", [stream(USERS)], {})
    assert [n.split(" describes ")[0] for n in notes if "Zod" in n] == [
        "the destination",
        "users: 'users'",
    ]
    said.clear()
    assert SyncmavenEnrichment().spec(described_by(schema), BOUNDS, said.append).config_schema == {}
    assert [e for e in said if isinstance(e, LogEvent) and "Zod" in e.message]


@pytest.mark.parametrize(
    "properties", [{"def": {"type": "string"}, "type": {"type": "string"}}, {"_def": {}}, {}]
)
def test_a_json_schema_is_none_of_zod_whatever_its_properties_are_called(
    properties: dict[str, Any],
) -> None:
    schema = {"type": "object", "properties": properties}
    for given in (schema, {"properties": properties}, {}, {"definitions": properties}):
        said: list[Event] = []
        spec = SyncmavenDestination().spec(described_by(given), BOUNDS, said.append)
        assert spec.config_schema == given and "zod" not in spec.abilities
