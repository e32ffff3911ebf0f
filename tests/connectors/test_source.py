"""The facade of the source role, over the stub source: a real process, no network."""

import json
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from penstock.connectors.launch import connect
from penstock.connectors.resolve import resolve
from penstock.connectors.source import SourceConnector
from penstock.errors import ConfigError, PenstockError, SourceError
from penstock.model.events import Batch, ConnectorExited, Event, LogEvent
from penstock.protocols.reading import ReadRequest, StreamOverrides
from penstock.runtimes.contract import ConnectionStats, RunTimeouts
from penstock.runtimes.masking import Masker
from penstock.runtimes.process import ProcessRuntime

STUB = Path(__file__).parents[1] / "stubs" / "stub_source.py"
SECRET = "s3cr3t-k3y"
METADATA = "Metadata-Version: 2.1\nName: airbyte-source-w\nVersion: 1.0\n"
WHEEL = "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
POINTS = "[console_scripts]\nsource-w = airbyte_source_w:main\n"


def stub(tmp_path: Path, log: list[Event] | None = None, **options: object) -> SourceConnector:
    words = f"airbyte:{sys.executable} {STUB} --with '{json.dumps(options)}'"
    heard = [] if log is None else log
    return resolve(SourceConnector, words, tmp_path / "connectors", log=heard.append, base=tmp_path)


def test_spec_check_discover_and_read_of_a_command(tmp_path: Path) -> None:
    source = stub(tmp_path, scenario="basic")
    assert source.spec().config_schema["type"] == "object"
    assert source.check({}).succeeded
    catalog = source.discover({})
    assert [s.id.name for s in catalog.streams] == ["s0", "s1"]
    streams = tuple(source.protocol.source.configure(s, StreamOverrides()) for s in catalog.streams)
    events = list(source.read(ReadRequest(config={}, streams=streams)))
    assert sum(len(e.bodies) for e in events if isinstance(e, Batch)) == 200
    assert isinstance(events[-1], ConnectorExited) and events[-1].code == 0
    assert source.describe() == {
        "connector": source.ref.text,
        "version": None,
        "path": sys.executable,
        "lock": None,
    }


def test_check_that_fails_with_exit_0_is_a_failure(tmp_path: Path) -> None:
    result = stub(tmp_path, scenario="check_failed").check({})
    assert not result.succeeded
    assert result.message


def test_config_is_validated_before_the_connector_is_asked(tmp_path: Path) -> None:
    journal = tmp_path / "journal"
    source = stub(tmp_path, scenario="basic", journal=str(journal))
    with pytest.raises(ConfigError) as caught:
        source.check({"records": "many"})
    assert any("records" in p for p in caught.value.problems)
    asked = [json.loads(line)["command"] for line in journal.read_text().splitlines()]
    assert asked == ["spec"]


def test_spec_is_asked_once_a_facade_and_not_stored_for_a_local_command(tmp_path: Path) -> None:
    journal = tmp_path / "journal"
    for _ in range(2):
        source = stub(tmp_path, scenario="basic", journal=str(journal))
        source.spec()
        source.spec()
    assert len(journal.read_text().splitlines()) == 2


def test_l10_what_the_connector_prints_is_masked(tmp_path: Path) -> None:
    heard: list[Event] = []
    source = stub(tmp_path, heard, scenario="leak")
    assert source.secrets({"api_key": SECRET}) == [SECRET]
    catalog = source.discover({"api_key": SECRET})
    source.check({"api_key": SECRET})
    assert SECRET not in repr(heard)
    lines: list[str] = []
    streams = tuple(source.protocol.source.configure(s, StreamOverrides()) for s in catalog.streams)
    connection = connect(source.launch(), Masker([SECRET]), ConnectionStats(), stderr=lines.append)
    list(connection.read(ReadRequest(config={"api_key": SECRET}, streams=streams)))
    assert any("****" in line for line in lines)
    assert SECRET not in "".join(lines)


def script(tmp_path: Path, body: str) -> Path:
    file = tmp_path / "source"
    file.write_text(f"#!{sys.executable}\nimport json, sys, os\n{body}\n")
    file.chmod(0o755)
    return file


def test_l10_errors_and_answers_are_masked(tmp_path: Path) -> None:
    script(
        tmp_path,
        "if sys.argv[1] == 'spec':\n"
        "    print(json.dumps({'type': 'SPEC', 'spec': {'connectionSpecification': {'type':"
        " 'object', 'properties': {'key': {'type': 'string', 'airbyte_secret': True}}}}}))\n"
        "else:\n"
        "    key = json.load(open(sys.argv[3]))['key']\n"
        "    print(json.dumps({'type': 'TRACE', 'trace': {'type': 'ERROR', 'emitted_at': 1,"
        " 'error': {'message': 'bad ' + key, 'stack_trace': key}}}))\n"
        "    sys.stderr.write(key)\n"
        "    if sys.argv[1] == 'check':\n"
        "        print(json.dumps({'type': 'CONNECTION_STATUS', 'connectionStatus':"
        " {'status': 'FAILED', 'message': 'wrong key ' + key}}))\n"
        "    sys.exit(1)",
    )
    heard: list[Event] = []
    source = resolve(SourceConnector, "airbyte:./source", tmp_path, log=heard.append, base=tmp_path)
    assert source.check({"key": SECRET}).message == "wrong key ****"
    with pytest.raises(SourceError) as caught:
        source.discover({"key": SECRET})
    assert "bad ****" in str(caught.value)
    assert SECRET not in json.dumps(caught.value.as_dict())
    assert SECRET not in repr(heard)
    assert LogEvent("INFO", "****") in heard


def test_given_variables_are_handed_on_by_name_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script(tmp_path, "sys.stdout.write(repr(sorted(k for k in os.environ if 'TOKEN' in k)))")
    monkeypatch.setenv("MY_TOKEN", SECRET)
    monkeypatch.setenv("OTHER_TOKEN", SECRET)
    source = resolve(
        SourceConnector, "airbyte:./source", tmp_path, base=tmp_path, env_keys=["MY_TOKEN"]
    )
    assert SECRET not in repr(source.launch())
    with ProcessRuntime.of(source.launch(), Masker()).open([], RunTimeouts()) as channel:
        assert channel.read(20) == b"['MY_TOKEN']"


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("airbyte:./nothing-here", "connector.not_found"),
        ("airbyte:no-such-command --x", "connector.not_found"),
        ("parquet:./lake", "connector.not_a_source"),
    ],
)
def test_what_cannot_be_a_source(tmp_path: Path, text: str, code: str) -> None:
    with pytest.raises(PenstockError) as caught:
        resolve(SourceConnector, text, tmp_path, base=tmp_path).spec()
    assert caught.value.code == code
    assert caught.value.hint


@pytest.mark.network
def test_spec_of_an_installed_connector_is_stored_with_its_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A spec never changes for a lock."""
    wheels = tmp_path / "wheels"
    wheels.mkdir()
    monkeypatch.setenv("UV_NO_INDEX", "1")
    monkeypatch.setenv("UV_FIND_LINKS", str(wheels))
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "cache"))
    calls = tmp_path / "calls"
    body = (
        "import json\ndef main():\n"
        f"    open({str(calls)!r}, 'a').write('x')\n"
        "    print(json.dumps({'type': 'SPEC', 'spec': {'connectionSpecification': {},"
        " 'documentationUrl': 'https://d'}}))\n"
    )
    info = "airbyte_source_w-1.0.dist-info"
    with zipfile.ZipFile(wheels / "airbyte_source_w-1.0-py3-none-any.whl", "w") as z:
        z.writestr("airbyte_source_w.py", body)
        z.writestr(
            f"{info}/METADATA", "Metadata-Version: 2.1\nName: airbyte-source-w\nVersion: 1.0\n"
        )
        z.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        z.writestr(
            f"{info}/entry_points.txt", "[console_scripts]\nsource-w = airbyte_source_w:main\n"
        )
        z.writestr(f"{info}/RECORD", "")
    first = resolve(SourceConnector, "airbyte:source-w", tmp_path / "home")
    assert first.spec().documentation_url == "https://d"
    again = resolve(SourceConnector, "airbyte:source-w", tmp_path / "home")
    assert again.spec() == first.spec()
    assert calls.read_text() == "x"
    stored = Path(first.describe()["path"]) / "spec.json"
    stored.write_text("{")
    assert resolve(SourceConnector, "airbyte:source-w", tmp_path / "home").spec() == first.spec()
    assert first.describe()["version"] == "1.0"


@pytest.mark.network
@pytest.mark.parametrize(
    ("reference", "config", "streams"),
    [
        ("airbyte:source-faker@7.2.1", {"count": 20}, ["products", "users", "purchases"]),
        (
            "airbyte:source-hardcoded-records@0.0.48",
            {"count": 5},
            ["products", "customers", "dummy_fields"],
        ),
    ],
)
def test_real_connectors_install_and_answer(
    connector_environments: Path, reference: str, config: dict[str, object], streams: list[str]
) -> None:
    source = resolve(SourceConnector, reference, connector_environments)
    assert source.spec().config_schema["properties"]["count"]["type"] == "integer"
    assert source.check(config).succeeded
    with pytest.raises(ConfigError):
        source.check({"count": 0})
    catalog = source.discover(config)
    assert [s.id.name for s in catalog.streams] == streams
    configured = source.protocol.source.configure(catalog.streams[1], StreamOverrides())
    events = list(source.read(ReadRequest(config=config, streams=(configured,))))
    rows = sum(len(e.bodies) for e in events if isinstance(e, Batch))
    assert rows == config["count"]
    assert isinstance(events[-1], ConnectorExited) and events[-1].code == 0


@pytest.mark.network
def test_wrong_name_in_the_registry(tmp_path: Path) -> None:
    with pytest.raises(SourceError) as caught:
        resolve(SourceConnector, "airbyte:faker", tmp_path / "connectors")
    assert caught.value.code == "connector.not_found"
    assert "airbyte-faker" in str(caught.value)
    assert caught.value.hint == "did you mean airbyte:source-faker ?"


def test_facade_starts_light() -> None:
    code = (
        "import sys, penstock.connectors.source\n"
        "print([m for m in ('sqlalchemy','typer','rich','pyspark','yaml','duckdb')"
        " if m in sys.modules])"
    )
    assert subprocess.check_output([sys.executable, "-c", code], text=True) == "[]\n"
