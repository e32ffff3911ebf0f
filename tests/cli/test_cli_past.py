"""Verbs that start no connector need no variable of a connector's configuration."""

import pytest
from cli_harness import RUN, SOURCE, Cli

FILE = f"""\
pipeline: shop
source:
  use: '{SOURCE}'
  config: {{day: "${{DAY}}", "${{KEY}}": 1, login: "${{NAME}}:${{PASS}}"}}
transforms:
  - use: airbyte:./t
    config: {{list: [1, {{of: x${{LISTED}}}}]}}
destination: {{use: delta, config: {{path: "./${{LAKE}}"}}}}
"""
LOOKING = [
    ["runs", "p.yaml"],
    ["runs", "p.yaml", RUN],
    ["rejects", "p.yaml"],
    ["state", "show", "p.yaml"],
    ["state", "export", "p.yaml"],
    ["state", "history", "p.yaml"],
]


@pytest.mark.parametrize("words", LOOKING, ids=lambda words: "-".join(words[:2]))
def test_the_past_is_shown_without_the_connectors_variables(shop: Cli, words: list[str]) -> None:
    (shop.cwd / "p.yaml").write_text(FILE)
    answer = shop(*words, "--json")
    assert answer.code == 0, answer.out
    by_name = [word.replace("p.yaml", "shop") for word in words]
    assert answer.json == shop(*by_name, "--json").json


@pytest.mark.parametrize(
    "words",
    [
        ["state", "reset", "p.yaml"],
        ["state", "adopt", "p.yaml"],
        ["state", "adopt", "p.yaml", "--place"],
        ["state", "unlock", "p.yaml"],
        ["state", "rewind", "p.yaml", "--stream", "users", "--to", "1", "--field", "at"],
        ["state", "import", "p.yaml", "state.json"],
    ],
    ids=lambda words: "-".join(w for w in words if w != "p.yaml")[:20],
)
def test_the_state_is_changed_without_them(shop: Cli, words: list[str]) -> None:
    (shop.cwd / "p.yaml").write_text(FILE)
    (shop.cwd / "state.json").write_text(shop("state", "export", "shop").out)
    answer = shop(*words)
    assert answer.code == 0, answer.err
    assert "not set" not in answer.err


def test_a_variable_that_is_set_is_masked_beside_one_that_is_not(shop: Cli) -> None:
    (shop.cwd / "p.yaml").write_text(FILE)
    words = ("rejects", "p.yaml", "--run", "hunter2-and-more")
    assert "hunter2-and-more" in shop(*words).err
    masked = shop(*words, NAME="hunter2-and-more")
    assert masked.code == 2 and "hunter2" not in masked.err + masked.out


@pytest.mark.parametrize(
    "words",
    [["rejects", "retry", "p.yaml"], ["state", "reset", "p.yaml", "--sealed"], ["plan", "p.yaml"]],
)
def test_a_verb_that_opens_a_table_or_a_connector_needs_them(shop: Cli, words: list[str]) -> None:
    (shop.cwd / "p.yaml").write_text(FILE)
    refused = shop(*words)
    assert refused.code == 2 and "variable DAY is not set (source.config.day)" in refused.err


@pytest.mark.parametrize(
    "line",
    [
        "pipeline: ${UNSET}",
        "pipeline: shop\nstate: {url: 'sqlite:///${UNSET}'}",
        "pipeline: shop\nlog: {path: '${UNSET}'}",
    ],
)
def test_where_the_past_is_kept_must_be_known(shop: Cli, line: str) -> None:
    (shop.cwd / "p.yaml").write_text(FILE.replace("pipeline: shop", line))
    refused = shop("runs", "p.yaml")
    assert refused.code == 2 and "variable UNSET is not set" in refused.err
    assert "DAY" not in refused.err


def test_a_malformed_reference_is_a_fault_everywhere(shop: Cli) -> None:
    (shop.cwd / "p.yaml").write_text(FILE.replace("${DAY}", "${1X}"))
    assert "'${1X}' is not a variable" in shop("runs", "p.yaml").err
