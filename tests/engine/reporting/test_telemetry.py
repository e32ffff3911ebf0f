"""Telemetry: a collector and a lineage server on loopback are told how runs went.

What arrives is decoded by the classes of the OTLP messages; each OpenLineage facet is made anew by
the library's class for the schema that the facet names.
"""

import json
import os
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Iterator
from datetime import datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from openlineage.client import facet_v2
from opentelemetry import trace
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.trace import TracerProvider
from quick_runs import Bench, Silent

from penstock.config.load import load_pipeline
from penstock.engine.reporting import telemetry as module
from penstock.engine.reporting.openlineage import _place, _system, uuid_of
from penstock.engine.run.start import run_pipeline
from penstock.errors import SourceError
from penstock.model.report import Report

pytestmark = pytest.mark.dear

SOURCE = """
schema = {"type": "object", "properties": {
    "Order No": {"type": "integer"},
    "to": {"type": "object", "properties": {"city": {"type": "string"}}}}}
names = ["orders", "visits"]
if "--discover" in sys.argv:
    say({"streams": [{"tap_stream_id": s, "stream": s, "schema": schema,
                      "key_properties": ["Order No"]} for s in names]})
    sys.exit(0)
if "--catalog" not in sys.argv: sys.exit(2)
for s in names:
    say({"type": "SCHEMA", "stream": s, "schema": schema, "key_properties": ["Order No"]})
for n in range(3): say({"type": "RECORD", "stream": "orders", "record": {"Order No": n}})
say({"type": "RECORD", "stream": "visits", "record": {"Order No": 1, "to": {"city": "Rome"}}})
say({"type": "STATE", "value": {"at": 2}})
sys.exit(WORLD.get("exit", 0))
"""
SECRET = "Zq7-quite-secret"


class Receiver:
    """Keeps what is posted to it. ``answer``: the status; ``slow``: seconds before it."""

    def __init__(self) -> None:
        self.got: list[tuple[str, dict[str, str], bytes]] = []
        self.answer, self.slow = 200, 0.0
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                receiver.got.append((self.path, dict(self.headers), body))
                time.sleep(receiver.slow)
                self.send_response(receiver.answer)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *args: object) -> None: ...

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True).start()

    def spans(self) -> list[Any]:
        found = []
        for path, _, body in self.got:
            if path == "/v1/traces":
                request = ExportTraceServiceRequest.FromString(body)
                for resource in request.resource_spans:
                    found += [s for scope in resource.scope_spans for s in scope.spans]
        return found

    def metrics(self) -> dict[str, Any]:
        requests = [ExportMetricsServiceRequest.FromString(b) for p, _, b in self.got if "met" in p]
        return {
            metric.name: metric
            for request in requests
            for resource in request.resource_metrics
            for scope in resource.scope_metrics
            for metric in scope.metrics
        }

    def events(self) -> list[dict[str, Any]]:
        return [json.loads(body) for path, _, body in self.got if "lineage" in path]


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    return Bench(tmp_path, monkeypatch)


@pytest.fixture
def receiver(monkeypatch: pytest.MonkeyPatch) -> Iterator[Receiver]:
    before = dict(os.environ)
    receiver = Receiver()
    yield receiver
    receiver.server.shutdown()
    receiver.server.server_close()
    for name in os.environ.keys() - before.keys():
        del os.environ[name]  # the lineage library adds some


def run(bench: Bench, use: str, **parts: Any) -> Report:
    pipeline = load_pipeline(bench.file(use, **parts), env=dict(os.environ))
    return run_pipeline(pipeline, bench.home, observer=Silent())


def plain(attributes: Any) -> dict[str, Any]:
    """OTLP's attributes as a dictionary."""
    return {a.key: getattr(a.value, a.value.WhichOneof("value")) for a in attributes}


def test_a_collector_gets_spans_of_run_phases_and_streams(
    bench: Bench, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", receiver.url)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "x-team=shop")
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment=test")
    bench.set()
    before = time.time_ns()
    with trace.use_span(TracerProvider().get_tracer("mine").start_span("a task of mine")) as mine:
        report = run(bench, bench.connector(SOURCE))
    assert (report.status, report.notes) == ("succeeded", [])
    assert {h["x-team"] for _, h, _ in receiver.got} == {"shop"}
    spans = receiver.spans()
    (root,) = [s for s in spans if s.name == "run"]
    assert plain(root.attributes)["penstock.run"] == report.run
    assert root.status.code == 1
    context = mine.get_span_context()
    assert int.from_bytes(root.parent_span_id, "big") == context.span_id
    assert {int.from_bytes(s.trace_id, "big") for s in spans} == {context.trace_id}
    below = [s for s in spans if s is not root]
    assert {s.parent_span_id for s in below} == {root.span_id}
    assert {"prepare", "lane", "load", "stream orders", "stream visits"} <= {s.name for s in below}
    assert before <= root.start_time_unix_nano < root.end_time_unix_nano <= time.time_ns()
    for span in below:
        assert span.start_time_unix_nano <= span.end_time_unix_nano
        assert root.start_time_unix_nano - 5e6 <= span.start_time_unix_nano
        assert span.end_time_unix_nano <= root.end_time_unix_nano + 5e6
    (stream,) = [s for s in below if s.name == "stream orders"]
    said = plain(stream.attributes)
    assert (said["penstock.rows.read"], said["penstock.rows.committed"]) == (3, 3)
    lane = next(s for s in below if s.name == "lane")
    assert stream.end_time_unix_nano > lane.start_time_unix_nano
    body = next(b for p, _, b in receiver.got if p == "/v1/traces")
    request = ExportTraceServiceRequest.FromString(body)
    resource = plain(request.resource_spans[0].resource.attributes)
    assert (resource["service.name"], resource["deployment.environment"]) == ("penstock", "test")


def test_a_collector_gets_rows_bytes_rejects_and_durations(
    bench: Bench, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", receiver.url + "/v1/metrics")
    monkeypatch.setenv("OTEL_SERVICE_NAME", "night")
    bench.set()
    report = run(bench, bench.connector(SOURCE))
    assert [path for path, _, _ in receiver.got] == ["/v1/metrics"]  # traces were not asked for
    metrics = receiver.metrics()
    rows = {
        plain(p.attributes)["penstock.stream"]: p.as_int
        for p in metrics["penstock.rows.committed"].sum.data_points
    }
    assert rows == {"orders": 3, "visits": 1}
    rejected = metrics["penstock.rows.rejected"].sum.data_points
    assert [p.as_int for p in rejected] == [0, 0]
    assert sum(p.as_int for p in metrics["penstock.bytes"].sum.data_points) == sum(
        s.bytes for s in report.streams
    )
    (duration,) = metrics["penstock.run.duration"].histogram.data_points
    assert duration.sum >= report.seconds
    assert plain(duration.attributes) == {
        "penstock.pipeline": "quick", "penstock.status": "succeeded",
    }  # fmt: skip
    phases = {
        plain(p.attributes)["penstock.phase"]: p.sum
        for p in metrics["penstock.phase.duration"].histogram.data_points
    }
    assert phases["extract"] == report.time.extract > 0
    request = ExportMetricsServiceRequest.FromString(receiver.got[0][2])
    assert plain(request.resource_metrics[0].resource.attributes)["service.name"] == "night"


def facets(event: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield from event["run"]["facets"].values()
    yield from event["job"]["facets"].values()
    for data in (*event["inputs"], *event["outputs"]):
        for key in ("facets", "inputFacets", "outputFacets"):
            yield from data.get(key, {}).values()


def made_anew(facet: dict[str, Any]) -> Any:
    """A facet made by the class of the schema that it names: an unknown or missing key raises."""
    modules = [m for m in vars(facet_v2).values() if isinstance(m, ModuleType)]
    kinds = [k for m in modules for k in vars(m).values() if hasattr(k, "_get_schema")]
    (kind,) = {k for k in kinds if k.__name__ == facet["_schemaURL"].rsplit("/")[-1]}
    assert kind._get_schema() == facet["_schemaURL"]
    return kind(**{k: v for k, v in facet.items() if not k.startswith("_")})


def test_a_lineage_server_gets_start_and_complete(
    bench: Bench, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENLINEAGE_URL", receiver.url)
    monkeypatch.setenv("OPENLINEAGE_API_KEY", "key-of-mine")
    monkeypatch.setenv("OPENLINEAGE_NAMESPACE", "shop-prod")
    bench.set()
    use = bench.connector(SOURCE)
    report = run(bench, use)
    assert (report.status, report.notes) == ("succeeded", [])
    assert receiver.got[0][1]["Authorization"] == "Bearer key-of-mine"
    start, end = receiver.events()
    assert (start["eventType"], end["eventType"]) == ("START", "COMPLETE")
    assert start["run"]["runId"] == end["run"]["runId"] == str(uuid.UUID(uuid_of(report.run)))
    assert (start["job"]["namespace"], start["job"]["name"]) == ("shop-prod", "quick")
    at = [datetime.fromisoformat(e["eventTime"]) for e in (start, end)]
    assert at[0] < at[1] and at[0].tzinfo is not None
    for event in (start, end):
        assert event["schemaURL"].startswith("https://openlineage.io/spec/2-")
        assert [d["name"] for d in event["inputs"]] == ["orders", "visits"]
        assert len(event["outputs"]) == 2
        for facet in facets(event):
            assert facet["_producer"] == event["producer"]
            made_anew(facet)
    read, wrote = end["inputs"][0], end["outputs"][0]
    assert read["inputFacets"]["inputStatistics"]["rowCount"] == 3
    assert wrote["outputFacets"]["outputStatistics"]["rowCount"] == 3
    given, kept = (d["facets"]["schema"]["fields"] for d in (read, wrote))
    assert [f["name"] for f in given] == ["Order No", "to"]
    assert [f["name"] for f in kept] == ["Order_No", "to"]
    assert [(f["name"], f["type"]) for f in kept[1]["fields"]] == [("city", "string")]
    tags = {t["key"]: t["value"] for t in end["run"]["facets"]["tags"]["tags"]}
    assert tags["run"] == report.run  # beside the library's own


def test_runs_that_fail_end_in_fail_with_the_message(
    bench: Bench, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENLINEAGE_URL", receiver.url)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", receiver.url)
    bench.set(exit=1)
    report = run(bench, bench.connector(SOURCE))
    start, end = receiver.events()
    assert (start["eventType"], end["eventType"]) == ("START", "FAIL")
    assert report.error is not None
    assert end["run"]["facets"]["errorMessage"]["message"] == report.error["message"]
    (root,) = [s for s in receiver.spans() if s.name == "run"]
    assert (root.status.code, root.status.message) == (2, report.error["message"])


def test_a_run_that_did_not_begin_ends_in_fail_without_a_secret(
    bench: Bench, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENLINEAGE_URL", receiver.url)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", receiver.url)
    monkeypatch.setenv("SHOP_KEY", SECRET)
    bench.set()
    with pytest.raises(SourceError):
        run(bench, f"singer:./no-such-{SECRET}", source={"config": {"key": "${SHOP_KEY}"}})
    start, end = receiver.events()
    assert (start["eventType"], end["eventType"]) == ("START", "FAIL")
    assert (start["run"]["runId"], end["inputs"]) == (end["run"]["runId"], [])
    (root,) = receiver.spans()
    assert "no-such" in root.status.message
    assert all(SECRET.encode() not in body for _, _, body in receiver.got)


@pytest.mark.parametrize("trouble", ["nobody there", "refuses", "never answers"])
def test_what_goes_wrong_is_a_note_and_the_run_is_what_it_was(
    bench: Bench, receiver: Receiver, monkeypatch: pytest.MonkeyPatch, trouble: str
) -> None:
    monkeypatch.setattr(module, "FLUSH_SECONDS", 1.0)
    url = f"{receiver.url}/{SECRET}"
    if trouble == "nobody there":
        receiver.server.server_close()
    elif trouble == "refuses":
        receiver.answer = 403
    else:
        receiver.slow = 30.0
    monkeypatch.setenv("OPENLINEAGE_URL", url)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", url)
    bench.set()
    use, began = bench.connector(SOURCE), time.monotonic()
    report = run(bench, use)
    assert time.monotonic() - began < 8
    assert (report.status, report.exit_code) == ("succeeded", 0)
    assert [n.split(" did not get")[0] for n in report.notes] == ["OpenTelemetry", "OpenLineage"]
    why = {"refuses": "answered 403", "never answers": "not answer in time"}.get(trouble, "")
    assert why in report.notes[1]
    assert SECRET not in str(report.notes)
    kept = json.loads((bench.home.runs / report.run / "report.json").read_text())
    assert kept["notes"] == report.notes


@pytest.mark.parametrize(
    ("asked", "off", "package", "extra"),
    [
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_SDK_DISABLED", "opentelemetry", "opentelemetry-sdk"),
        ("OPENLINEAGE_URL", "OPENLINEAGE_DISABLED", "openlineage", "openlineage-python"),
    ],
)
def test_what_is_asked_for_and_not_installed_is_a_note(
    bench: Bench,
    receiver: Receiver,
    monkeypatch: pytest.MonkeyPatch,
    asked: str,
    off: str,
    package: str,
    extra: str,
) -> None:
    monkeypatch.setenv(asked, receiver.url)
    for name in [m for m in sys.modules if m.split(".")[0] == package]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, package, None)  # type: ignore[arg-type]
    bench.set()
    use = bench.connector(SOURCE)
    told = run(bench, use)
    assert told.exit_code == 0
    assert [note for note in told.notes if extra in note and asked in note]
    monkeypatch.setenv(off, "true")
    assert [note for note in run(bench, use).notes if extra in note] == []
    assert receiver.got == []


def test_a_protocol_that_is_not_sent_is_a_note(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:4317")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")
    bench.set()
    told = run(bench, bench.connector(SOURCE))
    assert told.exit_code == 0
    assert sum("OTEL_EXPORTER_OTLP_PROTOCOL is grpc" in note for note in told.notes) == 1
    assert json.loads((bench.home.run(told.run) / "report.json").read_text())["notes"] == told.notes


def test_a_dry_run_tells_nobody(
    bench: Bench, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENLINEAGE_URL", receiver.url)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", receiver.url)
    bench.set()
    pipeline = load_pipeline(bench.file(bench.connector(SOURCE)), env={})
    run_pipeline(pipeline, bench.home, observer=Silent(), dry_run=True)
    assert receiver.got == []


def test_a_run_without_them_imports_nothing_of_them() -> None:
    code = (
        "import sys, penstock.engine.run.start\n"
        "found = {m.split('.')[0] for m in sys.modules}\n"
        "sys.exit(str(found & {'opentelemetry', 'openlineage', 'requests'} or ''))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stderr.strip() == ""


@pytest.mark.parametrize(
    ("use", "location", "place"),
    [
        ("parquet:/lake", "/lake/shop/orders", ("file", "/lake/shop/orders")),
        ("delta", "s3://lake/shop/orders", ("s3://lake", "shop/orders")),
        ("delta", "abfss://c@a.dfs.core.windows.net/t", ("abfss://c@a.dfs.core.windows.net", "t")),
        ("delta", "hdfs://u:pw@name:8020/t", ("hdfs://name:8020", "t")),
        ("delta", "main.shop.orders", ("delta", "main.shop.orders")),
        ("airbyte:destination-x@1.2", "shop.orders", ("airbyte:destination-x", "shop.orders")),
    ],
)
def test_datasets_are_named_as_the_naming_page_says(
    use: str, location: str, place: tuple[str, str]
) -> None:
    assert _place(use, location) == place


@pytest.mark.parametrize(
    ("use", "system"),
    [
        ("airbyte:source-faker@6.2.10", "airbyte:source-faker"),
        ("singer:./tap-own", "singer:./tap-own"),
        (f"singer:tap-x --token {SECRET}", "singer"),
        ("airbyte:docker:me/source-x:1.0", "airbyte:me/source-x"),
        ("spark:SELECT 1 AS id", "spark"),
        (f"singer:git+https://me:{SECRET}@git.example/tap-y", "another"),
    ],
)
def test_a_source_is_named_without_version_and_secrets(use: str, system: str) -> None:
    assert system in _system(use)
    assert SECRET not in _system(use)
