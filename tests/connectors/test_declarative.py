"""A declarative manifest is a source: ``airbyte:./manifest.yaml``, run by the real CDK."""

import json
import threading
from collections.abc import Generator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from penstock.connectors.resolve import resolve
from penstock.connectors.source import SourceConnector
from penstock.errors import ConfigError
from penstock.model.catalog import StreamId
from penstock.model.events import Batch, ConnectorExited
from penstock.protocols.reading import ReadRequest, StreamOverrides

MANIFEST = """\
version: "6.0.0"
type: DeclarativeSource
check: { type: CheckStream, stream_names: [items] }
spec:
  type: Spec
  connection_specification:
    type: object
    required: [base_url]
    properties:
      base_url: { type: string }
      api_key: { type: string, airbyte_secret: true }
streams:
  - type: DeclarativeStream
    name: items
    primary_key: [id]
    retriever:
      type: SimpleRetriever
      requester:
        type: HttpRequester
        url_base: "{{ config['base_url'] }}"
        path: /items
        http_method: GET
      record_selector:
        type: RecordSelector
        extractor: { type: DpathExtractor, field_path: [items] }
    TRANSFORMS
    schema_loader:
      type: InlineSchemaLoader
      schema: { type: object, properties: { id: { type: integer }, name: { type: string } } }
"""
COMPONENTS = """\
from dataclasses import dataclass
from airbyte_cdk.sources.declarative.transformations import RecordTransformation

@dataclass
class Shout(RecordTransformation):
    def transform(self, record, config=None, stream_state=None, stream_slice=None):
        record["name"] = record["name"].upper()
"""
SHOUT = "transformations: [{ type: CustomTransformation, class_name: components.Shout }]"


@pytest.fixture
def api() -> Generator[str]:
    class Answer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = json.dumps({"items": [{"id": 1, "name": "a"}, {"id": 2, "name": "b"}]}).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *words: object) -> None:
            del words

    server = ThreadingHTTPServer(("127.0.0.1", 0), Answer)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()


def rows(source: SourceConnector, config: dict[str, str]) -> list[dict[str, object]]:
    streams = tuple(
        source.protocol.source.configure(s, StreamOverrides())
        for s in source.discover(config).streams
    )
    events = list(source.read(ReadRequest(config=config, streams=streams)))
    assert isinstance(events[-1], ConnectorExited) and events[-1].code == 0, events
    return [json.loads(bytes(b)) for e in events if isinstance(e, Batch) for b in e.bodies]


@pytest.mark.network
def test_a_manifest_is_asked_and_read_and_components_beside_it_are_used(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, api: str
) -> None:
    connectors = tmp_path_factory.mktemp("connectors")
    manifest = tmp_path / "manifest.yaml"
    manifest.write_text(MANIFEST.replace("    TRANSFORMS\n", ""))
    config = {"base_url": api, "api_key": "s3cr3t-k3y"}
    source = resolve(SourceConnector, "airbyte:./manifest.yaml", connectors, base=tmp_path)
    assert source.spec().config_schema["required"] == ["base_url"]
    assert "s3cr3t-k3y" in source.secrets(config)
    with pytest.raises(ConfigError):
        source.check({})
    assert source.check(config).succeeded
    stream = source.discover(config).get(StreamId(None, "items"))
    assert stream is not None and stream.source_defined_primary_key == (("id",),)
    assert rows(source, config) == [{"id": 1, "name": "a"}, {"id": 2, "name": "b"}]

    manifest.write_text(MANIFEST.replace("TRANSFORMS", SHOUT))
    (tmp_path / "components.py").write_text(COMPONENTS)
    source = resolve(SourceConnector, "airbyte:./manifest.yaml", connectors, base=tmp_path)
    assert rows(source, config) == [{"id": 1, "name": "A"}, {"id": 2, "name": "B"}]

    with pytest.raises(ConfigError, match="there is no file") as caught:
        resolve(SourceConnector, "airbyte:./other.yaml", connectors, base=tmp_path)
    assert caught.value.code == "connector.not_found"
