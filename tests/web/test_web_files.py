"""What the pages write: the pipeline file with its comments, and secrets in a file of their own."""

import subprocess
from pathlib import Path

import pytest

from penstock.api.new_file import FileEnd, pipeline_text
from penstock.config.home import Home
from penstock.config.load import load_pipeline, parse_pipeline
from penstock.config.selectors import parse_streams
from penstock.config.variables import read_env_file
from penstock.errors import ConfigError
from penstock.web import secret_file
from penstock.web.file_edit import edited, values_of
from penstock.web.pages.live import run_options
from penstock.web.workspace import Workspace
from penstock.web.yaml_text import variable

TEXT = """\
# above
pipeline: shop   # its name
source:
  use: airbyte:source-shop
  config:
    # about rows
    rows: 10
    name: "quoted"
    auth: { kind: open }  # beside
  streams:
    - users   # first
    - { name: orders, mode: mirror }
destination:
  use: parquet:./lake
"""


def test_comments_order_and_quotes_stay() -> None:
    config = {"rows": 12, "name": "quoted", "auth": {"kind": "open"}}
    made = edited(TEXT, {("source", "config"): config})
    assert made == TEXT.replace("rows: 10", "rows: 12")


@pytest.mark.parametrize(
    "value",
    ["yes", "off", "null", "~", "1", "1.0", "1e3", "0x1F", "007", "12:30", "2024-01-01",
     "a: b", "#x", "- x", "'", '"', "\\", "a\nb", "a\n", "  a", "a  ", "", "*a", "&a",
     "!a", "%a", "@a", "`a", "{a}",
     "[a", "é€😀", "a\tb", "=", "<<", "true", "y", "N", "a:", ":a", "|", ">", "?", "a #b"],
)  # fmt: skip
def test_every_text_is_read_back_as_it_was(value: str) -> None:
    made = edited(TEXT, {("source", "config"): {"name": value, "list": [value]}})
    config = load_pipeline(made, env={}).source.config
    assert config == {"name": value, "list": [value]}
    assert values_of(made)["source"]["config"] == config


@pytest.mark.parametrize("value", [0, -1, 2**40, 1.5, True, False, [1, [2]], {"a": {"b": []}}, []])
def test_every_value_is_read_back_as_it_was(value: object) -> None:
    made = edited(TEXT, {("source", "config"): {"v": value}})
    config = load_pipeline(made, env={}).source.config
    assert config == {"v": value} and type(config["v"]) is type(value)


def test_a_variable_in_the_place_of_a_number_stands_without_quotes() -> None:
    made = edited(TEXT, {("source", "config"): {"rows": variable("${ROWS}"), "name": "${NAME}"}})
    config = load_pipeline(made, env={"ROWS": "7", "NAME": "7"}).source.config
    assert config == {"rows": 7, "name": "7"}


def test_a_broken_text_says_its_line() -> None:
    with pytest.raises(ConfigError) as found:
        edited("a: 1\nb: [\n", {("a",): 2})
    assert "the file:3" in found.value.message


def test_a_secret_survives_the_file_whatever_is_in_it(tmp_path: Path) -> None:
    values = {"A_B": 'qu"ote\\ $x ${y} #z\nline é', "C": " lead", "D": "a'b"}
    (tmp_path / ".env").write_text("OTHER=1\n# words\nexport C='old'\n")
    (tmp_path / ".env").chmod(0o600)
    secret_file.store(tmp_path, values)
    assert read_env_file(tmp_path / ".env") == {"OTHER": "1", **values}
    assert (tmp_path / ".env").stat().st_mode & 0o777 == 0o600
    assert "# words" in (tmp_path / ".env").read_text()


def test_a_new_secret_file_is_the_users_alone(tmp_path: Path) -> None:
    secret_file.store(tmp_path, {"A": "x"})
    assert (tmp_path / ".env").stat().st_mode & 0o777 == 0o600
    assert not (tmp_path / ".gitignore").exists()


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o604])
def test_a_file_that_others_may_read_gets_no_secret(tmp_path: Path, mode: int) -> None:
    (tmp_path / ".env").write_text("A=1\n")
    (tmp_path / ".env").chmod(mode)
    with pytest.raises(ConfigError, match="can be read by others") as found:
        secret_file.store(tmp_path, {"B": "x"})
    assert found.value.hint == f"chmod 600 {tmp_path / '.env'}"
    assert (tmp_path / ".env").read_text() == "A=1\n"


def test_a_link_gets_no_secret(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").write_text("")
    (tmp_path / ".env").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ConfigError):
        secret_file.store(tmp_path, {"B": "x"})
    assert (tmp_path / "elsewhere").read_text() == ""


def test_no_variable_of_another_pipeline_is_changed(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("SHOP_SOURCE_TOKEN=theirs\nFREE=1\n")
    (tmp_path / "other.yaml").write_text("x: ${SHOP_SOURCE_KEY}\n")

    def name(path: str, had: object) -> str:
        return secret_file.chosen_name(tmp_path, "shop.yaml", "shop", ("source", path), had)

    assert name("token", None) == "SHOP_SOURCE_TOKEN_2"  # there, and not known to be ours
    assert name("key", None) == "SHOP_SOURCE_KEY_2"
    assert name("token", "${SHOP_SOURCE_TOKEN}") == "SHOP_SOURCE_TOKEN"  # this file's own
    assert name("key", "${SHOP_SOURCE_KEY}") == "SHOP_SOURCE_KEY_2"  # two files use it
    assert name("new", "${FREE}") == "SHOP_SOURCE_NEW"  # not of the pipeline's name


def test_a_variable_of_a_name_that_begins_with_a_digit_is_one(tmp_path: Path) -> None:
    """No shell and no pipeline file has a variable ``2_DAYS``."""
    name = secret_file.chosen_name(tmp_path, "2days.yaml", "2 days", ("source", "token"), None)
    assert name == "_2_DAYS_SOURCE_TOKEN"
    had = f"${{{name}}}"
    assert secret_file.chosen_name(tmp_path, "2.yaml", "2 days", ("source", "token"), had) == name
    schema = {"properties": {"token": {"type": "string", "secret": True}}, "required": ["token"]}
    end = FileEnd("singer:tap-x", schema, "secret")
    text, (variable,) = pipeline_text("2 days", end, FileEnd("parquet:./lake"), own_names=True)
    assert variable.name == name and had in text
    assert parse_pipeline(text, {name: "hush"}).source.config == {"token": "hush"}


def test_a_work_tree_gets_a_gitignore_where_there_is_none(tmp_path: Path) -> None:
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    inner = tmp_path / "inner"
    inner.mkdir()
    secret_file.store(inner, {"A": "x"})
    assert (inner / ".gitignore").read_text() == ".env\n"
    (inner / ".gitignore").write_text("mine\n")
    secret_file.store(inner, {"B": "x"})
    assert (inner / ".gitignore").read_text() == "mine\n"


def test_a_file_that_changed_is_not_overwritten(tmp_path: Path) -> None:
    space = Workspace(tmp_path, Home(tmp_path / "home"))
    (tmp_path / "a.yaml").write_text("pipeline: a\n")
    read = space.text("a.yaml")
    (tmp_path / "a.yaml").write_text("pipeline: b\n")
    with pytest.raises(ConfigError) as found:
        space.save("a.yaml", "pipeline: c\n", read.mark)
    assert found.value.code == "ui.changed"
    assert (tmp_path / "a.yaml").read_text() == "pipeline: b\n"


def test_saving_keeps_the_mode_of_the_file(tmp_path: Path) -> None:
    space = Workspace(tmp_path, Home(tmp_path / "home"))
    file = tmp_path / "a.yaml"
    file.write_text("pipeline: a\n")
    file.chmod(0o640)
    space.save("a.yaml", "pipeline: c\n", space.text("a.yaml").mark)
    assert file.read_text() == "pipeline: c\n" and file.stat().st_mode & 0o777 == 0o640


@pytest.mark.parametrize("name", ["../x", "a/b", ".hidden", "", "-x", "a" * 300])
def test_a_new_file_stays_in_the_folder(tmp_path: Path, name: str) -> None:
    space = Workspace(tmp_path, Home(tmp_path / "home"))
    try:
        made = space.new_name(name)
    except ConfigError:
        return
    assert "/" not in made and not made.startswith(".")


def test_what_is_not_complete_is_run_again_as_the_command_line_would() -> None:
    """Every stream, also one with a comma in its name."""
    option, given = run_options({"stream": ["users", "shop.orders", "a,b"]})
    assert option == "--streams"
    assert [s.name for s in parse_streams(given)] == ["users", "shop.orders", "a,b"]
    assert run_options({"how": ["recreate"], "limit": ["5"]}) == ["--recreate", "--limit", "5"]
    assert run_options({"how": ["profile=x"], "limit": ["-1"]}) == []


def test_what_is_added_after_a_section_leaves_the_section_its_comments() -> None:
    text = 'source:\n  use: x\n  config:\n    a: 1\n    # sql: ""\n    # big: 2\n  # ours\nb: 1\n'
    made = edited(text, {("source", "streams"): ["orders"]})
    assert "    # big: 2\n  streams: [orders]\n" in made and made.endswith("  # ours\nb: 1\n")
    assert edited(made, {("source", "streams"): None}) == text
    inner = edited(text, {("source", "config"): {"a": 1, "c": 3}})
    assert "    a: 1\n    c: 3\n    # sql" in inner
