"""Writes the index of connectors that ships with Penstock.

    python scripts/connector_index.py CONNECTORS.jsonl              # writes the index
    python scripts/connector_index.py CONNECTORS.jsonl --out FILE   # writes another file

Each line of the input is a JSON object with facts about one connector, as a hub or the package
index has them: protocol, role, name, label, variant, pip, image, repository, maintenance, quality,
default_variant, capabilities, keywords, settings, required_groups, package. Every reference that
the index has is parsed here as `penstock run` parses it; a line that gives none of them, and is not
known to need a build, is an error.
"""

import argparse
import gzip
import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec

from penstock.connectors.catalog.index import (
    FILE,
    FORMAT,
    ConnectorIndex,
    IndexedConnector,
    Need,
    Setting,
    read,
)
from penstock.connectors.reference import parse_ref

_HUBS_OWN = frozenset({"airbyte_protocol", "meltano_sdk", "singer", "tap", "target"})
"""Keywords that say how a hub runs a connector, not what it is for."""
_WRAPPED = "Airbyte Config "
"""Begins the label of a setting of an Airbyte connector; others are of the hub's wrapper, which
Penstock does not use."""
_PUBLISHERS = {"transferwise": "pipelinewise"}
"""Variants whose packages begin with another word than the variant."""
_PIN = re.compile(r"(?P<name>[A-Za-z0-9._-]+)(?:(?P<operator>==|~=)(?P<version>[0-9][\w.]*))?")


def main() -> None:
    arguments = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    arguments.add_argument("facts", type=Path)
    arguments.add_argument("--out", type=Path, default=FILE)
    given = arguments.parse_args()
    lines = given.facts.read_text(encoding="utf-8").splitlines()
    connectors = indexed_of(json.loads(line) for line in lines if line.strip())
    document = msgspec.json.encode(ConnectorIndex(FORMAT, len(connectors), connectors))
    given.out.write_bytes(gzip.compress(document, 9, mtime=0))
    size = given.out.stat().st_size
    print(f"{len(read(given.out))} connectors, {size:,} bytes: {given.out}")  # noqa: T201


def indexed_of(facts: Iterable[dict[str, Any]]) -> list[IndexedConnector]:
    """Makes the lines of the index, in the order of protocol, role and name."""
    rows = [*facts]
    published = {(row.get("variant") or "", row["name"]): row for row in rows if "variant" in row}
    found = [connector_of(_joined(row, published)) for row in rows]
    return sorted(found, key=lambda c: (c.protocol, c.role, c.name, c.connector or ""))


def _joined(
    row: dict[str, Any], published: dict[tuple[str, str], dict[str, Any]]
) -> dict[str, Any]:
    """Adds to a package that no hub lists what a hub says of the same project: a package
    ``meltanolabs-tap-x`` is that of the variant ``meltanolabs`` of ``tap-x``."""
    if "variant" in row or row["protocol"] != "singer":
        return row
    for (variant, name), listed in published.items():
        publisher = _PUBLISHERS.get(variant, variant)
        if row["name"] == f"{publisher}-{name}" and listed["role"] == row["role"]:
            kept = {k: v for k, v in listed.items() if k not in ("pip", "package")}
            return {**kept, "name": row["name"], "pip": row["pip"], "package": row["package"]}
    return row


def connector_of(row: dict[str, Any]) -> IndexedConnector:
    """Makes one line of the index of one line of facts."""
    protocol, name, label = row["protocol"], row["name"], row.get("label")
    references, extras = (_airbyte if protocol == "airbyte" else _singer)(row)
    for reference in references:
        parsed = parse_ref(reference)
        assert parsed.protocol == protocol, reference
        assert parsed.kind in ("package", "image"), reference
    assert references or row.get("repository"), row
    package = _package(row, references)
    return IndexedConnector(
        protocol=protocol,
        role=row["role"],
        name=name,
        connector=references[0] if references else None,
        needs=_need(references[0] if references else None),
        also=references[1:],
        extras=extras,
        label=label if label != name else None,
        variant=row.get("variant"),
        maintenance=row.get("maintenance"),
        quality=row.get("quality"),
        default=row.get("default_variant", False),
        repository=row.get("repository"),
        keywords=[word for word in row.get("keywords", ()) if word not in _HUBS_OWN],
        capabilities=row.get("capabilities", []),
        settings=[*_settings(row)],
        required=row.get("required_groups", []),
        version=package.get("version"),
        month=package.get("month"),
    )


def _airbyte(row: dict[str, Any]) -> tuple[list[str], list[str]]:
    """The references of an Airbyte connector: its package, its image."""
    found: list[str] = []
    if "package" in row:
        found.append(f"airbyte:{row['package']['name'].removeprefix('airbyte-')}")
    if "image" in row:
        found.append(f"airbyte:docker:{row['image']}")
    return found, []


def _singer(row: dict[str, Any]) -> tuple[list[str], list[str]]:
    """The reference of a Singer connector, and what a hub installs beside it."""
    requirements = row.get("pip", "").split()
    if not requirements:
        return [], []
    own = next((r for r in requirements if r.endswith(row["name"])), requirements[0])
    beside = [r for r in requirements if r != own]
    pinned = _PIN.fullmatch(own)
    if pinned is None:
        return [f"singer:{own}"], beside
    version = f"@{pinned['version']}" if pinned["operator"] == "==" else ""
    return [f"singer:{pinned['name']}{version}"], beside


def _package(row: dict[str, Any], references: list[str]) -> dict[str, Any]:
    """What is known of the release that the first reference names: of a pinned one its number."""
    found = row.get("package") or {}
    pinned = re.fullmatch(r"singer:[^:/@]+@(.+)", references[0]) if references else None
    return {"version": pinned[1]} if pinned and pinned[1] != found.get("version") else found


def _need(reference: str | None) -> Need:
    if reference is None:
        return "build"
    rest = reference.partition(":")[2]
    if rest.startswith("docker:"):
        return "image"
    return "git" if "://" in rest else "package"


def _settings(row: dict[str, Any]) -> Iterable[Setting]:
    for setting in row.get("settings", ()):
        label = setting.get("label") or ""
        if row["protocol"] == "airbyte":
            if not label.startswith(_WRAPPED):
                continue
            label = label.removeprefix(_WRAPPED)
        plain = re.sub(r"[._-]+", " ", setting["name"]).casefold()
        yield Setting(
            name=setting["name"],
            kind=setting["kind"],
            label=label if label.casefold() != plain else None,
            secret=setting.get("secret", False),
            default=setting.get("default"),
            options=setting.get("options", []),
        )


if __name__ == "__main__":
    main()
