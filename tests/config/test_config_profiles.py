"""Profiles of a pipeline file: one for each environment (issue 14, part 5)."""

import jsonschema_rs
import pytest

from penstock.config.load import parse_pipeline
from penstock.config.pipeline import Pipeline
from penstock.config.schema import pipeline_json_schema
from penstock.errors import ConfigError

FILE = """\
pipeline: shop
source:
  use: airbyte:source-faker
  config: {count: 10, nested: {a: 1, b: 2}}
destination: {use: "parquet:./lake", prefix: raw_}
lanes: 2
profiles:
  prod:
    source:
      config: {count: 1000000, password: "${SHOP_PASSWORD}", nested: {b: 3}}
    destination: {use: "delta:/data/lake"}
    lanes: auto
  named: {pipeline: elsewhere}
"""


def read(profile: str | None, text: str = FILE, **values: str) -> Pipeline:
    return parse_pipeline(text, values, name="shop.yaml", profile=profile)


def test_without_a_profile_the_file_is_as_it_was_and_no_variable_of_one_is_needed() -> None:
    base = read(None)
    assert (base.pipeline, base.lanes, base.destination.use) == ("shop", 2, "parquet")
    assert base.source.config == {"count": 10, "nested": {"a": 1, "b": 2}}


def test_a_profile_goes_over_the_file_mapping_by_mapping() -> None:
    prod = read("prod", SHOP_PASSWORD="hunter2")
    assert (prod.lanes, prod.destination.use) == ("auto", "delta")
    assert prod.destination.config == {"path": "/data/lake"}
    assert prod.destination.prefix == "raw_"
    assert prod.source.use == "airbyte:source-faker"
    assert prod.source.config == {
        "count": 1000000,
        "nested": {"a": 1, "b": 3},
        "password": "hunter2",
    }
    assert "hunter2" in prod.secret_values
    assert prod.position("source.config.count") == "shop.yaml:10"


def test_each_profile_has_a_state_of_its_own() -> None:
    assert read("prod", SHOP_PASSWORD="x").pipeline == "shop.prod"
    assert read("named").pipeline == "elsewhere"


def test_a_fault_in_a_profile_has_its_line_and_one_that_is_not_used_has_none() -> None:
    faulty = FILE.replace("lanes: auto", "lnaes: 3")
    assert read(None, faulty).lanes == 2
    with pytest.raises(ConfigError, match=r"shop.yaml:12: .*lnaes"):
        read("prod", faulty, SHOP_PASSWORD="x")


@pytest.mark.parametrize(
    ("text", "profile", "code", "says"),
    [
        (FILE, "prdo", "config.unknown_profile", "no profile 'prdo'"),
        (FILE.partition("profiles")[0], "prod", "config.unknown_profile", "no profile 'prod'"),
        (FILE + "  bad: 3\n", None, "config.invalid", "shop.yaml:14: profiles.bad is a mapping"),
        (FILE.partition("profiles")[0] + "profiles: [a]\n", None, "config.invalid", "shop.yaml:7"),
    ],
)
def test_what_is_no_profile_is_refused(
    text: str, profile: str | None, code: str, says: str
) -> None:
    with pytest.raises(ConfigError) as refused:
        read(profile, text)
    assert refused.value.code == code and says in refused.value.message
    assert refused.value.hint


def test_the_schema_of_the_file_knows_profiles() -> None:
    schema = pipeline_json_schema()
    ends = {"source": {"use": "airbyte:x"}, "destination": {"use": "parquet:./lake"}}
    checked = jsonschema_rs.validator_for(schema)
    assert checked.is_valid({"pipeline": "p", **ends, "profiles": {"prod": {"lanes": 3}}})
    assert not checked.is_valid({"pipeline": "p", **ends, "profiles": [3]})
