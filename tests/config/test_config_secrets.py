"""L10: what of a pipeline file is masked wherever text is written, and what is not."""

from typing import Any

import pytest

from penstock.config.load import parse_pipeline
from penstock.config.pipeline import Pipeline
from penstock.errors import ConfigError


def load(line: str, **variables: str) -> Pipeline:
    return parse_pipeline(
        f"pipeline: p\nsource:\n  use: x\n  config:\n    {line}\ndestination: {{use: y}}\n",
        variables,
        name="shop.yml",
    )


@pytest.mark.parametrize(
    ("line", "value"),
    [
        ("count: ${N}", "3000"),
        ('count: "${N}"', "3000"),
        ("rate: ${N}", "0.25"),
        ("big: ${N}", "99999999999999999999"),
        ("zip: ${N}", "01067"),
        ("on: ${N}", "true"),
        ("start_date: ${N}", "2024-01-01"),
        ("start_date: ${N}", "2024-01-01T00:00:00Z"),
        ("region: ${N}", "eu"),
        ("stage: ${N}", "prod"),
    ],
)
def test_what_everybody_writes_is_no_secret_for_coming_from_a_variable(
    line: str, value: str
) -> None:
    """Masked it would turn \"loaded users: 3000 records\" into \"**** records\"."""
    assert load(line, N=value).secret_values == frozenset()


@pytest.mark.parametrize(
    ("line", "value"),
    [
        ("host: ${N}", "db.internal.example"),
        ("anything: ${N}", "hunter2"),
        ("url: postgres://u:${N}@db/x", "12345678"),
        ("password: ${N}", "12345678"),
        ("db_passwd: ${N}", "true"),
        ("client_secret: ${N}", "2024-01-01"),
        ("apiKey: ${N}", "eu-1"),
        ("credentials: {access_token: ${N}}", "48151623"),
        ("pin: ${N}", "4711"),
        ("anything: ${N}", "-----BEGIN KEY-----"),
    ],
)
def test_l10_texts_and_what_a_key_calls_secret_stay_masked(line: str, value: str) -> None:
    assert value in load(line, N=value).secret_values


@pytest.mark.parametrize(
    ("line", "value", "secret"),
    [
        ("count: !secret 4815162342", 4815162342, "4815162342"),
        ('word: !secret "abc def"', "abc def", "abc def"),
        ("word: !secret ${N}", 77, "77"),
        ("word: !secret a${N}b", "a77b", "a77b"),
    ],
)
def test_l10_secret_is_what_the_file_says(line: str, value: Any, secret: str) -> None:
    found = load(line, N="77")
    assert list(found.source.config.values()) == [value]
    assert secret in found.secret_values
    assert found.secret_paths == (f"source.config.{line.partition(':')[0]}",)


@pytest.mark.parametrize("line", ["all: !secret {a: 1}", "all: !secret [1]"])
def test_several_values_cannot_be_called_secret_at_once(line: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load(line)
    assert "!secret stands before one value" in caught.value.problems[0]


NAMED = """
pipeline: shop_${SHOP}
source:
  use: airbyte:source-faker
  config: { account: "${CODE}" }
  defaults: { cursor_field: "${CURSOR}" }
  streams:
    - { name: "${STREAM}", namespace: "${SPACE}", columns: ["${COLUMN}"] }
    - ${OTHER}
  exclude: ["${LEFT}"]
destination:
  use: airbyte:./destination
  namespace: "${WHERE}"
  prefix: "${BEGIN}"
"""


def test_names_are_no_secrets_for_coming_from_variables() -> None:
    """A hint is a command that runs as printed: `penstock state reset shop_...`."""
    names = ("SHOP", "CURSOR", "STREAM", "SPACE", "COLUMN", "OTHER", "LEFT", "WHERE", "BEGIN")
    values = {name: f"{name.lower()}-with-text" for name in (*names, "CODE")}
    pipeline = parse_pipeline(NAMED, values)
    assert pipeline.pipeline == "shop_shop-with-text"
    assert pipeline.secret_values == {"code-with-text"}
    marked = parse_pipeline(NAMED.replace("shop_$", "!secret shop_$"), values)
    assert "shop_shop-with-text" in marked.secret_values
    config = NAMED.replace('account: "${CODE}"', 'account: "${SHOP}"')
    assert parse_pipeline(config, values).secret_values == {"shop-with-text"}  # L10
