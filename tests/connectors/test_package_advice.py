"""What is advised where the package index has no connector of a name."""

import pytest

from penstock.connectors.package_request import advice

GIT = "singer:git+https://github.com"


@pytest.mark.parametrize(
    ("protocol", "name", "said"),
    [
        ("airbyte", "source-fakr", "did you mean airbyte:source-faker ?"),
        ("singer", "tap-gihub", "did you mean singer:tap-github ?"),
        ("airbyte", "source-postgre", "did you mean airbyte:docker:airbyte/source-postgres ?"),
        ("airbyte", "destination-postgre", "did you mean airbyte:destination-postgres ?"),
        ("singer", "target-orcale", f"did you mean {GIT}/radbrt/target-oracle.git ?"),
        ("singer", "tap-mine", "did you mean singer:tap-mime ?"),
    ],
)
def test_a_misspelt_name_is_compared_with_those_known(protocol: str, name: str, said: str) -> None:
    assert advice(protocol, name, ["tap-mime"] if protocol == "singer" else []) == said


@pytest.mark.parametrize(
    ("name", "package"),
    [
        ("source-postgres", "singer:meltanolabs-tap-postgres"),
        ("source-mysql", "singer:pipelinewise-tap-mysql"),
        ("source-mssql", "singer:tap-mssql"),
        ("source-snowflake", "singer:meltanolabs-tap-snowflake"),
        ("source-mongodb-v2", "singer:tap-mongodb"),
        ("destination-postgres", "singer:meltanolabs-target-postgres"),
    ],
)
def test_an_image_only_connector_names_a_package_that_does_the_same(
    name: str, package: str
) -> None:
    said = advice("airbyte", name, [])
    image = f"it exists as a container image: airbyte:docker:airbyte/{name}"
    assert said == f"{image}; {package} does the same as a package"


def test_a_connector_that_is_no_package_is_named_as_the_index_has_it() -> None:
    said = advice("singer", "tap-csv", [])
    assert said == f"it exists as a repository: {GIT}/MeltanoLabs/tap-csv.git"


def test_a_package_that_nobody_keeps_up_is_not_advised() -> None:
    said = advice("airbyte", "source-redshift", [])
    assert said == "it exists as a container image: airbyte:docker:airbyte/source-redshift"


def test_nothing_is_made_up() -> None:
    assert advice("airbyte", "source-of-all-evil", []) is None
    assert advice("singer", "tap-github", []) is None
