"""``run SOURCE DESTINATION`` and the options of ``run`` (docs/cli.md)."""

from pathlib import Path

import pytest

from penstock.config.command_line import Options, pipeline_from_arguments, with_options
from penstock.config.load import parse_pipeline
from penstock.errors import ConfigError
from penstock.model.catalog import DestinationSyncMode, StreamId, SyncMode

FAKER = "airbyte:source-faker@7.2.1"


def test_the_issues_second_command() -> None:
    pipeline = pipeline_from_arguments(
        FAKER, "delta:./lake", config='{"count": 10000}', destination_sync_mode="append_dedup"
    )
    assert pipeline.source.use == FAKER
    assert pipeline.source.config == {"count": 10000}
    assert (pipeline.destination.use, pipeline.destination.config) == ("delta", {"path": "./lake"})
    settings = pipeline.stream_settings(StreamId(None, "users"))
    assert settings is not None
    assert settings.destination_sync_mode is DestinationSyncMode.append_dedup


def name(source: str, destination: str, **options: str) -> str:
    return pipeline_from_arguments(source, destination, **options).pipeline


def test_the_name_is_stable_and_tells_destinations_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    first = name(FAKER, "parquet:./lake")
    assert first.startswith("source-faker-to-parquet-")
    assert len(first) == len("source-faker-to-parquet-") + 8
    assert first == name("airbyte:source-faker@8.0.0", f"parquet:{tmp_path}/lake/")
    assert first == name(FAKER, "parquet", destination_config='{"path": "lake"}')
    assert first != name(FAKER, "parquet:./lake2")
    assert first != name(FAKER, "delta:./lake").replace("delta", "parquet")
    assert name(FAKER, "delta:s3a://u:one@h/db/s") == name(FAKER, "delta:s3a://u:two@h/db/s")
    assert name(FAKER, "delta:s3a://u@h/db/s") != name(FAKER, "delta:s3a://u@h/db2/s")
    assert name(FAKER, "parquet:./lake", name="mine") == "mine"


@pytest.mark.parametrize(
    ("source", "short"),
    [
        ("airbyte:./bin/my source", "my"),
        ("airbyte:docker:airbyte/source-faker:6.2", "source-faker"),
        ("rapidbyte:./plugins/source_x.wasm", "source_x"),
        ('spark:SELECT "a" FROM b', "spark-sql"),
        ("source-postgres", "source-postgres"),
        ("airbyte:$$$", "airbyte"),
    ],
)
def test_short_names(source: str, short: str) -> None:
    assert name(source, "parquet:./lake").startswith(f"{short}-to-parquet-")


def test_every_option_reaches_the_pipeline() -> None:
    pipeline = pipeline_from_arguments(
        FAKER, "parquet:./lake", streams="users,shop.orders", sync_mode="incremental",
        destination_sync_mode="upsert", cursor_field='["m","at"]', primary_key="a,b",
        destination_stream="contacts", destination_config='{"x": 1}', lanes="4",
    )  # fmt: skip
    users, orders = pipeline.source.streams or ()
    assert (users.name, orders.name) == ("users", "shop.orders")
    for stream in (users, orders):
        assert stream.sync_mode is SyncMode.incremental
        assert stream.destination_sync_mode is DestinationSyncMode.append_dedup
        assert stream.cursor_field == ("m", "at")
        assert stream.primary_key == (("a",), ("b",))
    assert pipeline.destination.stream == "contacts"
    assert pipeline.destination.config == {"path": "./lake", "x": 1}
    assert pipeline.lanes == 4


def test_all_faults_of_the_options_at_once() -> None:
    with pytest.raises(ConfigError) as caught:
        pipeline_from_arguments(
            " ", "parquet:", sync_mode="fll_refresh", mode="mirorr", lanes="0", config="[",
            primary_key="a,", name=" ",
        )  # fmt: skip
    assert caught.value.message == "8 options are wrong"
    path_hint = 'a nested field is a JSON list, as in \'["metadata","updated_at"]\''
    assert caught.value.problems == [
        "DESTINATION: parquet: needs a place, as in parquet:./lake",
        "SOURCE is blank",
        "--mode: 'mirorr' is not a mode; did you mean 'mirror'?",
        "--sync-mode: 'fll_refresh' is not a sync mode; did you mean 'full_refresh'?",
        f"--primary-key: a field's name is empty; {path_hint}",
        "--config: not JSON: Input data was truncated; give a JSON object, as in "
        "'{\"count\": 100}', or @FILE",
        "--lanes: must be 'auto' or a whole number of at least 1",
        "--name: must be a text of one line, and not blank",
    ]


def test_a_table_without_a_place() -> None:
    with pytest.raises(ConfigError, match=r"^DESTINATION: parquet needs a place$"):
        pipeline_from_arguments(FAKER, "parquet")
    with pytest.raises(ConfigError, match=r"^--mode: mode 'mirror' means sync_mode full_refresh"):
        pipeline_from_arguments(FAKER, "parquet:x", mode="mirror", sync_mode="incremental")


FILE = """\
pipeline: shop
source:
  use: airbyte:x
  config: {count: 1, seed: 2}
  streams:
    - {name: users, namespace: shop, mode: mirror, primary_key: id}
    - {name: orders}
destination: {use: parquet, config: {path: ./lake}}
"""


def test_options_go_over_a_file() -> None:
    pipeline = with_options(
        parse_pipeline(FILE, {}),
        Options(streams="shop.users", config='{"count": 5}', sync_mode="incremental"),
    )
    (users,) = pipeline.source.streams or ()
    assert (users.namespace, users.name, users.primary_key) == ("shop", "users", (("id",),))
    assert (users.mode, users.sync_mode) == (None, SyncMode.incremental)
    assert users.destination_sync_mode is DestinationSyncMode.overwrite
    assert pipeline.source.config == {"count": 5, "seed": 2}
    assert pipeline.pipeline == "shop"
    assert with_options(parse_pipeline(FILE, {}), Options()) == parse_pipeline(FILE, {})


def test_a_stream_that_the_file_does_not_list() -> None:
    with pytest.raises(ConfigError) as caught:
        with_options(parse_pipeline(FILE, {}), Options(streams="user"))
    assert caught.value.problems == ["--streams: there is no stream 'user'; did you mean 'users'?"]


def test_options_show_no_values() -> None:
    """L10"""
    assert "hunter2" not in repr(Options(config='{"p": "hunter2"}'))


def test_patterns_choose_among_the_entries_of_a_file_and_names_among_its_patterns() -> None:
    """Issue 9, C."""
    text = (
        "pipeline: p\nsource:\n  use: airbyte:x\n  streams:\n"
        "    - { name: 'log_*', mode: append }\n    - { name: users, mode: mirror }\n"
        "    - { name: users_old, mode: upsert }\n"
        "destination: { use: 'parquet:./lake' }\n"
    )
    pipeline = parse_pipeline(text, {})

    def chosen(**given: str) -> list[tuple[str, str | None]]:
        made = with_options(pipeline, Options(**given))
        return [(s.name, s.mode) for s in made.source.streams or ()]

    assert chosen(streams="user*") == [("users", "mirror"), ("users_old", "upsert")]
    assert chosen(streams="log_web") == [("log_web", "append")]
    excluded = with_options(pipeline, Options(exclude="users, log_*")).source.exclude
    assert excluded == ("users", "log_*")
    with pytest.raises(ConfigError, match="a stream's name is empty"):
        with_options(pipeline, Options(exclude="a,,b"))
