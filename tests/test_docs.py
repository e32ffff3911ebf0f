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
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
import typer.main
import yaml

import penstock
from penstock.cli import VERBS
from penstock.config.load import parse_pipeline

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
LANGUAGES = {"", "sh", "yaml", "python", "json", "dockerfile", "ini", "text"}
STUB = ROOT / "tests" / "stubs" / "stub_source.py"


class Block(NamedTuple):
    page: str
    line: int
    language: str
    text: str


def blocks(*languages: str) -> Iterator[Block]:
    for page in PAGES:
        text = page.read_text()
        for found in re.finditer(r"^```([a-z]*)\n(.*?)^```", text, re.MULTILINE | re.DOTALL):
            if not languages or found[1] in languages:
                line = text.count("\n", 0, found.start()) + 2
                yield Block(page.name, line, found[1], found[2])


def named(block: Block) -> str:
    return f"{block.page}:{block.line}"


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


# -- blocks


def test_every_block_is_of_a_known_language() -> None:
    assert {block.language for block in blocks()} <= LANGUAGES


@pytest.mark.parametrize("block", list(blocks("yaml")), ids=named)
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


@pytest.mark.parametrize("block", list(blocks("python")), ids=named)
def test_python_compiles(block: Block) -> None:
    ast.parse(block.text)


@pytest.mark.parametrize("block", list(blocks("json")), ids=named)
def test_json_is_json(block: Block) -> None:
    text = block.text.replace("...", "")  # what is left out
    decode, at = json.JSONDecoder().raw_decode, 0
    while rest := text[at:].lstrip():  # one document after the other
        at = len(text) - len(rest) + decode(rest)[1]


@pytest.mark.parametrize("block", list(blocks("sh")), ids=named)
def test_a_command_is_one_that_there_is(block: Block) -> None:
    done = subprocess.run(["bash", "-n"], input=block.text, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    for command in re.split(r"\n|\||;|&&", block.text.replace("\\\n", " ")):
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


@pytest.mark.spark
def test_every_way_to_read_the_tables_reads_all_rows(
    tmp_path: Path, shared_spark: "SparkSession", monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    source = f"airbyte:{sys.executable} {STUB}"
    for lake in ("parquet:lake", "delta:delta_lake"):
        told: dict[str, Any] = {"home": tmp_path / "home", "daemon": False, "name": lake[:5]}
        config = {"streams": 1, "records": 20}
        assert penstock.run(source, lake, config=config, **told).status == "succeeded"
    counts: list[Any] = []
    for block in blocks("python"):
        if block.page != "reading-tables.md":
            continue
        # Spark's Java keeps the folder that it was started in
        text = block.text.replace("users", "s0").replace("lake/", f"{tmp_path}/lake/")
        tree = ast.parse(text.replace(f"delta_{tmp_path}/", f"{tmp_path}/delta_"))
        last = tree.body[-1]
        names: dict[str, Any] = {"spark": shared_spark}
        if isinstance(last, ast.Expr):
            tree.body[-1] = ast.Assign([ast.Name("_", ast.Store())], last.value)
            exec(compile(ast.fix_missing_locations(tree), named(block), "exec"), names)
            found = names["_"]
            found = found[0] if isinstance(found, tuple) else found
            counts.append(found if isinstance(found, int) else len(found))
    assert counts == [20] * 8
