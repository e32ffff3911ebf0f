"""The documents: a site without a broken link, and pages whose blocks are what they say.

Pipeline files in them parse, Python compiles, JSON is JSON, and a command names a verb and options
that there are. The blocks of the page on reading tables run on tables that a run wrote.
"""

import ast
import importlib
import json
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest
import typer.main
import yaml
from doc_blocks import LANGUAGES, ROOT, Block, blocks
from doc_follow import commands

from penstock.cli import VERBS
from penstock.config.load import parse_pipeline

if TYPE_CHECKING:
    pass

STUB = ROOT / "tests" / "stubs" / "stub_source.py"


# -- the site


def test_every_page_has_its_place_in_the_site() -> None:
    def pages(place: Any) -> Iterator[str]:
        for value in place.values() if isinstance(place, dict) else place:
            yield from [value] if isinstance(value, str) else pages(value)

    nav = yaml.safe_load((ROOT / "mkdocs.yml").read_text())["nav"]
    assert sorted(pages(nav)) == sorted(page.name for page in (ROOT / "docs").glob("*.md"))


def test_the_site_is_built_without_a_warning() -> None:
    command = [sys.executable, "-m", "zensical", "build", "--strict"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    index = (ROOT / "dist" / "site" / "index.html").read_text()
    assert "A first pipeline" in index
    elsewhere = re.findall(r'(?:src|href)="(https?://[^"]+\.(?:js|css|woff2?))"', index)
    assert elsewhere == [], "a reader's browser fetches nothing from elsewhere"


def test_the_page_of_error_codes_is_that_of_the_code() -> None:
    command = [sys.executable, str(ROOT / "scripts" / "error_page.py"), "--check"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, "python scripts/error_page.py writes it anew"


def test_every_module_and_folder_that_the_architecture_names_exists() -> None:
    """A path counts from the root of the source, or is the end of one (``delta/tables.py``)."""
    text = (ROOT / "docs" / "architecture.md").read_text()
    source = ROOT / "src" / "penstock"
    modules = {f"/{path.relative_to(source)}" for path in source.rglob("*.py")}
    folders = {f"/{path.parent.relative_to(source)}" for path in source.rglob("*.py")}
    paths = re.findall(r"`((?:[a-z_]+/)*[a-z_]+\.py|(?:[a-z_]+/)+[a-z_]+)`", text)
    assert len(paths) > 50
    missing = {
        path
        for path in paths
        if not any(known.endswith(f"/{path}") for known in modules | folders)
        and f"/{path}.py" not in modules
        and not (ROOT / path).exists()
    }
    assert missing == set()
    contracts = re.findall(r"`([a-z_]+(?:\.[a-z_]+)+)\.([A-Z]\w+)`", text)
    for module, name in contracts:
        assert hasattr(importlib.import_module(f"penstock.{module}"), name), (module, name)


def test_each_page_begins_with_what_its_reader_wants_and_what_it_presupposes() -> None:
    for page in sorted((ROOT / "docs").glob("*.md")):
        title, empty, wanted, presupposed = page.read_text().split("\n", 4)[:4]
        assert title.startswith("# ") and not empty, page.name
        assert re.match(r"\*You want to\* .*\w", wanted), page.name
        assert re.match(r"\*Presupposes:\* .*\w", presupposed), page.name


def test_a_page_is_read_in_one_go() -> None:
    words = {page.name: len(page.read_text().split()) for page in (ROOT / "docs").glob("*.md")}
    assert {name: count for name, count in words.items() if count > 1500} == {}
    assert len((ROOT / "README.md").read_text().split()) <= 900
    released = (ROOT / "CHANGELOG.md").read_text().split("\n## ")[1]
    assert len(released.split()) <= 1500


# -- blocks


def test_every_block_is_of_a_known_language() -> None:
    assert {block.language for block in blocks()} <= LANGUAGES


@pytest.mark.parametrize("block", list(blocks("yaml")), ids=str)
def test_a_pipeline_file_parses(block: Block) -> None:
    """Where only a part of one is shown, what is missing is put in."""
    names = re.findall(r"\$\{(\w+)\}", block.text)
    whole = block.text
    found = yaml.safe_load(re.sub(r"\$\{[^}]*\}|!secret ", "1", block.text))
    parts = {"pipeline", "source", "destination"}
    if not isinstance(found, dict) or not found.keys() & parts or "model" in found:
        return  # a connector's own file, keys of a section, or a sync of a Syncmaven project
    if "pipeline" not in found:
        whole = f"pipeline: shown\n{whole}"
    if "source" not in found:
        whole += "\nsource: { use: airbyte:source-faker }\n"
    if "destination" not in found:
        whole += "\ndestination: { use: parquet:./lake }\n"
    parse_pipeline(whole, {n: "https://a.example" if n.endswith("_URL") else "1" for n in names})


@pytest.mark.parametrize("block", list(blocks("python")), ids=str)
def test_python_compiles(block: Block) -> None:
    ast.parse(block.text)


@pytest.mark.parametrize("block", list(blocks("json")), ids=str)
def test_json_is_json(block: Block) -> None:
    text = block.text.replace("...", "")  # what is left out
    decode, at = json.JSONDecoder().raw_decode, 0
    while rest := text[at:].lstrip():  # one document after the other
        at = len(text) - len(rest) + decode(rest)[1]


@pytest.mark.parametrize("block", list(blocks("sh", "console")), ids=str)
def test_a_command_is_one_that_there_is(block: Block) -> None:
    text = block.text
    if block.language == "console":
        text = "\n".join(command for command, _ in commands(text))
    done = subprocess.run(["bash", "-n"], input=text, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    for command in re.split(r"\n|\||;|&&", text.replace("\\\n", " ")):
        words = shlex.split(command, comments=True) if command.count("'") % 2 == 0 else []
        if not words or words[0] not in ("penstock", "./penstock"):
            continue
        if words[1] in ("--version", "--help", "VERB") or words[1].startswith("{"):
            continue
        asked = _command(words[1])
        inner = getattr(asked, "commands", {})
        if len(words) > 2 and words[2] in inner:
            asked = inner[words[2]]
        if words[1] == "serve":  # its options are those of the protocol that it speaks
            continue
        known = {o for p in asked.params for o in [*p.opts, *p.secondary_opts]} | {"--help", "--as"}
        given = {w.partition("=")[0] for w in words[2:] if re.match(r"--[a-z]", w)}
        assert given <= known, (command, given - known)


def _command(verb: str) -> Any:
    assert verb in VERBS, verb
    module = importlib.import_module(f"penstock.cli.{VERBS[verb].module}")
    return typer.main.get_command(getattr(module, VERBS[verb].app))
