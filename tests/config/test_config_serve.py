"""The configuration of ``penstock serve``: what it takes and refuses, the pipeline it makes."""

import json
from pathlib import Path
from typing import Any

import pytest

from penstock.config.serve_config import read_settings, schema
from penstock.errors import ConfigError
from penstock.model.catalog import DestinationSyncMode
from penstock.protocols.singer.serve import about


def settings(folder: Path, config: Any, to: str | None = None) -> Any:
    path = folder / "config.json"
    path.write_text(config if isinstance(config, str) else json.dumps(config))
    return read_settings(str(path), to)


def test_every_key_reaches_the_pipeline(tmp_path: Path) -> None:
    config = settings(
        tmp_path,
        {
            "destination": f"delta:{tmp_path}/lake",
            "pipeline": "shop",
            "destination_sync_mode": "append_dedup",
            "metadata_columns": "neutral",
            "batch_config": {"storage": {"root": "file:///b"}},
            "load_bytes": 1000,
            "load_seconds": 5,
        },
    )
    made = config.pipeline_of("singer")
    assert made.source.config == {"batch_config": {"storage": {"root": "file:///b"}}}
    assert (made.pipeline, made.destination.use) == ("shop", "delta")
    assert made.destination.config == {"path": f"{tmp_path}/lake"}
    assert made.destination.metadata_columns == "neutral"
    assert made.source.defaults.destination_sync_mode is DestinationSyncMode.append_dedup
    assert (made.load.max_pending_bytes, made.load.max_pending_time) == (1000, 5.0)
    assert made.source.streams is None


def test_a_target_fails_where_a_destination_puts_aside(tmp_path: Path) -> None:
    """Issue 9, C: what a record does that cannot be taken."""
    for config, target, destination in (({}, "fail", "dlq"), *(
        ({"on_data_error": word}, word, word) for word in ("fail", "dlq")
    )):  # fmt: skip
        made = settings(tmp_path, {"destination": "delta:./a", **config})
        assert made.pipeline_of("singer").destination.on_data_error == target
        assert made.pipeline_of("airbyte").destination.on_data_error == destination


def test_a_destination_beside_the_file_or_in_its_place(tmp_path: Path) -> None:
    assert read_settings(None, "parquet:./lake").destination == "parquet:./lake"
    assert settings(tmp_path, {"destination": "delta:./a"}, "delta:./b").destination == "delta:./b"
    one, other = (read_settings(None, f"delta:./{n}").pipeline_of("singer") for n in "ab")
    assert one.pipeline != other.pipeline


@pytest.mark.parametrize(
    ("config", "word"),
    [
        ("not json", "config.json"),
        ("[]", "object"),
        ({}, "no destination"),
        ({"destination": 1}, "destination"),
        ({"destination": "delta:./x", "colour": 1}, "colour"),
        ({"destination": "delta:./x", "load_seconds": 0}, "load_seconds"),
        ({"destination": "delta:./x", "destination_sync_mode": "replace"}, "replace"),
    ],
)
def test_what_is_wrong_is_said(tmp_path: Path, config: Any, word: str) -> None:
    with pytest.raises(ConfigError) as refused:
        settings(tmp_path, config)
    assert refused.value.code == "config.schema"
    assert word in refused.value.message
    assert refused.value.hint


def test_a_file_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as refused:
        read_settings(str(tmp_path / "none.json"), None)
    assert refused.value.code == "config.not_found"


def test_the_schema_stands_alone_and_about_has_it() -> None:
    """Airbyte, connectionSpecification; Singer SDK's ``--about``."""
    config = schema()
    assert config["required"] == ["destination"]
    assert "$ref" not in json.dumps(config)
    assert all("description" in words for words in config["properties"].values())
    said = about("1.2", schema())
    assert (said["version"], said["settings"]) == ("1.2", config)


def test_a_parquet_target_appends_unless_told_so_that_states_come_back_while_it_reads() -> None:
    """Issue 9, A16: append_dedup into Parquet loads at the end of the input only."""

    def mode(protocol: str, to: str) -> DestinationSyncMode | None:
        made = read_settings(None, to).pipeline_of(protocol)
        return made.source.defaults.destination_sync_mode

    assert mode("singer", "parquet:./lake") is DestinationSyncMode.append
    assert mode("singer", "delta:./lake") is None
    assert mode("airbyte", "parquet:./lake") is None
