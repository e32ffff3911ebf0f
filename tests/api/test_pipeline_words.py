"""What names a pipeline file, and what a connector, on every command line."""

from pathlib import Path

import pytest

from penstock.api.pipelines import are_several, is_connector, is_file, pipeline_of, pipeline_or_name
from penstock.config.command_line import Options
from penstock.errors import ConfigError

CONNECTORS = [
    "airbyte:./manifest.yaml",
    "airbyte:/abs/manifest.yml",
    "airbyte:~/manifest.yaml",
    "singer:tap-x --config here.yaml",
    "airbyte:python source.py spec.yml",
    "syncmaven:./connector.yaml",
    "delta:./lake.yaml",
    "parquet:./lake.yml",
    "spark:SELECT * FROM csv.`a.yaml`",
]
FILES = ["shop.yaml", "./shop.yml", "a:b.yaml", "/abs/shop.yaml", "-", "folder with spaces/p.yaml"]


@pytest.mark.parametrize("word", CONNECTORS)
def test_a_protocol_before_it_makes_a_connector(word: str) -> None:
    assert is_connector(word) and not is_file(word)
    assert not are_several([word, "delta:./lake"])


@pytest.mark.parametrize("word", FILES)
def test_without_one_it_is_a_pipeline_file(word: str) -> None:
    assert is_file(word)


def test_a_file_that_is_there_is_one_whatever_it_is_called(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("airbyte:x.yaml").write_text("")
    assert is_file("airbyte:x.yaml") and not is_file("airbyte:y.yaml")


@pytest.mark.parametrize("destination", ["delta:./lake", "airbyte:./other.yaml"])
def test_a_manifest_and_a_destination_are_a_pipeline(destination: str) -> None:
    made = pipeline_of("airbyte:./manifest.yaml", destination, Options())
    assert made.source.use == "airbyte:./manifest.yaml"
    named = pipeline_or_name(["airbyte:./manifest.yaml", destination])
    assert not isinstance(named, str) and named.pipeline == made.pipeline


def test_a_manifest_alone_lacks_a_destination() -> None:
    with pytest.raises(ConfigError, match="no destination is named"):
        pipeline_of("airbyte:./manifest.yaml", None, Options())
    with pytest.raises(ConfigError, match="is not a pipeline file"):
        are_several(["a.yaml", "airbyte:./manifest.yaml", "b.yaml"])
