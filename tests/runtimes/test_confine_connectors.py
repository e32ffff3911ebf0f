"""L10 through the connectors: every question to one, and every run of it, is under what the user
allows; what cannot be enforced is refused before it starts, and ``plan`` says so."""

import json
import sys
from pathlib import Path

import msgspec
import pytest

from penstock.config.load import parse_pipeline
from penstock.config.sections import (
    EnvironmentPermissions,
    FilesystemPermissions,
    Limits,
    NetworkPermissions,
    Permissions,
)
from penstock.connectors.destination import DestinationConnector
from penstock.connectors.launch import Launch, connect
from penstock.connectors.resolve import resolve
from penstock.connectors.source import SourceConnector
from penstock.engine.inspect.preview import preview
from penstock.engine.plan.unsupported import permissions_asked
from penstock.errors import ConfigError, DestinationError, SourceError
from penstock.model.events import Batch
from penstock.protocols.reading import ReadRequest, StreamOverrides
from penstock.runtimes.contract import ConnectionStats, RunTimeouts
from penstock.runtimes.limits import no_namespace
from penstock.runtimes.masking import Masker
from penstock.runtimes.process import ProcessRuntime

STUB = Path(__file__).parents[1] / "stubs" / "stub_source.py"
MB = 1024**2
LIMIT = Limits(max_memory=96 * MB)
BIG = [{"records": {"stream": "s0", "to": 5}}, {"big": {"stream": "s0", "bytes": 400 * MB}}]

linux = pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="memory is bounded on Linux only"
)


def stub(
    tmp_path: Path,
    permissions: Permissions | None = None,
    limits: Limits | None = None,
    **options: object,
) -> SourceConnector:
    words = f"airbyte:{sys.executable} {STUB} --with '{json.dumps(options)}'"
    return resolve(
        SourceConnector,
        words,
        tmp_path / "connectors",
        base=tmp_path,
        permissions=permissions,
        limits=limits,
    )


def read_all(source: SourceConnector) -> int:
    catalog = source.discover({})
    streams = tuple(source.protocol.source.configure(s, StreamOverrides()) for s in catalog.streams)
    # As a lane's process gets it.
    launch = msgspec.convert(msgspec.to_builtins(source.launch()), Launch)
    request = ReadRequest(config={}, streams=streams)
    events = connect(launch, Masker(), ConnectionStats()).read(request)
    return sum(len(e.bodies) for e in events if isinstance(e, Batch))


@linux
def test_a_source_within_its_limit_reads_as_ever(tmp_path: Path) -> None:
    assert read_all(stub(tmp_path, limits=LIMIT, scenario="basic")) == 200


@linux
def test_a_source_beyond_its_limit_fails_in_its_read_and_in_its_preview(tmp_path: Path) -> None:
    def previewed(source: SourceConnector) -> object:
        return preview(source, {}, "s0", 100)

    for ask in (read_all, previewed):
        with pytest.raises(SourceError) as caught:
            ask(stub(tmp_path, limits=LIMIT, steps=BIG))
        assert caught.value.code == "source.memory"
        assert "96.0 MB" in caught.value.message


@linux
def test_a_destination_beyond_its_limit_is_a_destinations_failure(tmp_path: Path) -> None:
    file = tmp_path / "destination"
    file.write_text(f"#!{sys.executable}\nheld = b'x' * ({400 * MB})\nimport time; time.sleep(60)")
    file.chmod(0o755)
    told = resolve(
        DestinationConnector, "airbyte:./destination", tmp_path, base=tmp_path, limits=LIMIT
    )
    with pytest.raises(DestinationError) as caught:
        told.spec()
    assert caught.value.code == "destination.memory"


def test_what_cannot_be_enforced_is_refused_before_any_question(tmp_path: Path) -> None:
    journal = tmp_path / "journal"
    said = Permissions(fs=FilesystemPermissions(allowed_preopens=("data",)))
    source = stub(tmp_path, said, journal=str(journal))
    for ask in (source.spec, lambda: source.check({}), lambda: source.discover({})):
        with pytest.raises(ConfigError) as caught:
            ask()
        assert caught.value.code == "config.unsupported"
    assert not journal.exists()


def test_variables_of_a_connector_are_those_allowed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("MY_TOKEN", "OTHER_TOKEN", "THIRD_TOKEN"):
        monkeypatch.setenv(name, "x")
    file = tmp_path / "source"
    file.write_text("#!/bin/sh\nenv | cut -d= -f1 | grep TOKEN | sort\n")
    file.chmod(0o755)

    def seen(allowed: tuple[str, ...] | None) -> list[str]:
        said = Permissions(env=EnvironmentPermissions(allowed_vars=allowed))
        source = resolve(
            SourceConnector,
            "airbyte:./source",
            tmp_path,
            base=tmp_path,
            env_keys=["MY_TOKEN"],
            permissions=said,
        )
        with ProcessRuntime.of(source.launch(), Masker()).open([], RunTimeouts()) as channel:
            return (channel.read(20) or b"").decode().split()

    assert seen(None) == ["MY_TOKEN"]
    assert seen(()) == [], "a variable that the command hands on is narrowed too"
    assert seen(("OTHER_TOKEN",)) == ["OTHER_TOKEN"]


def test_a_source_without_a_network_reads_what_needs_none(tmp_path: Path) -> None:
    if (why := no_namespace()) is not None:
        pytest.skip(f"this machine gives no network namespace: {why}")
    said = Permissions(network=NetworkPermissions(allowed_hosts=()))
    assert read_all(stub(tmp_path, said, scenario="basic")) == 200


# -- plan

ENDS = """
pipeline: p
source: {use: %s, permissions: {fs: {allowed_preopens: []}}, limits: {timeout_seconds: 5}}
destination:
  use: %s
  permissions: {network: {allowed_hosts: [db.internal]}, env: {allowed_vars: [A]}}
"""


def test_plan_shows_both_ends_and_what_of_them_is_refused() -> None:
    pipeline = parse_pipeline(ENDS % ("airbyte:source-x", "singer:target-x"), {})
    permissions, limits, problems = permissions_asked(pipeline)
    assert permissions == {
        "source": {"fs.allowed_preopens": []},
        "destination": {"network.allowed_hosts": ["db.internal"], "env.allowed_vars": ["A"]},
    }
    assert limits == {"source": {"timeout_seconds": 5}}
    assert [p.split(" cannot be enforced")[0] for p in problems] == [
        "source.permissions.fs.allowed_preopens",
        "destination.permissions.network.allowed_hosts",
    ]


def test_plan_leaves_tables_and_components_to_others() -> None:
    for use in ("parquet:./lake", "rapidbyte:./dest.wasm"):
        pipeline = parse_pipeline(ENDS % ("airbyte:source-x", use), {})
        problems = permissions_asked(pipeline)[2]
        assert [p.partition(".")[0] for p in problems] == ["source"]
