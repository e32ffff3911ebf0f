"""Searches that people make, and the connector that they want first.

The wanted connectors were decided before the ranking was written.
"""

import pytest

from penstock.config.protocol_spec import EndpointRole
from penstock.connectors.catalog.index import indexed
from penstock.connectors.catalog.search import named, near, others, search

GIT = "singer:git+https://github.com"

WANTED = [
    ("github", None, "airbyte:source-github"),
    ("stripe", None, "airbyte:source-stripe"),
    ("postgres", None, "singer:meltanolabs-tap-postgres"),
    ("postgresql", None, "singer:meltanolabs-tap-postgres"),
    ("postgres", "destination", "singer:meltanolabs-target-postgres"),
    ("mysql", None, "singer:pipelinewise-tap-mysql"),
    ("MariaDB", None, "singer:pipelinewise-tap-mysql"),
    ("sql server", None, "singer:tap-mssql"),
    ("mssql", None, "singer:tap-mssql"),
    ("mongo", None, "singer:tap-mongodb"),
    ("kafka", "source", "singer:pipelinewise-tap-kafka"),
    ("snowflake target", None, "singer:meltanolabs-target-snowflake"),
    ("big query", "destination", "singer:z3-target-bigquery"),
    ("redshift", "destination", f"{GIT}/TicketSwap/target-redshift.git"),
    ("duckdb", "destination", "singer:target-duckdb"),
    ("salesforce", None, "airbyte:source-salesforce"),
    ("hubspot", None, "airbyte:source-hubspot"),
    ("shopify", None, "airbyte:source-shopify"),
    ("jira", None, "airbyte:source-jira"),
    ("zendesk", None, "airbyte:source-zendesk-support"),
    ("quickbooks", None, "airbyte:source-quickbooks"),
    ("slack", None, "airbyte:source-slack"),
    ("google sheets", None, "airbyte:source-google-sheets"),
    ("Google Ads", None, "airbyte:source-google-ads"),
    ("adwords", None, "airbyte:source-google-ads"),
    ("google analytics", None, "airbyte:source-google-analytics-data-api"),
    ("ga4", None, "singer:tap-ga4"),
    ("facebook ads", None, "airbyte:source-facebook-marketing"),
    ("linkedin", None, "airbyte:source-linkedin-ads"),
    ("tiktok", None, "airbyte:source-tiktok-marketing"),
    ("rest api", None, "singer:tap-rest-api-msdk"),
    ("sftp", None, "singer:tap-sftp"),
    ("s3", "source", "airbyte:source-s3"),
    ("csv", "source", f"{GIT}/MeltanoLabs/tap-csv.git"),
    ("csv", "destination", "singer:meltanolabs-target-csv"),
    ("jsonl", "destination", "singer:target-jsonl"),
    ("faker", None, "airbyte:source-faker"),
    ("tap-github", None, "singer:tap-github"),
    ("pg", None, "singer:meltanolabs-tap-postgres"),
    ("fb ads", None, "airbyte:source-facebook-marketing"),
    ("gsheets", None, "airbyte:source-google-sheets"),
    ("airbyte:source-postgres", None, "airbyte:docker:airbyte/source-postgres"),
]


@pytest.mark.parametrize(("words", "role", "wanted"), WANTED)
def test_the_connector_that_is_wanted_comes_first(
    words: str, role: EndpointRole | None, wanted: str
) -> None:
    assert next(hit.connector for hit in search(words.split(), role)) == wanted


def test_all_words_are_met() -> None:
    both = search(["google", "sheets"])
    assert both and all("sheet" in f"{hit.name} {hit.label}".casefold() for hit in both)
    assert len(both) < len(search(["google"]))
    assert search(["google", "zebra"]) == []


def test_a_role_is_an_option_or_a_word() -> None:
    assert {hit.role for hit in search(["snowflake"])} == {"source", "destination"}
    for found in (search(["snowflake"], "destination"), search(["snowflake", "destination"])):
        assert found and {hit.role for hit in found} == {"destination"}
    assert search(["snowflake", "target"], "source")[0].role == "source", "the option decides"


def test_each_reference_comes_once_and_without_words_all_come() -> None:
    found = [hit.connector for hit in search(()) if hit.connector]
    assert len(found) == len(set(found))
    assert set(found) == {entry.connector for entry in indexed() if entry.connector}


def test_the_variant_that_is_maintained_comes_before_one_that_is_not() -> None:
    order = [hit.connector for hit in search(["snowflake"], "destination")]
    kept, given_up = "singer:meltanolabs-target-snowflake", "singer:target-snowflake"
    assert order.index(kept) < order.index(given_up)


@pytest.mark.parametrize(
    ("word", "meant"),
    [
        ("gihub", "github"),
        ("salesfroce", "salesforce"),
        ("postgers", "postgres"),
        ("strpe", "stripe"),
    ],
)
def test_a_misspelt_word_is_near_a_name_that_finds_something(word: str, meant: str) -> None:
    assert search([word]) == []
    assert near([word])[0] == meant
    assert all(search([name]) for name in near([word]))


def test_of_several_words_those_that_are_found_alone_are_near() -> None:
    assert near(["hubspot", "crm"])[0] == "hubspot"
    assert "google ads" in near(["gogle", "ads"])
    assert {hit.role for hit in search(["source", "tap"])} == {"source"}


def test_what_is_like_nothing_is_near_nothing() -> None:
    assert near(["zzzqqqxxx"]) == []
    assert search(["\x1b[31m"]) == [] and search(["!!"]) == [] and near(["!!"]) == []


@pytest.mark.parametrize(
    ("reference", "is_"),
    [
        ("airbyte:source-github", "airbyte:source-github"),
        ("airbyte:source-github@2.0", "airbyte:source-github"),
        ("airbyte:docker:airbyte/source-github", "airbyte:source-github"),
        ("airbyte:docker:airbyte/source-postgres:3.6", "airbyte:docker:airbyte/source-postgres"),
        (f"airbyte:docker:airbyte/source-faker:1@sha256:{'0' * 64}", "airbyte:source-faker"),
        (f"{GIT}/MeltanoLabs/tap-csv.git", f"{GIT}/MeltanoLabs/tap-csv.git"),
        (f"{GIT}/MeltanoLabs/tap-csv@v1.2", f"{GIT}/MeltanoLabs/tap-csv.git"),
        (f"{GIT}/Matatika/tap-veeqo.git", f"{GIT}/Matatika/tap-veeqo.git@v0.3.2"),
        (
            f"{GIT}/transferwise/pipelinewise.git@v1#subdirectory=singer-connectors/tap-mysql",
            f"{GIT}/transferwise/pipelinewise.git#subdirectory=singer-connectors/tap-mysql",
        ),
    ],
)
def test_a_reference_names_its_connector_whatever_its_version(reference: str, is_: str) -> None:
    found = named(reference)
    assert found is not None and found.connector == is_


def test_others_do_the_same_and_have_the_same_role() -> None:
    postgres = named("airbyte:docker:airbyte/source-postgres")
    assert postgres is not None
    found = others(postgres)
    assert found[0].connector == "singer:meltanolabs-tap-postgres"
    assert {each.role for each in found} == {"source"}
    assert postgres not in found
