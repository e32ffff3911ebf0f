"""Forms over what real connectors publish: each is drawn, filled in as a person would, and what
comes back is valid by the check of ``penstock check``.

The packages are fetched as they are in the package index, without what they depend on, and none of
their code runs: their specifications lie in them.
"""

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from uv import find_uv_bin

from penstock.errors import ConfigError
from penstock.model.catalog import ConnectorSpec
from penstock.protocols.json_schema.config_check import validate_config
from penstock.web.forms.fields import FormBuilder, FormField, fallbacks
from penstock.web.forms.posted import PostedForm

pytestmark = [pytest.mark.network, pytest.mark.dear]
WORD = "airbyte_secret"
NAMES = """amazon-ads amplitude appsflyer asana azure-blob-storage azure-table box-data-extract cart
chargebee couchbase facebook-marketing facebook-pages fauna file firebase-realtime-database
freshdesk gcs genesys github gitlab google-ads google-analytics-data-api google-directory
google-drive google-sheets hubspot instagram intercom iterable jina-ai-reader jira klaviyo kyriba
kyve linkedin-ads mailchimp marketo microsoft-dataverse mixpanel monday netsuite notion okta pokeapi
posthog public-apis recharge s3 salesforce sentry sftp-bulk shopify slack smartsheets stripe
surveymonkey tiktok-marketing tplcentral twilio typeform zendesk-chat zendesk-support zendesk-talk
zenloop zoho-crm airtable braintree faker hardcoded-records smoke-test"""
MOST_FALLBACKS = 0.02


@pytest.fixture(scope="module")
def specs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    place = Path(os.environ.get("PENSTOCK_SPECS") or tmp_path_factory.mktemp("specs"))
    if not any(place.iterdir()):
        words = ["pip", "install", "--quiet", "--no-deps", "--no-build", "--python-version", "3.11"]
        packages = [f"airbyte-source-{name}" for name in NAMES.split()]
        subprocess.run(
            [find_uv_bin(), *words, "--target", str(place), *packages], check=True, timeout=400
        )
    found: dict[str, Any] = {}
    for folder in sorted(place.iterdir()):
        if folder.is_dir() and (spec := _spec_in(folder)) is not None:
            found[folder.name] = spec
    return found


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
                yield f"{f.name}#form", [next((o.value for o in f.options if o.chosen), "")]
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


def test_real_specifications_are_drawn_filled_in_and_valid(specs: dict[str, Any]) -> None:
    assert len(specs) >= 60, sorted(specs)
    wrong, fields, other = list[str](), 0, list[str]()
    for name, schema in specs.items():
        builder = FormBuilder(schema, WORD, "source", set())
        config: dict[str, Any] = {}
        for _ in range(6):  # a button of a list, a choice of a form: each shows more
            made = builder.fields(config)
            given = dict(filled(made, {}))
            empty = next((f for f in _lists(made) if f.required and not f.children), None)
            form = PostedForm(schema, WORD, "source", given, f"add:{empty.name}" if empty else "")
            before, config = config, form.read(config)
            for path, secret in form.secrets.items():
                _put(config, path, secret)
            if config == before:
                break
        made = builder.fields(config)
        fields += _count(made)
        other += [f"{name}: {f.name} ({f.kind})" for f in fallbacks(made)]
        spec = ConnectorSpec(protocol="airbyte", config_schema=schema)
        try:
            validate_config(spec, config, WORD)
        except ConfigError as e:
            wrong += [f"{name}: {p}" for p in e.problems]
        # a form that nobody touches changes nothing
        again = PostedForm(schema, WORD, "source", {}).read(config)
        assert again == config, name
    print(
        f"{len(specs)} specifications, {fields} fields, {len(other)} as JSON:", *other, sep="\n  "
    )
    print(f"{len(wrong)} faults after filling in:", *wrong, sep="\n  ")
    assert len(other) / fields < MOST_FALLBACKS, other
    # a text that must fit a pattern, and of which no example is given, a program does not guess
    assert [w for w in wrong if "pattern" not in w and "does not match" not in w] == []


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
