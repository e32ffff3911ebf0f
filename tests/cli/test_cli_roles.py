"""Which end a connector is, and what each end may be asked (docs/cli.md: spec, check)."""

import pytest
from cli_harness import SOURCE, Cli

from penstock.api.roles import AskedRole, end_of
from penstock.connectors.reference import parse_ref


@pytest.mark.parametrize(
    ("word", "end"),
    [
        ("airbyte:source-faker", AskedRole.source),
        ("airbyte:destination-duckdb@0.3.5", AskedRole.destination),
        ("airbyte:meltanolabs-target-postgres", AskedRole.destination),
        ("airbyte:pipelinewise-tap-postgres", AskedRole.source),
        ("airbyte:tap-target-stores", AskedRole.source),
        ("airbyte:targeted", AskedRole.source),
        ("airbyte:./destination", AskedRole.destination),
        ("airbyte:./destination/read.py", AskedRole.source),
        ("airbyte:../x/my_target.py", AskedRole.destination),
        ("airbyte:python -u /opt/stub_source.py", AskedRole.source),
        ("airbyte:python /opt/stub-destination.py --as source", AskedRole.destination),
        ("airbyte:python --target /opt/x.py", AskedRole.source),
        ("parquet:./lake", AskedRole.destination),
    ],
)
def test_a_name_tells_the_end(word: str, end: AskedRole) -> None:
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
