"""A protocol is one folder: a fifth one is put into an installed tree, nothing else is edited, and
every part of the command line knows it. The folder is written from ``protocols.contract`` alone."""

from pathlib import Path

import pytest

import penstock
from installed_copy import InstalledCopy

SPEC = """
from typing import Annotated

from penstock.config.protocol_spec import ProtocolSpec, ServeSpec
from penstock.config.sections import Section, key


class EchoKeys(Section, frozen=True, kw_only=True):
    shout: Annotated[bool, key("Say it loud.")] = False


SPEC = ProtocolSpec(
    name="echo",
    source="an Echo source",
    destination="an Echo destination",
    sources=("voice-",),
    destinations=("ear-",),
    known=("voice-hello",),
    source_keys=EchoKeys,
    served=ServeSpec(verb="target", on_data_error="fail"),
)
"""

PACKAGE = """
import json

from penstock.codec.json_schema import SchemaDialect
from penstock.model.catalog import (
    Catalog, CheckResult, ConfiguredStream, ConnectorSpec, DestinationSyncMode, Stream, StreamId,
    SyncMode,
)
from penstock.model.events import Batch, ConnectorExited
from penstock.model.types import NEUTRAL_METADATA, ChangeWords
from penstock.protocols.stdio.connect import connect_lines


def said(runtime, word, timeouts):
    with runtime.open([word], timeouts) as channel:
        text = b"".join(iter(lambda: channel.read(10) or b"", b""))
        return text.splitlines(), channel.wait(10)


class Source:
    def spec(self, runtime, timeouts, log):
        (line,), _ = said(runtime, "spec", timeouts)
        return ConnectorSpec(protocol="echo", config_schema=json.loads(line))

    def check(self, runtime, config, timeouts, log):
        return CheckResult(said(runtime, "check", timeouts)[1] == 0)

    def discover(self, runtime, config, timeouts, log):
        (name,), _ = said(runtime, "discover", timeouts)
        schema = {"type": "object", "properties": {"said": {"type": "string"}}}
        return Catalog((Stream(id=StreamId(None, name.decode()), json_schema=schema),))

    def configure(self, stream, wish):
        return ConfiguredStream(
            stream=stream, sync_mode=SyncMode.full_refresh,
            destination_sync_mode=DestinationSyncMode.overwrite,
        )

    def read(self, runtime, request):
        bodies, code = said(runtime, "read", request.timeouts)
        yield Batch(request.streams[0].id, bodies, [0] * len(bodies))
        yield ConnectorExited(code)


class State:
    def called(self, names):
        return self

    reading = called

    def names_of(self, stream):
        return ()

    def splits(self, states, streams):
        return True

    def merge(self, saved, new):
        return [*saved, *new]

    def without(self, states, streams):
        return list(states)

    within = without

    def versions(self, states, stream):
        return frozenset()

    def describe(self, states):
        return {"type": "echo", "streams": [], "shared": None}


class Package:
    name = "echo"
    source, state, schema = Source(), State(), SchemaDialect()
    destination = transform = manifest = sharding = undiscovered = None
    deleted_at_field = log_cursor_prefix = None
    columnar = keeps_undeclared = False
    metadata_names, change_words = NEUTRAL_METADATA, ChangeWords()
    secret_word = "secret"

    def connect(self, launch, secrets, stats, *, stderr=None, keys=None):
        return connect_lines(self, launch, secrets, stats, stderr)

    def command_name(self, name):
        return name

    def package_names(self, name):
        return (name,)

    script_names = package_names


PACKAGE = Package()
"""

SERVE = """
STATE = "{}"


def about(version, config_schema):
    return {"echo": version}
"""

CONNECTOR = """#!/bin/sh
case "$1" in
  spec) echo '{"type": "object", "properties": {"tone": {"type": "string"}}}' ;;
  discover) echo hello ;;
  read) echo '{"said": "hello"}'; echo '{"said": "world"}' ;;
esac
"""

PIPELINE = """pipeline: shop
source:
  use: "echo:./x"
  shout: true
destination:
  use: parquet:./lake
"""


class Installed(InstalledCopy):
    """``penstock`` of a copy of the package, with the folder ``protocols/echo`` in it."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        echo = self.tree / "protocols" / "echo"
        echo.mkdir()
        written = {"__init__": "", "spec": SPEC, "package": PACKAGE, "serve": SERVE}
        for name, text in written.items():
            (echo / f"{name}.py").write_text(text)
        connector = folder / "x"
        connector.write_text(CONNECTOR)
        connector.chmod(0o755)
        (folder / "shop.yml").write_text(PIPELINE)
        (folder / "tap.yml").write_text(PIPELINE.replace("echo:./x", "singer:tap-x"))


@pytest.fixture(scope="module")
def penstock_with_echo(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    return Installed(tmp_path_factory.mktemp("echo"))


def test_a_connector_of_a_new_protocol_is_asked(penstock_with_echo: Installed) -> None:
    ask = penstock_with_echo
    assert "tone" in ask("spec", "echo:./x", "--json")["config_schema"]["properties"]
    assert ask("check", "echo:./x", "--json")["status"] == "succeeded"
    (stream,) = ask("discover", "echo:./x", "--json")["streams"]
    assert stream["name"] == "hello"
    rows = ask("preview", "echo:./x", "--json")["rows"]
    assert [row["said"] for row in rows] == ["hello", "world"]


def test_its_keys_are_the_pipeline_files(penstock_with_echo: Installed) -> None:
    ask = penstock_with_echo
    source = ask("schema")["$defs"]["Source"]["properties"]
    assert source["shout"]["description"] == "Say it loud."
    (stream,) = ask("plan", "shop.yml", "--json")["streams"]
    assert stream["name"] == "hello"
    told = ask("plan", "tap.yml", "--json", code=2)["error"]["message"]
    assert "shout goes with an Echo source (use: echo:NAME)" in told


def test_hints_know_its_names(penstock_with_echo: Installed) -> None:
    ask = penstock_with_echo
    wrong = {
        "ecko:./x": "did you mean echo:./x ?",
        "voice-hello": "did you mean echo:voice-hello ?",
        "echo": "write echo:NAME",
    }
    for written, hint in wrong.items():
        assert ask("spec", written, "--json", code=2)["error"]["hint"] == hint
    ear = ask("discover", "echo:ear-left", "--json", code=2)["error"]
    assert ear["code"] == "connector.not_a_source", "its names tell the role"


def test_it_is_served_as_its_spec_says(penstock_with_echo: Installed) -> None:
    ask = penstock_with_echo
    assert ask("serve", "target", "--as", "echo", "--about") == {"echo": penstock.__version__}
    refused = ask("serve", "destination", "spec", "--as", "echo", "--json", code=2)
    assert "penstock serve destination --as airbyte" in str(refused)
