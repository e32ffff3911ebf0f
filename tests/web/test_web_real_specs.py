"""Forms over what real connectors publish, of each protocol whose connectors are packages: each is
drawn, filled in as a person would, and what comes back is valid by the check of ``penstock check``
and equal, in type too, once it is written into a file, read and drawn again.

Airbyte's packages are fetched without what they depend on, and none of their code runs: their
specifications lie in them. Singer's are asked with ``--about``.
"""

import json
import os
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml
from page_forms import sent
from uv import find_uv_bin

from penstock.api.asking import asked_spec, reference
from penstock.api.roles import AskedRole
from penstock.config.home import Home
from penstock.config.sections import Install
from penstock.engine.specs.observer import NullObserver
from penstock.errors import ConfigError
from penstock.model.catalog import ConnectorSpec
from penstock.protocols.json_schema.config_check import validate_config
from penstock.protocols.singer.command_line import about_of, config_schema
from penstock.web.connector_specs import form_schema, schema_of_form
from penstock.web.file_edit import edited, values_of
from penstock.web.forms.fields import FormBuilder, FormField, fallbacks
from penstock.web.forms.posted import PostedForm
from penstock.web.yaml_text import same

pytestmark = [pytest.mark.network, pytest.mark.dear]
AIRBYTE, SINGER, RAPIDBYTE = "airbyte_secret", "secret", "x-secret"
SOURCES = """airtable==4.5.1 amazon-ads==7.2.3 amplitude==0.6.19 appsflyer==0.3.3 asana==1.7.2
azure-table==0.1.57 box-data-extract==0.1.18 cart==0.3.58 chargebee==0.8.0 couchbase==0.1.10
faker==7.2.1 fauna==0.1.10 file==0.6.0 firebase-realtime-database==0.1.53 freshdesk==3.1.3
genesys==0.1.42 github==2.7.1 gitlab==4.3.7 google-ads==6.1.7 google-analytics-data-api==2.8.2
google-directory==0.2.45 google-sheets==0.11.0 hardcoded-records==0.0.48 hubspot==5.7.0
instagram==4.1.0 intercom==0.8.3 iterable==1.0.1 jina-ai-reader==0.1.41 jira==4.0.0
klaviyo==2.13.1 kyve==0.2.54 linkedin-ads==5.4.1 mailchimp==2.0.37 marketo==2.1.3
microsoft-dataverse==1.0.2 mixpanel==4.0.2 monday==2.3.1 notion==3.2.0 okta==0.3.26
pokeapi==0.2.15 posthog==1.1.28 recharge==3.0.12 salesforce==2.10.3 sentry==0.6.11 shopify==4.3.0
slack==3.0.0 smartsheets==1.1.46 stripe==5.14.1 surveymonkey==0.3.48 tiktok-marketing==4.7.0
twilio==0.16.0 typeform==1.3.27 zendesk-chat==1.1.1 zendesk-support==4.9.1"""
DESTINATIONS = "ailake==0.1.16 glassflow==0.1.7"
TAPS = {"tap-fedidb==0.4.0": "tap-fedidb", "tap-geekbot==0.5.0": "tap-geekbot",
        "tap-jotform==0.6.3": "tap-jotform", "meltanolabs-tap-github==1.20.0": "tap-github",
        "meltanolabs-target-csv==0.1.1": "target-csv",
        "meltanolabs-target-postgres==0.4.4": "target-postgres"}  # fmt: skip
MOST_FALLBACKS = 0.02


class RealSpec(NamedTuple):
    schema: Any
    word: str | None


def _place(factory: pytest.TempPathFactory, name: str) -> Path:
    kept = os.environ.get("PENSTOCK_SPECS")
    place = Path(kept) / name if kept else factory.mktemp(name)
    place.mkdir(parents=True, exist_ok=True)
    return place


@pytest.fixture(scope="module")
def airbyte(tmp_path_factory: pytest.TempPathFactory) -> dict[str, RealSpec]:
    place = _place(tmp_path_factory, "airbyte")
    if not any(place.iterdir()):
        words = ["pip", "install", "--quiet", "--no-deps", "--no-build", "--python-version", "3.11"]
        packages = [f"airbyte-source-{name}" for name in SOURCES.split()]
        packages += [f"airbyte-destination-{name}" for name in DESTINATIONS.split()]
        subprocess.run(
            [find_uv_bin(), *words, "--target", str(place), *packages], check=True, timeout=400
        )
    found = {f.name: _spec_in(f) for f in sorted(place.iterdir()) if f.is_dir()}
    return {name: RealSpec(spec, AIRBYTE) for name, spec in found.items() if spec is not None}


@pytest.fixture(scope="module")
def singer(tmp_path_factory: pytest.TempPathFactory) -> dict[str, RealSpec]:
    place = _place(tmp_path_factory, "singer")
    python = place / "bin" / "python"
    if not python.exists():
        uv = find_uv_bin()
        subprocess.run([uv, "venv", "--quiet", "--clear", str(place)], check=True, timeout=60)
        words = ["pip", "install", "--quiet", "--python", str(python)]
        subprocess.run([uv, *words, *TAPS], check=True, timeout=400)
    with ThreadPoolExecutor(2) as pool:
        return dict(pool.map(lambda tap: (tap, _about(place / "bin" / tap)), TAPS.values()))


def _about(tap: Path) -> RealSpec:
    asked = subprocess.run(
        [tap, "--about", "--format=json"], check=True, capture_output=True, timeout=200
    )
    about = about_of(asked.stdout)
    assert about is not None, tap
    return RealSpec(form_schema(config_schema(about.settings)), SINGER)


def _spec_in(folder: Path) -> Any:
    for path in (*folder.rglob("spec.json"), *folder.rglob("spec.yaml"),
                 *folder.rglob("manifest.yaml")):  # fmt: skip
        text = path.read_text(encoding="utf-8")
        read = json.loads(text) if path.suffix == ".json" else yaml.safe_load(text)
        spec = read.get("spec", {}) if path.name.startswith("manifest") else read
        schema = (spec or {}).get("connectionSpecification") or (spec or {}).get(
            "connection_specification"
        )
        if isinstance(schema, dict):
            return schema
    return None


def filled(fields: list[FormField], nodes: dict[str, Any]) -> Iterator[tuple[str, list[str]]]:
    """Fills in a form as a person would: what is required, the first choice, an example."""
    for f in fields:
        match f.kind:
            case "choice":
                chosen = next((o.value for o in f.options if o.chosen), None)
                yield f.name, [chosen or (f.options[0].value if f.required else "")]
            case "choices":
                yield f"{f.name}#here", ["1"]
                yield f.name, [o.value for o in f.options if o.chosen] or [f.options[0].value]
            case "lines":
                yield f"{f.name}#here", ["1"]
                yield f.name, [f.value or (_typed(f, nodes) if f.required else "")]
            case "variant":
                chosen = next((o.value for o in f.options if o.chosen), None)
                yield f"{f.name}#form", [chosen or (f.options[0].value if f.required else "")]
            case "named":
                yield f"{f.name}#here", ["1"]
                yield f"{f.name}#keys", [c.key for c in f.children]
                yield f"{f.name}#new", ["a-name"] if f.required and not f.children else []
            case "items":
                yield f"{f.name}#count", [str(len(f.children))]
            case "boolean":
                yield f"{f.name}#here", ["1"]
                if f.checked:
                    yield f.name, ["1"]
            case "object" | "fixed" | "elsewhere" | "hidden":
                pass
            case _:
                yield f.name, [f.value or (_typed(f, nodes) if f.required else "")]
        yield from filled(f.children, nodes)


def _typed(f: FormField, nodes: dict[str, Any]) -> str:
    example = f.hint.partition("for example ")[2].split(", ")[0]
    if f.kind == "number":
        return example if example.isdecimal() else "1"
    if f.kind == "time":
        return example or "2024-01-01T00:00:00Z"
    if f.kind == "date":
        return example or "2024-01-01"
    return example or "a-value"


def through(name: str, spec: RealSpec) -> tuple[dict[str, Any], list[FormField], list[str]]:
    """Fills in the form of a specification; returns the configuration, the form with it, and what
    is wrong: not valid, not equal after a file and another form."""
    schema, word = spec
    config: dict[str, Any] = {}
    for _ in range(6):  # a button of a list, a choice of a form: each shows more
        made = FormBuilder(schema, word, "source", set()).fields(config)
        given = dict(filled(made, {}))
        empty = next((f for f in _lists(made) if f.required and not f.children), None)
        form = PostedForm(schema, word, "source", given, f"add:{empty.name}" if empty else "")
        before, config = config, form.read(config)
        for path, secret in form.secrets.items():
            _put(config, path, secret)
        if config == before:
            break
    wrong: list[str] = []
    try:
        validate_config(ConnectorSpec(protocol="any", config_schema=schema), config, word)
    except ConfigError as e:
        wrong += [f"{name}: {p}" for p in e.problems]
    text = edited("source:\n  use: x  # kept\n", {("source", "config"): config})
    config = values_of(text)["source"]["config"] if config else {}
    made = FormBuilder(schema, word, "source", set()).fields(config)
    again = PostedForm(schema, word, "source", sent(made)).read(config)
    wrong += [] if same(again, config) else [f"{name}: {config} came back as {again}"]
    again = PostedForm(schema, word, "source", {}).read(config)
    wrong += [] if same(again, config) else [f"{name}: nothing sent gave {again}"]
    return config, made, wrong


def judged(specs: dict[str, RealSpec]) -> None:
    """Prints the table of what became JSON and why; fails for what is wrong."""
    wrong, fields, other = list[str](), 0, list[str]()
    for name, spec in specs.items():
        _, made, faults = through(name, spec)
        fields += _count(made)
        other += [f"{name}  {f.name.partition(':')[2]}  {f.why or f.kind}" for f in fallbacks(made)]
        wrong += faults
    print(f"{len(specs)} specifications, {fields} fields, {len(other)} as JSON:")
    print(*other, sep="\n")
    print(f"{len(wrong)} faults after filling in:", *wrong, sep="\n  ")
    assert len(other) / fields < MOST_FALLBACKS, other
    # a text that must fit a pattern, and of which no example is given, a program does not guess
    assert [w for w in wrong if "pattern" not in w and "does not match" not in w] == []


def test_real_specifications_are_drawn_filled_in_and_valid(
    airbyte: dict[str, RealSpec], singer: dict[str, RealSpec]
) -> None:
    specs = {**airbyte, **singer}
    assert len(specs) >= 60, sorted(specs)
    assert sum(name in TAPS.values() for name in specs) == len(TAPS)
    assert [name for name in specs if "destination" in name], sorted(specs)
    judged(specs)


def _lists(fields: list[FormField]) -> Iterator[FormField]:
    for f in fields:
        if f.kind == "items":
            yield f
        yield from _lists(f.children)


def _count(fields: list[FormField]) -> int:
    return len(fields) + sum(_count(f.children) for f in fields)


def _put(config: Any, path: tuple[str, ...], value: str) -> None:
    for step in path[:-1]:
        config = config[int(step)] if isinstance(config, list) else config[step]
    config[int(path[-1]) if isinstance(config, list) else path[-1]] = value


# Credentials and options as Syncmaven's own connectors declare them, with zod: the CDK makes the
# JSON Schema. Its connectors are images only.
NODE_DESTINATION = """
const { stdProtocol } = require("@syncmaven/node-cdk");
const { z } = require("zod");
const stream = (name, streamOptions) => ({ name, rowType: z.object({ id: z.number().int() }),
  streamOptions, createOutputStream: async () => ({ handleRow: async () => {} }) });
stdProtocol({
  name: "shapes",
  credentialsType: z.object({
    url: z.string().url().describe("Where <b>rows</b> go"),
    method: z.enum(["POST", "PUT"]).default("POST"),
    headers: z.record(z.string()).optional(),
    ids: z.array(z.string()).optional(),
    pause: z.number().int().min(0).default(5).optional(),
    key: z.union([z.string(), z.object({ client_email: z.string(), private_key: z.string() })]),
    login: z.discriminatedUnion("type", [
      z.object({ type: z.literal("basic"), user: z.string(), password: z.string() }),
      z.object({ type: z.literal("token"), token: z.string() })]).optional(),
  }),
  defaultStream: "rows",
  streams: [
    stream("rows", z.object({ batchSize: z.coerce.number().optional(), hash: z.boolean() })),
    stream("audience", z.object({ audienceId: z.string(), fields: z.array(z.object({
      from: z.string(), to: z.string().nullable() })).optional() }))],
});
"""


@pytest.fixture(scope="module")
def syncmaven(tmp_path_factory: pytest.TempPathFactory) -> dict[str, RealSpec]:
    """What the real CDK answers, as ``penstock spec`` asks for it."""
    folder, npm = tmp_path_factory.mktemp("syncmaven"), shutil.which("npm")
    assert npm is not None, "Node.js and npm are needed"
    (folder / "package.json").write_text('{"name": "shapes", "version": "1.0.0"}')
    words = ["install", "--no-audit", "--no-fund", "--ignore-scripts"]
    subprocess.run(
        [npm, *words, "@syncmaven/node-cdk@0.0.11"], cwd=folder, check=True,
        capture_output=True, timeout=300,
    )  # fmt: skip
    (folder / "main.js").write_text(NODE_DESTINATION)
    use = reference(f"syncmaven:{shlex.join(['node', str(folder / 'main.js')])}")
    home = Home(folder / "home")
    asked = asked_spec(use, AskedRole.destination, home, NullObserver(), Install(), lambda _: None)
    form = schema_of_form(asked)
    found = {"syncmaven credentials": RealSpec(form.schema, form.word)}
    for stream in asked.spec.abilities["streams"]["streams"]:
        found[f"syncmaven options of {stream['name']}"] = RealSpec(stream["options"], "")
    return found


def test_specifications_of_syncmaven_and_rapidbyte_are_drawn_filled_in_and_valid(
    syncmaven: dict[str, RealSpec],
) -> None:
    """Rapidbyte's are those of the components of this repository, which carry them."""
    examples = Path(__file__).parents[2] / "examples" / "rapidbyte"
    found = {
        str(file.parent.relative_to(examples)): RealSpec(json.loads(file.read_text()), RAPIDBYTE)
        for file in sorted(examples.rglob("config-schema.json"))
    }
    assert len(found) >= 9 and len(syncmaven) == 3
    judged({**found, **syncmaven})
