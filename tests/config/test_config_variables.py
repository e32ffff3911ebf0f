"""``${NAME}`` (docs/pipeline-file.md): types, text, escapes; no value adds structure."""

import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.config.load import load_pipeline, parse_pipeline
from penstock.config.pipeline import Pipeline
from penstock.config.variables import read_env_file
from penstock.errors import ConfigError


def load(value: str, **variables: str) -> Pipeline:
    return parse_pipeline(
        f"pipeline: p\nsource:\n  use: x\n  config:\n    v: {value}\ndestination: {{use: y}}\n",
        variables,
        name="shop.yml",
    )


def resolved(value: str, **variables: str) -> Any:
    return load(value, **variables).source.config["v"]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("5432", 5432),
        ("-1", -1),
        ("1.5", 1.5),
        ("1e3", 1000.0),
        ("true", True),
        ("False", False),
        ("null", None),
        ("", None),
        ("99999999999999999999", "99999999999999999999"),
        *[
            (text, text)
            for text in (
                "text", "0123", "[1]", "a: b", "{a: 1}", "'5'", "*x", "!!int 5", "# no", "a\nb: c",
                " 5", "${OTHER}", "2020-01-01", "- a", "&a 1", "<<", "? x", "| x", "%x", "@x",
            )
        ],
    ],
)  # fmt: skip
def test_a_plain_scalar_alone_takes_yamls_type(value: str, expected: object) -> None:
    found = resolved("${V}", V=value)
    assert found == expected
    assert type(found) is type(expected)


def test_inside_longer_and_quoted_scalars_it_is_text() -> None:
    assert resolved('"${V}"', V="5") == "5"
    assert resolved("'${V}'", V="") == ""
    assert resolved("a${V}b${V}", V="5") == "a5b5"
    assert resolved("${V}0", V="5") == "50"
    assert resolved("${A}${B}", A="1", B="2") == "12"
    assert resolved("|\n      x ${V}\n", V="5") == "x 5\n"


def test_inside_flow_collections_as_well() -> None:
    assert resolved("{a: ${V}, b: [${V}, x${V}]}", V="5") == {"a": 5, "b": [5, "x5"]}


def test_escape_and_default() -> None:
    assert resolved("$${V}") == "${V}"
    assert resolved("a $${V} ${V}", V="1") == "a ${V} 1"
    assert resolved("${V:-5432}") == 5432
    assert resolved("${V:-5432}", V="") == 5432
    assert resolved("${V:-}") is None
    assert resolved('"${V:-}"') == ""
    assert resolved("${V:-[1]}") == "[1]"
    assert resolved("$V {V} $ 5$") == "$V {V} $ 5$"


def test_missing_and_malformed_references_say_where() -> None:
    with pytest.raises(ConfigError) as caught:
        load("${NOPE}-${1X}")
    assert caught.value.problems == [
        "shop.yml:5: variable NOPE is not set (source.config.v)",
        "shop.yml:5: '${1X}' is not a variable: names have letters, digits and '_'; write $${ for "
        "the text ${ (source.config.v)",
    ]
    assert "--env-file" in (caught.value.hint or "")


def test_a_variable_that_is_not_utf8_is_told() -> None:
    with pytest.raises(ConfigError, match=r"variable V is not UTF-8 text"):
        load("${V}", V=b"\xff".decode("utf-8", "surrogateescape"))


def test_comments_and_unused_references_need_no_value() -> None:
    assert resolved("1 # ${NOPE}") == 1


def test_our_own_keys_take_variables() -> None:
    text = "pipeline: ${P}\nsource: {use: x}\ndestination: {use: y}\nlanes: ${L}\n"
    pipeline = parse_pipeline(text, {"P": "2024", "L": "3"})
    assert (pipeline.pipeline, pipeline.lanes) == ("2024", 3)
    with pytest.raises(ConfigError) as caught:
        parse_pipeline(text, {"P": "x", "L": "hunter2"}, name="a.yml")
    assert caught.value.problems == [
        "a.yml:4: lanes must be 'auto' or a whole number of at least 1, not what ${L} holds"
    ]


def test_secrets_are_remembered_and_never_shown() -> None:
    """L10: what came from a variable is known by path and value."""
    pipeline = load('{password: "${PW}", "a.b": x${PW}y, port: ${PORT:-5}}', PW="hunter2")
    assert pipeline.secret_paths == ("source.config.v.password", 'source.config.v["a.b"]')
    assert pipeline.secret_values == {"hunter2"}
    text = (
        "pipeline: p\nsource: {use: x, ${PW}: 1, streams: [{name: a, mode: ${PW}}]}\n"
        "destination: {use: y, deletes: '${PW}', config: ${PW}}\nlanes: ${PW}\n"
        "timeouts: {start: ${PW}}\nstrict: ${PW}\nstate: {backend: ${PW}}\nversion: ${PW}\n"
        "spark: ${PW}\ntransforms: ${PW}\n"
    )
    with pytest.raises(ConfigError) as caught:
        parse_pipeline(text, {"PW": "hunter2"})
    assert len(caught.value.problems) >= 10
    assert "hunter2" not in str(caught.value.as_dict()) + str(caught.value.problems)


def _shape(data: Any) -> Any:
    if isinstance(data, dict):
        return {k: _shape(v) for k, v in data.items()}
    return [_shape(v) for v in data] if isinstance(data, list) else "scalar"


STRUCTURAL = st.text(alphabet=st.sampled_from(list("[]{}:,-#&*!|>'\"%@`$\\ \n\tab01${}~?=<.")))


@settings(max_examples=300, deadline=None)
@given(value=STRUCTURAL | st.text())
def test_no_value_adds_structure(value: str) -> None:
    """Whatever a variable holds, lists and mappings stay those of the file."""
    form = "{a: ${V}, b: [${V}, \"${V}\"], c: x${V}, d: {e: '${V}'}}"
    config = load(form, V=value).source.config
    assert _shape(config) == {
        "v": {
            "a": "scalar",
            "b": ["scalar", "scalar"],
            "c": "scalar",
            "d": {"e": "scalar"},
        }
    }
    assert config["v"]["b"][1] == value
    assert config["v"]["c"] == "x" + value
    alone = config["v"]["a"]
    assert alone == value if isinstance(alone, str) else isinstance(alone, int | float | None)


@settings(max_examples=200, deadline=None)
@given(text=st.text())
def test_no_file_makes_anything_but_a_pipeline_or_a_config_error(text: str) -> None:
    try:
        parse_pipeline(text, {})
    except ConfigError as error:
        assert error.code.startswith("config.")


def test_private_use_characters_in_a_file_are_kept() -> None:
    assert resolved('"\ue000${V}\ue001\ue003"', V="5") == "\ue0005\ue001\ue003"


# -- --env-file
def test_env_file_forms(tmp_path: Path) -> None:
    file = tmp_path / "prod.env"
    file.write_text(
        "# comment\n\nA=1\nexport B = two words # note\nC='single ${A} \\n # kept'\n"
        'D="line\\nbreak \\"q\\" \\\\"\nE=\nF="-----BEGIN\nKEY-----" # pem\nG=a#b\nH=x=y\r\n'
    )
    assert read_env_file(file) == {
        "A": "1",
        "B": "two words",
        "C": "single ${A} \\n # kept",
        "D": 'line\nbreak "q" \\',
        "E": "",
        "F": "-----BEGIN\nKEY-----",
        "G": "a#b",
        "H": "x=y",
    }


def test_env_file_faults_show_no_value(tmp_path: Path) -> None:
    file = tmp_path / "prod.env"
    file.write_text('A=1\nhunter2\n1B=hunter2\nC=\'hunter2\nD="hunter2" more\n')
    with pytest.raises(ConfigError) as caught:
        read_env_file(file)
    assert [p.removeprefix(str(tmp_path) + "/") for p in caught.value.problems] == [
        "prod.env:2: expected NAME=value",
        "prod.env:3: expected NAME=value",
        "prod.env:4: the quote of C is not closed",
        "prod.env:5: text after the closing quote of D",
    ]
    assert "hunter2" not in str(caught.value.as_dict()) + str(caught.value.problems)
    with pytest.raises(ConfigError, match=r"cannot be read: No such file"):
        read_env_file(tmp_path / "none.env")


def test_the_environment_goes_before_the_file(tmp_path: Path) -> None:
    file = tmp_path / "prod.env"
    file.write_text("A=file\nB=file\n")
    pipeline = tmp_path / "p.yml"
    pipeline.write_text("pipeline: ${A}-${B}\nsource: {use: x}\ndestination: {use: y}\n")
    assert load_pipeline(pipeline, {"A": "env"}, file).pipeline == "env-file"


# -- .env next to the file
FILE = (
    "pipeline: ${A}-${B}-${D:-d}\nsource: {use: x, config: {c: '${C:-c}'}}\ndestination: {use: y}\n"
)


def beside(tmp_path: Path, text: str, file: str = FILE) -> Path:
    (tmp_path / ".env").write_text(text)
    (tmp_path / "p.yml").write_text(file)
    return tmp_path / "p.yml"


def test_env_beside_the_file_gives_what_nothing_else_has(tmp_path: Path) -> None:
    given = tmp_path / "prod.env"
    given.write_text("A=file\nB=file\n")
    pipeline = beside(tmp_path, "A=beside\nB=beside\nC=beside\nE=unused\n")
    found = load_pipeline(pipeline, {"A": "env"}, given)
    assert (found.pipeline, found.source.config) == ("env-file-d", {"c": "beside"})
    assert found.env_file_names == ("C",) and found.env_file == str(tmp_path / ".env")
    found = load_pipeline(pipeline, {"A": "", "B": "1", "C": "", "D": "2"})
    assert (found.pipeline, found.env_file_names, found.env_file) == ("-1-2", (), None)
    assert found.source.config == {"c": "c"}


def test_values_of_env_beside_the_file_are_secrets_and_set_no_variable(tmp_path: Path) -> None:
    text = "pipeline: p\nsource: {use: x, config: {token: '${T}'}}\ndestination: {use: y}\n"
    environ: dict[str, str] = {}
    found = load_pipeline(beside(tmp_path, "T=hunter2-from-beside\n", text), environ)
    assert "hunter2-from-beside" in found.secret_values and environ == {}
    assert "T" not in os.environ


@pytest.mark.parametrize("kind", ["none", "folder", "fault"])
def test_env_beside_the_file_that_gives_nothing(tmp_path: Path, kind: str) -> None:
    """A file that runs today, by its defaults, goes on whatever lies beside it."""
    pipeline = beside(tmp_path, "hunter2\nC=1\n")
    if kind != "fault":
        (tmp_path / ".env").unlink()
    if kind == "folder":
        (tmp_path / ".env").mkdir()  # a virtual environment
    found = load_pipeline(pipeline, {"A": "a", "B": "b"})
    assert found.pipeline == "a-b-d" and found.env_file is None
    assert [".env" in w and "hunter2" not in w for w in found.warnings] == [True] * (
        kind == "fault"
    )
    with pytest.raises(ConfigError) as caught:
        load_pipeline(pipeline, {"A": "a"})
    told = [*caught.value.problems, caught.value.hint or ""]
    assert "variable B is not set (pipeline)" in told[0] and ".env next to" in told[-1]
    assert ("nothing is taken from it" in str(told)) is (kind == "fault")


def test_text_and_stdin_have_no_file_beside_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    beside(tmp_path, "A=1\nB=1\n")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match="2 problems"):
        load_pipeline(FILE, {})


@pytest.mark.parametrize("key", ["pipeline", "state", "log"])
def test_env_beside_the_file_changes_no_default_of_where_progress_is(
    tmp_path: Path, key: str
) -> None:
    """A file of before goes on under its name, whatever `.env` of another tool lies beside it."""
    keys = {
        "pipeline": "pipeline: shop-${STAGE:-dev}\n",
        "state": "pipeline: p\nstate: {path: '/srv/${STAGE:-dev}/s.db'}\n",
        "log": "pipeline: p\nlog: {path: '/srv/${STAGE:-dev}/log'}\n",
    }
    source = "source: {use: x, config: {s: '${STAGE:-dev}'}}\n"
    text = f"{keys[key]}{source}destination: {{use: y}}\n"

    def place(text: str, environ: dict[str, str], *, warned: bool) -> str:
        found = load_pipeline(beside(tmp_path, "STAGE=prod\n", text), environ)
        assert len([w for w in found.warnings if "STAGE" in w]) == warned
        assert all("prod" not in w for w in found.warnings)
        assert found.source.config == {"s": "prod"}
        where = {"pipeline": found.pipeline, "state": found.state and found.state.path}
        return str({**where, "log": found.log and found.log.path}[key])

    assert "dev" in place(text, {}, warned=True)
    assert "prod" in place(text, {"STAGE": "prod"}, warned=False)
    assert "prod" in place(text.replace(":-dev", ""), {}, warned=False)
