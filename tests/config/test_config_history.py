"""``history`` in the pipeline file and on the command line: a word for each way to have one."""

from pathlib import Path

import pytest

from penstock.config.command_line import pipeline_from_arguments
from penstock.config.load import load_pipeline
from penstock.config.pipeline import Pipeline
from penstock.errors import ConfigError
from penstock.model.catalog import StreamId


def read(folder: Path, stream: str, defaults: str = "{}") -> Pipeline:
    path = folder / "shop.yaml"
    path.write_text(
        "pipeline: shop\nsource:\n  use: airbyte:source-faker\n"
        f"  streams: [{stream}]\n  defaults: {defaults}\ndestination: {{ use: delta:./lake }}\n"
    )
    return load_pipeline(path, env={})


@pytest.mark.parametrize(
    ("stream", "defaults", "wanted"),
    [
        ("{ name: a, history: true }", "{}", "on"),
        ("{ name: a, history: false }", "{ history: true }", "off"),
        ("{ name: a }", "{ history: keyed }", "keyed"),
        ("{ name: a, mode: incremental_deduped_history }", "{}", "on"),
        ("{ name: a, mode: upsert }", "{}", None),
    ],
)
def test_a_stream_s_history(tmp_path: Path, stream: str, defaults: str, wanted: str | None) -> None:
    settings = read(tmp_path, stream, defaults).stream_settings(StreamId(None, "a"))
    assert settings is not None and settings.history == wanted


def test_what_contradicts_itself_is_refused(tmp_path: Path) -> None:
    stream = "{ name: a, mode: incremental_deduped_history, history: false }"
    with pytest.raises(ConfigError) as refused:
        read(tmp_path, stream)
    assert "means history, but history is false" in str(refused.value.problems)
    with pytest.raises(ConfigError) as refused:
        read(tmp_path, "{ name: a, history: sometimes }")
    assert "true, false or keyed" in str(refused.value.problems)


def test_the_option_is_for_streams_with_a_key() -> None:
    pipeline = pipeline_from_arguments("airbyte:source-faker", "delta:./lake", history=True)
    assert pipeline.source.defaults.history == "keyed"


@pytest.mark.parametrize(
    "given",
    [{"mode": "append"}, {"destination_sync_mode": "overwrite"}, {"mode": "full_refresh_append"}],
)
def test_the_option_goes_with_no_mode_that_keeps_no_key(given: dict[str, str]) -> None:
    with pytest.raises(ConfigError) as refused:
        pipeline_from_arguments("airbyte:source-faker", "delta:./lake", history=True, **given)
    assert "--history" in str(refused.value.problems or refused.value)
