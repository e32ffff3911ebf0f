"""Programs as PyAirbyte's documentation writes them, into pipeline files that parse."""

from pathlib import Path

import pytest

from penstock.api.pyairbyte_script import pyairbyte_pipelines
from penstock.config.load import parse_pipeline
from penstock.errors import ConfigError

PROGRAM = """
import os
import airbyte as ab
from airbyte import get_secret

TOKEN = ab.get_secret("GITHUB_PERSONAL_ACCESS_TOKEN")
START = "2024-01-01"
source = ab.get_source(
    "source-github",
    version="2.7.1",
    install_if_missing=True,
    config={
        "repositories": ["airbytehq/quickstarts"],
        "start_date": START,
        "credentials": {"personal_access_token": TOKEN},
        "page": -1,
        "other": compute(),
    },
)
source.check()
source.select_streams(["commits", "issues"])
source.set_cursor_key("commits", "created_at")
source.set_primary_key("commits", ["id", "sha"])
faker = ab.get_source("source-faker", config={"count": 5_000}, streams="*", docker_image=True)
cache = ab.new_local_cache()
result = source.read(cache=cache, force_full_refresh=True)
for name, records in result.streams.items():
    print(f"Stream {name}: {len(list(records))} records")
"""


def test_each_source_is_a_pipeline(tmp_path: Path) -> None:
    (tmp_path / "sync.py").write_text(PROGRAM)
    (github, faker), notes = pyairbyte_pipelines(tmp_path / "sync.py")
    values = {"GITHUB_PERSONAL_ACCESS_TOKEN": "t", "SOURCE_GITHUB_CONFIG_OTHER": "o"}
    source = parse_pipeline(github.text, values).source
    assert source.use == "airbyte:source-github@2.7.1"
    assert source.config == {
        "repositories": ["airbytehq/quickstarts"], "start_date": "2024-01-01",
        "credentials": {"personal_access_token": "t"}, "page": -1, "other": "o",
    }  # fmt: skip
    streams = {s.name: s for s in source.streams or ()}
    assert [*streams] == ["commits", "issues"]
    assert streams["commits"].cursor_field == ("created_at",)
    assert streams["commits"].primary_key == (("id",), ("sha",))
    assert any("--full-refresh" in note for note in github.notes)
    assert any("set SOURCE_GITHUB_CONFIG_OTHER" in note for note in github.notes)
    made = parse_pipeline(faker.text, {})
    assert made.source.use == "airbyte:docker:airbyte/source-faker"
    assert (made.source.config, made.source.streams) == ({"count": 5000}, None)
    assert made.destination.config["path"] == "./lake" and notes == []


def test_a_destination_and_a_reference_to_a_secret(tmp_path: Path) -> None:
    (tmp_path / "sync.py").write_text(
        "from airbyte import get_destination, get_source\n"
        "s = get_source('source-x', config={'key': 'secret_reference::MY_KEY'})\n"
        "s.select_all_streams()\n"
        "get_destination('destination-y', config={'path': '/tmp/${x}'}).write(s)\n"
    )
    ((each,), _) = pyairbyte_pipelines(tmp_path / "sync.py")
    pipeline = parse_pipeline(each.text, {"MY_KEY": "k"})
    assert pipeline.source.config == {"key": "k"}
    assert pipeline.destination.use == "airbyte:destination-y"
    assert pipeline.destination.config == {"path": "/tmp/${x}"}


def test_a_secret_that_stands_in_the_program_becomes_a_variable(tmp_path: Path) -> None:
    (tmp_path / "sync.py").write_text(
        "from airbyte import get_source\n"
        "K = 'ghp-literal'\n"
        "get_source('source-x', config={'credentials': {'auth_type': 'PAT', 'token': K}, "
        "'client_secret': 'hunter2', 'token_url': 'https://a.example', 'primary_key': 'id'})\n"
    )
    ((each,), _) = pyairbyte_pipelines(tmp_path / "sync.py")
    assert "ghp-literal" not in each.text and "hunter2" not in each.text
    values = {
        "SOURCE_X_CONFIG_CREDENTIALS_TOKEN": "t", "SOURCE_X_CONFIG_CLIENT_SECRET": "s",
    }  # fmt: skip
    assert parse_pipeline(each.text, values).source.config == {
        "credentials": {"auth_type": "PAT", "token": "t"}, "client_secret": "s",
        "token_url": "https://a.example", "primary_key": "id",
    }  # fmt: skip
    assert sum("a secret in the program" in note for note in each.notes) == 2


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("print(1)", "import.nothing"),
        ("import airbyte\nairbyte.get_source(name)", "import.nothing"),
        ("def (", "import.file"),
        ("x = 1\0", "import.file"),
    ],
)
def test_what_is_no_program_with_a_source_is_refused(tmp_path: Path, text: str, code: str) -> None:
    (tmp_path / "sync.py").write_text(text)
    with pytest.raises(ConfigError) as refused:
        pyairbyte_pipelines(tmp_path / "sync.py")
    assert refused.value.code == code


def test_names_in_a_circle_end(tmp_path: Path) -> None:
    (tmp_path / "sync.py").write_text(
        "import airbyte as ab\na = b\nb = a\nab.get_source('source-x', config={'k': a})\n"
    )
    ((each,), _) = pyairbyte_pipelines(tmp_path / "sync.py")
    assert parse_pipeline(each.text, {"SOURCE_X_CONFIG_K": "1"}).source.config == {"k": "1"}
