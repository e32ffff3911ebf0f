"""docs/pipeline-*.md say what the reader does: every key, every example."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.config.load import parse_pipeline
from penstock.config.schema import pipeline_json_schema

DOCS = Path(__file__).parents[2] / "docs"
PAGE = "".join(p.read_text() for p in [*DOCS.glob("pipeline-*.md"), DOCS / "rapidbyte-v4.md"])
EXAMPLES = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
DEFS = pipeline_json_schema()["$defs"]
FORMS = {
    "cursor_field": "name or path",
    "columns": "list of names or paths",
    "on_success": "URL or command",
    "on_failure": "URL or command",
    "primary_key": "name, names or paths",
    "max_rejected": "count or percentage",
    "history": "boolean or `keyed`",
    "streams": "list of streams",
    "transforms": "list of connectors",
    "enrichments": "list of connectors",
    "mode": "mode word",
    "write_mode": "mode word",
    "sync_mode": "sync mode word",
    "destination_sync_mode": "destination mode word",
}


def section_of(schema: dict[str, Any]) -> str | None:
    refs = [schema, *schema.get("anyOf", [])]
    names = [r["$ref"].rpartition("/")[2] for r in refs if "$ref" in r]
    return next((n for n in names if n != "Variable"), None)


def flat(schema: dict[str, Any]) -> list[dict[str, Any]]:
    inner = schema.get("anyOf")
    return [schema] if inner is None else [leaf for option in inner for leaf in flat(option)]


def form(key: str, schema: dict[str, Any]) -> str:
    """The type of a key in a word or two."""
    if key in FORMS:
        return FORMS[key]
    options = [o for o in flat(schema) if "$ref" not in o]
    texts: list[str] = []
    for option in options:
        if "enum" in option:
            texts += [f"`{word}`" for word in option["enum"] if word is not None]
        elif "const" in option:
            texts += [f"`{option['const']}`"] if isinstance(option["const"], str) else []
        elif "pattern" in option:
            texts = ["size" if "bB" in option["pattern"] else "duration"]
            break
        elif option.get("type") == "array":
            texts.append("list of texts")
        elif option.get("type") not in ("null", None):
            texts.append(
                {"string": "text", "object": "mapping"}.get(option["type"], option["type"])
            )
    return ", ".join(texts)


def rows(section: str, path: str) -> Iterator[str]:
    required = DEFS[section].get("required", [])
    for key, schema in DEFS[section]["properties"].items():
        nested = section_of(schema)
        if nested and key != "streams":
            continue
        default = "required" if key in required else json.dumps(schema.get("default"))
        default = {"null": "", "{}": "", "[]": ""}.get(default, default)
        shown = default if default in ("", "required") else f"`{default}`"
        yield f"| `{path}{key}` | {form(key, schema)} | {shown} | {schema['description']} |"


TABLES = {
    "PipelineFile": "",
    "Source": "source.",
    "StreamOptions": "source.streams[].",
    "NetworkPermissions": "….permissions.network.",
    "EnvironmentPermissions": "….permissions.env.",
    "FilesystemPermissions": "….permissions.fs.",
    "Limits": "….limits.",
    "ContainerSettings": "….container.",
    "Enrichment": "enrichments[].",
    "EnrichmentCache": "enrichments[].cache.",
    "Destination": "destination.",
    "SchemaEvolution": "destination.schema_evolution.",
    "StateSettings": "state.",
    "LogSettings": "log.",
    "HookSettings": "hooks.",
    "SparkSettings": "spark.",
    "Timeouts": "timeouts.",
    "LoadBounds": "load.",
    "Resources": "resources.",
    "Autotune": "resources.autotune.",
}


@pytest.mark.parametrize("section", TABLES)
def test_every_key_is_in_the_page_with_type_default_and_meaning(section: str) -> None:
    missing = [row for row in rows(section, TABLES[section]) if row not in PAGE]
    assert missing == []


@pytest.mark.parametrize("text", EXAMPLES)
def test_every_example_parses(text: str) -> None:
    variables = {"PGHOST": "db", "PGPORT": "5432", "PGPASSWORD": "secret"}
    variables |= {"ALERT_URL": "https://hooks.example.com/x", "SHOP_URL": "postgresql://a@b/c"}
    assert parse_pipeline(text, variables).warnings == ()


def test_the_page_has_examples() -> None:
    assert len(EXAMPLES) >= 4


def test_every_dependency_has_its_reason() -> None:
    root = Path(__file__).parents[2]
    project = (root / "pyproject.toml").read_text()
    page = (root / "docs" / "dependencies.md").read_text()
    names = re.findall(r'^    "([a-z0-9-]+)', project.partition("[tool.")[0], re.MULTILINE)
    assert names
    assert [name for name in names if f"| `{name}` |" not in page] == []


ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").glob("*.md"))]
MANY_TABLES = "kill-matrix.md"  # its rows are alike on purpose
LONG = 50


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_nothing_is_said_twice(page: Path) -> None:
    """What a merge doubles: a heading, a line, a row of a table with the same first cell."""
    text = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
    text = text.partition("\n## 0.1")[0]  # of the change log the newest version
    lines = [line.strip() for line in text.splitlines()]
    kept = [line for line in lines if line.startswith("#") or len(line) > LONG]
    cells = [
        f"{number} {line.split('|')[1].strip()}"
        for number, table in enumerate(re.split(r"\n\s*\n", text))
        for line in table.splitlines()
        if line.startswith("|") and not re.match(r"\|[\s|-]+$", line) and line.split("|")[1].strip()
    ]
    headings = [line for line in kept if line.startswith("#")]
    said = headings if page.name == MANY_TABLES else [*kept, *cells]
    assert sorted({one for one in said if said.count(one) > 1}) == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_table_s_rows_stand_in_a_table(page: Path) -> None:
    """Rows that a merge left behind have no rule above them."""
    text = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
    blocks = re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE)
    assert [b[:80] for b in blocks if not re.search(r"^\|[\s|:-]+$", b, re.MULTILINE)] == []
    glued = re.findall(r"^[^\n]+\n#+ [^\n]*$", text, re.MULTILINE)
    assert glued == [], "a heading stands after an empty line"


def test_links_within_the_pages_lead_somewhere() -> None:
    def anchor(heading: str) -> str:
        return re.sub(r"[^\w -]", "", heading.lower()).strip().replace(" ", "-")

    anchors = {
        page.name: {anchor(h) for h in re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)}
        for page in PAGES
    }
    broken: list[str] = []
    for page in PAGES:
        for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
            file, _, part = target.partition("#")
            if "://" in target:
                continue
            if file and not (page.parent / file).exists():
                broken.append(f"{page.name}: {target}")
            name = Path(file).name if file else page.name
            if part and name in anchors and part not in anchors[name]:
                broken.append(f"{page.name}: {target}")
    assert broken == []
