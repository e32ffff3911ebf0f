"""Penstock as an Airbyte destination: the lines a host hears, the catalog that it gives."""

import json
from typing import Any

import pytest

from penstock.errors import ConfigError
from penstock.model.catalog import DestinationSyncMode, StreamId, SyncMode
from penstock.protocols.airbyte import serve
from penstock.protocols.airbyte.package import PACKAGE
from penstock.protocols.hosts import HostGeneration
from penstock.protocols.reading import StreamOverrides

SCHEMA = {"type": "object", "properties": {"id": {"type": "integer"}, "at": {"type": "string"}}}


def catalog(*entries: dict[str, Any]) -> bytes:
    return json.dumps({"streams": list(entries)}).encode()


def entry(name: str = "s", stream: dict[str, Any] | None = None, **told: Any) -> dict[str, Any]:
    own = {"name": name, "json_schema": SCHEMA, "supported_sync_modes": ["full_refresh"]}
    modes = {"sync_mode": "incremental", "destination_sync_mode": "append"}
    return {"stream": {**own, **(stream or {})}, **modes, **told}


def test_lines_are_the_protocols() -> None:
    """Specification, Destination: SPEC, CONNECTION_STATUS; protocol, AirbyteTraceMessage."""
    told = json.loads(serve.spec({"type": "object"}))
    assert told["type"] == "SPEC"
    assert told["spec"]["connectionSpecification"] == {"type": "object"}
    assert told["spec"]["supportsIncremental"] is True
    good, bad = json.loads(serve.status(None)), json.loads(serve.status("no\nroom"))
    assert good["connectionStatus"] == {"status": "SUCCEEDED"}
    assert bad["connectionStatus"] == {"status": "FAILED", "message": "no\nroom"}
    fault = json.loads(serve.failed("it broke", "mend it", "", 70))["trace"]
    assert (fault["type"], fault["error"]["message"]) == ("ERROR", "it broke; mend it")
    assert fault["emitted_at"] > 1_000_000_000_000


def test_a_state_goes_back_whole_with_what_was_taken_and_rejected() -> None:
    """Protocol 0.18, AirbyteStateStats: numbers with a decimal point; real hosts: the
    host adds them up and compares them with its source's."""
    stats = '"sourceStats":{"recordCount":100.0},"id":7,'
    blob = (
        '{"type":"STREAM",'
        + stats
        + '"stream":{"stream_state":{"n":1.50,"m":12345678901234567890}}}'
    )
    line = serve.state(blob, 60, 40)
    assert '"recordCount":60.0' in line and '"rejectedRecordCount":40.0' in line
    assert "1.50" in line and "\n" not in line
    told = json.loads(line)
    assert told["type"] == "STATE"
    assert told["state"].pop("destinationStats") == {
        "recordCount": 60.0,
        "rejectedRecordCount": 40.0,
    }
    assert told["state"] == json.loads(blob)
    echoed = '{"data":{},"destinationStats":{"recordCount":9,"x":1}}'
    given = json.loads(serve.state(echoed, 0, 0))["state"]["destinationStats"]
    assert given == {"recordCount": 0.0, "rejectedRecordCount": 0.0, "x": 1}
    assert json.loads(serve.state("{}", 1, 0))["state"]["destinationStats"]["recordCount"] == 1


@pytest.mark.parametrize(
    ("code", "exit_code", "kind"),
    [
        ("config.streams", 2, "config_error"),
        ("schema.changed", 3, "config_error"),
        ("source.incomplete", 4, "system_error"),
        ("destination.not_writable", 5, "config_error"),
        ("destination.table_locked", 5, "transient_error"),
        ("destination.failed", 5, "system_error"),
        ("state.locked", 6, "transient_error"),
        ("log.failed", 6, "system_error"),
        ("cancelled", 7, "transient_error"),
        ("defect.ValueError", 70, "system_error"),
    ],
)
def test_a_fault_says_who_can_mend_it(code: str, exit_code: int, kind: str) -> None:
    """Protocol, AirbyteErrorTraceMessage.failure_type."""
    told = json.loads(serve.failed("x", None, code, exit_code))
    assert told["trace"]["error"]["failure_type"] == kind


def test_a_configured_stream_is_what_its_source_was_asked_for() -> None:
    """A destination refuses no mode or cursor because of what the source once offered."""
    raw = catalog(
        entry(
            stream={"namespace": "shop"},
            destination_sync_mode="append_dedup",
            cursor_field=["at"],
            primary_key=[["id"]],
        ),
        entry("t", destination_sync_mode=None, sync_mode=None, namespace="ignored"),
    )
    known, streams = serve.configured(raw)
    first, second = streams
    assert [s.id for s in known.streams] == [StreamId("shop", "s"), StreamId(None, "t")]
    assert first.sync_mode is SyncMode.incremental
    assert (second.sync_mode.value, second.destination_sync_mode.value) == (
        "full_refresh",
        "append",
    )
    overrides = StreamOverrides(
        sync_mode=first.sync_mode, destination_sync_mode=first.destination_sync_mode
    )
    made = PACKAGE.source.configure(first.stream, overrides)
    assert made.destination_sync_mode is DestinationSyncMode.append_dedup
    assert (made.cursor_field, made.primary_key) == (("at",), (("id",),))


def test_overwrite_replaces_also_what_its_source_reads_in_increments() -> None:
    """Protocol, Destination Sync Modes: overwrite replaces whatever data exists with the data that
    arrives in this sync. PyAirbyte asks for it beside incremental, of streams that offer
    full_refresh only."""
    stream = {"supported_sync_modes": ["full_refresh"]}
    _, (asked,) = serve.configured(catalog(entry(stream=stream, destination_sync_mode="overwrite")))
    overrides = StreamOverrides(sync_mode="incremental", destination_sync_mode="overwrite")
    made = PACKAGE.source.configure(asked.stream, overrides)
    assert made.sync_mode is SyncMode.incremental
    assert made.destination_sync_mode is DestinationSyncMode.overwrite
    assert made.fills_generation, "nothing is replaced before the stream is complete (L6)"


def test_a_key_of_the_sources_own_holds_where_none_is_configured() -> None:
    raw = catalog(entry(stream={"source_defined_primary_key": [["id"]]}))
    _, (stream,) = serve.configured(raw)
    assert stream.primary_key == (("id",),)


def test_only_a_generation_that_truncates_refreshes() -> None:
    raw = catalog(
        entry("keeps", generation_id=4, minimum_generation_id=0),
        entry("truncates", generation_id=4, minimum_generation_id=4),
        entry("never", generation_id=0, minimum_generation_id=0),
        entry("old_host", destination_sync_mode="overwrite"),
        entry("null", generation_id=None, minimum_generation_id=None),
    )
    _, streams = serve.configured(raw)
    found = serve.generations(streams)
    assert {s.name: g.generation for s, g in found.items() if g.replaces} == {"truncates": 4}


@pytest.mark.parametrize(("number", "minimum"), [(4, 2), (4, 5), (None, 3)])
def test_a_part_of_the_generations_is_not_replaced(number: int | None, minimum: int) -> None:
    """Keeping all of them, without a word, would leave rows that the host wants gone."""
    raw = catalog(entry("s", generation_id=number, minimum_generation_id=minimum))
    with pytest.raises(ConfigError, match="stream s: minimum_generation_id is"):
        serve.configured(raw)


def test_the_hosts_numbers_are_its_rows_numbers() -> None:
    """Protocol, ConfiguredAirbyteStream: generation_id and sync_id."""
    raw = catalog(entry("s", generation_id=4, minimum_generation_id=0, sync_id=9), entry("t"))
    found = serve.generations(serve.configured(raw)[1])
    assert found == {
        StreamId(None, "s"): HostGeneration(generation=4, sync=9),
        StreamId(None, "t"): HostGeneration(),
    }


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"[]",
        b"{}",
        b'{"streams": {}}',
        b'{"streams": [1]}',
        b'{"streams": [{}]}',
        catalog(entry(destination_sync_mode="update")),
        catalog(entry(primary_key=7)),
        catalog(entry(), entry()),
    ],
)
def test_what_is_no_configured_catalog_is_told(raw: bytes) -> None:
    with pytest.raises(ConfigError) as refused:
        serve.configured(raw)
    assert refused.value.code == "config.catalog"


def test_a_stream_without_a_name_is_told_with_its_place() -> None:
    with pytest.raises(ConfigError, match=r"streams\[1\]\.stream: .*`name`"):
        serve.configured(catalog(entry(), {"stream": {"json_schema": {}}}))


def test_an_optional_field_of_a_stream_costs_nothing_else() -> None:
    odd = {"json_schema": None, "default_cursor_field": "at", "is_resumable": 5}
    known, (stream,) = serve.configured(catalog(entry(stream=odd)))
    assert stream.stream.default_cursor_field == ("at",) and stream.stream.json_schema == {}
    assert len(known.notes) == 3


def test_a_host_may_have_a_name_under_the_empty_namespace_and_under_none() -> None:
    """Protocol, StreamDescriptor: two streams; one of them alone has no namespace."""
    empty = entry(stream={"namespace": ""})
    _, streams = serve.configured(catalog(entry(), empty))
    assert [s.id for s in streams] == [StreamId(None, "s"), StreamId("", "s")]
    _, (one,) = serve.configured(catalog(empty))
    assert one.id == StreamId(None, "s")
