"""Which end a connector is, and what each end may be asked (`CLI.md`: spec, check)."""

import pytest
from cli_harness import SOURCE, Cli

from penstock.api.roles import End, end_of
from penstock.connectors.reference import parse_ref


@pytest.mark.parametrize(
    ("word", "end"),
    [
        ("airbyte:source-faker", End.source),
        ("airbyte:destination-duckdb@0.3.5", End.destination),
        ("airbyte:meltanolabs-target-postgres", End.destination),
        ("airbyte:pipelinewise-tap-postgres", End.source),
        ("airbyte:tap-target-stores", End.source),
        ("airbyte:targeted", End.source),
        ("airbyte:./destination", End.destination),
        ("airbyte:./destination/read.py", End.source),
        ("airbyte:../x/my_target.py", End.destination),
        ("airbyte:python -u /opt/stub_source.py", End.source),
        ("airbyte:python /opt/stub-destination.py --as source", End.destination),
        ("airbyte:python --target /opt/x.py", End.source),
        ("parquet:./lake", End.destination),
    ],
)
def test_a_name_tells_the_end(word: str, end: End) -> None:
    assert end_of(parse_ref(word)) is end


def test_a_destination_package_has_no_streams_to_discover(cli: Cli) -> None:
    for verb in ("discover", "preview"):
        told = cli(verb, "airbyte:destination-duckdb", "--json")
        assert (told.code, told.error["code"]) == (2, "connector.not_a_source")
        assert "destination" in told.error["message"]


def test_the_role_is_one_of_two_words(cli: Cli) -> None:
    told = cli("spec", SOURCE, "--role", "sink", "--json")
    assert told.code == 2
    assert "source" in told.error["message"] and "destination" in told.error["message"]
    assert cli("spec", SOURCE, "--role", "source", "--json").code == 0


def test_a_destinations_configuration_is_for_destinations(cli: Cli) -> None:
    told = cli("check", SOURCE, "--destination-config", "{}", "--json")
    assert (told.code, told.error["code"]) == (2, "usage")
    assert "--role" in told.error["hint"]
    both = cli("check", "parquet:./x", "--config", "{}", "--destination-config", "{}", "--json")
    assert both.code == 2
    one = cli("check", "parquet", "--destination-config", '{"path": "./lake"}', "--json")
    assert (one.code, one.json["status"]) == (0, "succeeded")
