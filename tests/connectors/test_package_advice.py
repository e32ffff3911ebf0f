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


def test_an_image_only_connector_names_a_package_that_does_the_same() -> None:
    said = advice("airbyte", "source-postgres", [])
    assert said is not None
    assert "airbyte:docker:airbyte/source-postgres" in said
    assert "singer:meltanolabs-tap-postgres" in said


def test_a_connector_that_is_no_package_is_named_as_the_index_has_it() -> None:
    said = advice("singer", "tap-csv", [])
    assert said == f"it is no package of that name; write {GIT}/MeltanoLabs/tap-csv.git"


def test_nothing_is_made_up() -> None:
    assert advice("airbyte", "source-of-all-evil", []) is None
    assert advice("singer", "tap-github", []) is None
