"""Which modes a stream gets where the user says nothing, or only half: the same rules in every
protocol (issue 9: A3, A16; L6)."""

from typing import Any

import pytest

from penstock.errors import ConfigError
from penstock.model.catalog import (
    ConfiguredStream,
    DestinationSyncMode,
    Stream,
    StreamId,
    SyncMode,
)
from penstock.protocols import load
from penstock.protocols.reading import StreamOverrides

SCHEMA = {
    "type": "object",
    "properties": {"id": {"type": "integer"}, "at": {"type": "string"}, "v": {"type": "string"}},
}
BOTH = (SyncMode.full_refresh, SyncMode.incremental)
KEY = (("id",),)


@pytest.fixture(params=["airbyte", "singer", "rapidbyte"])
def configure(request: pytest.FixtureRequest) -> Any:
    source = load(request.param).source

    def configured(overrides: StreamOverrides, **more: Any) -> ConfiguredStream:
        told = {"sync_modes": BOTH, "default_cursor_field": ("at",), **more}
        stream = Stream(id=StreamId(None, "users"), json_schema=SCHEMA, **told)
        return source.configure(stream, overrides)

    return configured


def modes(configured: ConfiguredStream) -> tuple[str, str]:
    return configured.sync_mode.value, configured.destination_sync_mode.value


def test_A16_an_incremental_stream_with_a_key_keeps_one_row_per_key(configure: Any) -> None:
    keyed = configure(StreamOverrides(), source_defined_primary_key=KEY)
    assert modes(keyed) == ("incremental", "append_dedup")
    assert keyed.primary_key == KEY
    assert keyed.mode_reason == "its primary key is known"
    assert modes(configure(StreamOverrides(primary_key=KEY))) == ("incremental", "append_dedup")
    bare = configure(StreamOverrides())
    assert modes(bare) == ("incremental", "append") and "no primary key" in bare.mode_reason
    said = configure(
        StreamOverrides(destination_sync_mode="append"), source_defined_primary_key=KEY
    )
    assert modes(said) == ("incremental", "append") and said.mode_reason == "the pipeline sets it"


def test_A16_a_key_that_is_no_property_is_no_reason_to_fail(configure: Any) -> None:
    lost = configure(StreamOverrides(), source_defined_primary_key=(("uid",),))
    assert modes(lost) == ("incremental", "append") and "uid is not a property" in lost.mode_reason


def test_A16_a_destination_that_cannot_is_appended_to(configure: Any) -> None:
    overrides = StreamOverrides(appends="the destination appends only")
    found = configure(overrides, source_defined_primary_key=KEY)
    assert modes(found) == ("incremental", "append")
    assert found.mode_reason == "the destination appends only"


def test_A16_a_full_refresh_still_overwrites(configure: Any) -> None:
    found = configure(StreamOverrides(sync_mode="full_refresh"), source_defined_primary_key=KEY)
    assert modes(found) == ("full_refresh", "overwrite")


def test_A16_a_stream_of_an_earlier_version_is_appended_to_as_it_was(configure: Any) -> None:
    found = configure(StreamOverrides(unrecorded=True), source_defined_primary_key=KEY)
    assert modes(found) == ("incremental", "append")
    assert "set mode: upsert" in found.mode_reason


def test_A16_a_tap_that_says_nothing_decides_but_not_over_a_table_that_was_mirrored() -> None:
    """A version that wrote no modes down read such a stream in full, into its table's place."""
    stream = Stream(id=StreamId(None, "users"), json_schema=SCHEMA, sync_modes=BOTH)
    source = load("singer").source
    assert modes(source.configure(stream, StreamOverrides())) == ("incremental", "append")
    before = source.configure(stream, StreamOverrides(unrecorded=True))
    assert modes(before) == ("full_refresh", "overwrite")


def test_A3_overwrite_alone_reads_everything(configure: Any) -> None:
    """It planned incremental: the second run left only its increment."""
    overrides = StreamOverrides(destination_sync_mode="overwrite")
    assert modes(configure(overrides)) == ("full_refresh", "overwrite")
    assert modes(
        configure(StreamOverrides(destination_sync_mode="overwrite", cursor_field=("at",)))
    ) == (
        "full_refresh",
        "overwrite",
    )


def test_A3_increments_do_not_overwrite(configure: Any) -> None:
    overrides = StreamOverrides(sync_mode="incremental", destination_sync_mode="overwrite")
    with pytest.raises(ConfigError, match="only the last increment") as refused:
        configure(overrides)
    assert refused.value.code == "config.increment_overwrites"
    assert refused.value.hint and "mode: mirror" in refused.value.hint


@pytest.mark.parametrize("protocol", ["singer", "rapidbyte"])
@pytest.mark.parametrize("said", [None, "incremental"])
def test_A3_a_stream_of_increments_only_begins_anew(protocol: str, said: str | None) -> None:
    """An Airbyte stream can always be read in full; these may have no other way."""
    stream = Stream(
        id=StreamId(None, "users"),
        json_schema=SCHEMA,
        sync_modes=(SyncMode.incremental,),
        default_cursor_field=("at",),
    )
    overrides = StreamOverrides(sync_mode=said, destination_sync_mode="overwrite")
    found = load(protocol).source.configure(stream, overrides)
    assert modes(found) == ("incremental", "overwrite")
    assert found.fills_generation and "starts from the beginning" in found.mode_reason


def test_A6_a_deduped_overwrite_keeps_its_word(configure: Any) -> None:
    overrides = StreamOverrides(
        sync_mode="full_refresh", destination_sync_mode="append_dedup", replaces=True
    )
    found = configure(overrides, source_defined_primary_key=KEY)
    assert found.replaces and found.destination_sync_mode is DestinationSyncMode.append_dedup
