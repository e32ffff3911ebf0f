"""Keys of Singer taps and of destinations that are connectors: values, rules, faults by line."""

import textwrap
from pathlib import Path

import pytest

from penstock.config.load import load_pipeline, parse_pipeline
from penstock.config.pipeline import Destination, Pipeline
from penstock.errors import ConfigError
from penstock.protocols.writing import Acks


def parsed(source: str = "", destination: str = "", **variables: str) -> Pipeline:
    return parse_pipeline(text(source, destination), variables, name="shop.yml")


def text(source: str = "", destination: str = "", into: str = "singer:target-jsonl") -> str:
    return textwrap.dedent(
        f"""\
        pipeline: p
        source:
          use: singer:tap-x
          {source}
        destination:
          use: {into}
          {destination}
        """
    )


def fault(document: str, **variables: str) -> str:
    with pytest.raises(ConfigError) as caught:
        parse_pipeline(document, variables, name="shop.yml")
    (problem,) = caught.value.problems
    return problem


# -- destination.namespace and destination.prefix


@pytest.mark.parametrize(
    ("written", "namespace"),
    [
        ("", "source"),
        ("namespace: source", "source"),
        ("namespace: destination", "destination"),
        ("namespace: lake", "lake"),
        ('namespace: "sources"', "sources"),
        ("namespace: 2024", "2024"),
        ('namespace: ""', ""),
        ("namespace: custom_${SOURCE_NAMESPACE}", "custom_${SOURCE_NAMESPACE}"),
        ('namespace: "custom_${SOURCE_NAMESPACE}"', "custom_${SOURCE_NAMESPACE}"),
        ("namespace: ${SOURCE_NAMESPACE}", "${SOURCE_NAMESPACE}"),
        ("namespace: ${ENV}_${SOURCE_NAMESPACE}", "prod_${SOURCE_NAMESPACE}"),
        ("namespace: $${SOURCE_NAMESPACE}", "${SOURCE_NAMESPACE}"),
    ],
)
def test_a_namespace_is_one_of_two_words_or_a_text(written: str, namespace: str) -> None:
    assert parsed(destination=written, ENV="prod").destination.namespace == namespace


def test_the_name_of_the_sources_namespace_is_no_variable_in_its_key() -> None:
    """Also where the environment has a variable of that name; elsewhere it is that variable."""
    pipeline = parsed(
        destination='namespace: "a_${SOURCE_NAMESPACE}"\n          prefix: ${SOURCE_NAMESPACE}_',
        SOURCE_NAMESPACE="mine",
    )
    assert pipeline.destination.namespace == "a_${SOURCE_NAMESPACE}"
    assert pipeline.destination.prefix == "mine_"
    assert pipeline.secret_paths == ()  # a name is no secret
    inline = parse_pipeline(
        "{pipeline: p, source: {use: airbyte:x}, "
        "destination: {use: parquet:./l, namespace: raw_${SOURCE_NAMESPACE}, prefix: p_}}",
        {},
    )
    assert inline.destination.namespace == "raw_${SOURCE_NAMESPACE}"
    assert inline.destination.prefix == "p_"


@pytest.mark.parametrize(
    ("written", "problem"),
    [
        ("namespace: sorce", "7: destination.namespace is 'sorce': did you mean 'source'?"),
        ("namespace: Destination", "did you mean 'destination'?"),
        (
            "namespace: x_${SOURCE_NAMESPAC}",
            "7: variable SOURCE_NAMESPAC is not set; did you mean ${SOURCE_NAMESPACE}? "
            "(destination.namespace)",
        ),
        ("namespace: ${SOURCE_NAMESPACE:-x}", "is not a variable here and has no default"),
        ("namespace:", "7: destination.namespace is empty: write source, destination or a name"),
        ("namespace: [a]", "7: destination.namespace must be text, not a list"),
        ('namespace: "a\\nb"', "destination.namespace has a line break"),
        ('prefix: "a\\tb"', "7: destination.prefix has a line break or another control character"),
        ("prefx: a", "7: unknown key 'prefx' in destination; did you mean 'prefix'?"),
    ],
)
def test_faults_of_names_are_reported_with_their_line(written: str, problem: str) -> None:
    assert problem in fault(text(destination=written))


# -- acks, activate_version


def test_every_word_of_acks_is_one_of_the_protocols() -> None:
    assert {parsed(destination=f"acks: {a.value}").destination.acks for a in Acks} == set(Acks)
    assert Acks(Destination(use="singer:x").acks) is Acks.echo
    assert "did you mean 'strict'?" in fault(text(destination="acks: strickt"))


def test_a_table_takes_no_acks() -> None:
    for into in ("parquet:./lake", "delta:./lake"):
        problem = fault(text(destination="acks: at_end", into=into))
        assert problem.startswith("shop.yml:7: destination: acks goes with a destination connector")
    assert parse_pipeline(text(destination="acks: echo", into="parquet:./lake"), {})


def test_only_a_singer_target_is_sent_activate_version() -> None:
    assert parsed(destination="activate_version: never").destination.protocol_keys == {
        "activate_version": "never"
    }
    assert parsed(destination="activate_version: auto").destination.protocol_keys == {}
    for into in ("parquet:./lake", "airbyte:destination-x"):
        problem = fault(text(destination="activate_version: always", into=into))
        assert "7: destination: activate_version goes with a Singer target" in problem


# -- source.catalog, source.catalog_argument


def test_only_a_tap_has_a_catalog_file() -> None:
    problem = parsed("catalog_argument: properties").source
    assert problem.protocol_keys == {"catalog_argument": "properties"}
    assert parsed("catalog_argument: none").source.protocol_keys == {"catalog_argument": "none"}
    assert parsed().source.protocol_keys == {}
    assert parsed("catalog: c.json").source.catalog == "c.json"
    for written in ("catalog: c.json", "catalog_argument: catalog"):
        problem = fault(text(written).replace("singer:tap-x", "airbyte:source-x"))
        assert problem.startswith("shop.yml:4: source: catalog")
        assert "goes with a Singer tap (use: singer:NAME)" in problem


def test_only_an_airbyte_source_has_attempts() -> None:
    airbyte = text("attempts: 5").replace("singer:tap-x", "airbyte:source-x")
    assert parse_pipeline(airbyte, {}).source.attempts == 5
    assert (parsed().source.attempts, parsed().source.backoff) == (3, 10.0)
    for written in ("attempts: 5", "backoff: 1m"):
        problem = fault(text(written))
        assert "goes with an Airbyte source (use: airbyte:NAME)" in problem
        wasm = fault(text(written).replace("singer:tap-x", "./x.wasm"))
        assert "resources.max_retries" in wasm
    assert "attempts" in fault(text("attempts: 0").replace("singer:tap-x", "airbyte:source-x"))


def test_only_an_airbyte_destination_has_attempts() -> None:
    airbyte = parse_pipeline(text(destination="attempts: 5", into="airbyte:destination-x"), {})
    assert airbyte.destination.attempts == 5
    assert (parsed().destination.attempts, parsed().destination.backoff) == (3, 10.0)
    for into in ("parquet:./lake", "singer:target-x", "./x.wasm"):
        problem = fault(text(destination="backoff: 1m", into=into))
        assert "goes with an Airbyte destination (use: airbyte:NAME)" in problem
        assert ("resources.max_retries" in problem) == (into == "./x.wasm")


def test_a_catalog_file_is_looked_for_beside_the_pipeline_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "pipelines"
    folder.mkdir()
    (folder / "catalog.json").write_text("{}")
    file = folder / "shop.yml"
    file.write_text(text("catalog: ./catalog.json"))
    monkeypatch.chdir(tmp_path)
    assert load_pipeline("pipelines/shop.yml", {}).source.catalog == str(folder / "catalog.json")
    assert load_pipeline(file, {}).source.catalog == str(folder / "catalog.json")
    monkeypatch.chdir(folder)
    assert load_pipeline(file.read_text(), {}).source.catalog == str(folder / "catalog.json")


def test_a_catalog_file_that_is_not_there_is_told_with_its_line(tmp_path: Path) -> None:
    file = tmp_path / "shop.yml"
    (tmp_path / "catalog.json").write_text("{}")
    for written, problem in (
        ("catalog: catalogue.json", "there is no file 'catalogue.json'; did you mean 'catalog."),
        ("catalog: nowhere/c.json", "there is no file 'nowhere/c.json'"),
        ("catalog: ${V}", "there is no file what ${V} holds"),
    ):
        file.write_text(text(written))
        with pytest.raises(ConfigError) as caught:
            load_pipeline(file, {"V": "hidden.json"})
        assert f"{file}:4: source.catalog: {problem}" in caught.value.problems[0]
        assert "hidden" not in caught.value.problems[0]
