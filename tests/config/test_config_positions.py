"""The position of a key in its file, and the suggestion for a slip."""

import pytest

from penstock.config.command_line import Options, with_options
from penstock.config.load import parse_pipeline
from penstock.errors import ConfigError

FILE = """
pipeline: p
source:
  use: airbyte:x
  config:
    host: h
    ports: [1, 2]
    deep: { "a.b": { c: 1 } }
  streams:
    - users
    - name: orders
destination: { use: parquet, config: { path: ./x } }
"""


@pytest.mark.parametrize(
    ("path", "line"),
    [
        ("source.config.host", 6),
        ("source.config.ports[1]", 7),
        ("source.config.deep.missing.further", 8),
        ("source.config.missing", 5),
        ("source.streams[1]", 11),
        ("nothing", None),
    ],
)
def test_every_key_has_its_line(path: str, line: int | None) -> None:
    position = parse_pipeline(FILE, {}, name="shop.yml").position(path)
    assert position == (None if line is None else f"shop.yml:{line}")


def test_what_an_option_says_stands_in_no_line() -> None:
    file = parse_pipeline(FILE, {}, name="shop.yml")
    over = with_options(file, Options(config='{"host": "g"}', streams="orders"))
    assert over.position("source.config.host") == "shop.yml:5"
    assert over.position("source.streams[0]") == "shop.yml:3"


@pytest.mark.parametrize("key", ["source", "destination"])
def test_a_connector_without_its_key_is_told_how_to_write_it(key: str) -> None:
    both = {"source": "{use: airbyte:x}", "destination": "{use: parquet:./x}", key: "airbyte:x"}
    text = "pipeline: p\n" + "".join(f"{k}: {v}\n" for k, v in both.items())
    with pytest.raises(ConfigError) as caught:
        parse_pipeline(text, {}, name="shop.yml")
    assert f"write `{key}: {{use: airbyte:x}}`" in caught.value.problems[0]
