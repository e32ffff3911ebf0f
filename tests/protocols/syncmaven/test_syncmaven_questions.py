"""The phases in which a connector is asked one question: its environment, its bounds, its answers.

The connector is written from the page ("State management"): it opens the state manager as it
starts, whatever it is then sent.
"""

import os
import stat
import sys
from pathlib import Path

import pytest

from penstock.errors import DestinationError
from penstock.model.events import Event, LogEvent
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
