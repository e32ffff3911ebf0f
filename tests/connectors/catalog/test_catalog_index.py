"""The index that ships: every line of it is a connector that can be written down, and a file that
is damaged is said to be."""

import gzip
import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import msgspec
import pytest

from penstock.api.roles import end_of
from penstock.connectors import uv
from penstock.connectors.catalog.index import FILE, ConnectorIndex, IndexedConnector, indexed, read
from penstock.connectors.reference import RefKind, parse_ref
from penstock.errors import ConfigError

ROOT = Path(__file__).parents[3]
SCRIPT = ROOT / "scripts" / "connector_index.py"
LINES = 1581
KINDS = {"package": RefKind.package, "git": RefKind.package, "image": RefKind.image}


def test_all_lines_parse() -> None:
    assert len(indexed()) == LINES
    for entry in indexed():
        assert entry.connector is not None or entry.needs == "build", entry
        for reference in entry.references:
            assert parse_ref(reference).protocol == entry.protocol, reference
        if entry.connector is not None:
            ref = parse_ref(entry.connector)
            assert ref.kind is KINDS[entry.needs]
            assert (ref.url is not None) == (entry.needs == "git")


def test_a_connector_has_the_role_that_its_reference_says() -> None:
    """``run`` takes a name like ``target-x`` for a destination: none of the index is taken wrong.
    A folder inside a repository says nothing."""
    wrong = [
        entry.connector
        for entry in indexed()
        if entry.connector
        and "#subdirectory=" not in entry.connector
        and end_of(parse_ref(entry.connector)) != entry.role
    ]
    assert wrong == []


def test_facts_have_the_form_that_they_promise() -> None:
    for entry in indexed():
        assert entry.month is None or re.fullmatch(r"20\d\d-(0[1-9]|1[0-2])", entry.month)
        for setting in entry.settings:
            assert not (setting.secret and setting.default), (entry.name, setting.name)
    secrets = [s for e in indexed() for s in e.settings if s.secret]
    assert len(secrets) > 1000


def test_the_index_is_small() -> None:
    assert FILE.stat().st_size < 90_000


@pytest.mark.parametrize(
    "harm",
    [
        lambda whole: whole[:1000],
        lambda whole: whole[:-5000] + bytes(5000),
        lambda whole: b"",
        lambda whole: b"not a gzip",
        lambda whole: gzip.compress(b'{"format": 1, "count": 2, "connectors": []}'),
        lambda whole: gzip.compress(b'{"format": 2, "count": 0, "connectors": []}'),
        lambda whole: gzip.compress(b'{"format": 1, "count": 1, "connectors": [{"name": 7}]}'),
        lambda whole: gzip.compress(b"\xff{"),
    ],
)
def test_a_damaged_index_is_refused_with_a_way_out(harm, tmp_path: Path) -> None:
    path = tmp_path / "connectors.json.gz"
    path.write_bytes(harm(FILE.read_bytes()))
    with pytest.raises(ConfigError, match=re.escape(str(path))) as caught:
        read(path)
    assert caught.value.code == "connector.index"
    assert "install Penstock again" in (caught.value.hint or "")
    path.unlink()
    with pytest.raises(ConfigError, match="No such file"):
        read(path)


# -- the script that writes it

FACTS = [
    {"protocol": "airbyte", "role": "source", "name": "source-x", "label": "X",
     "image": "airbyte/source-x", "keywords": ["airbyte_protocol", "api"],
     "settings": [
         {"name": "token", "kind": "password", "label": "Airbyte Config Token", "secret": True},
         {"name": "stream_maps", "kind": "object", "label": "Stream Maps"}],
     "package": {"name": "airbyte-source-x", "version": "1.2.3", "month": "2026-01"}},
    {"protocol": "airbyte", "role": "source", "name": "source-y", "label": "Y",
     "image": "airbyte/source-y"},
    {"protocol": "singer", "role": "source", "name": "tap-x", "label": "X",
     "variant": "transferwise", "pip": "git+https://example.org/tap-x.git", "maintenance": "active",
     "default_variant": True,
     "settings": [{"name": "host", "kind": "string", "label": "Host name"}]},
    {"protocol": "singer", "role": "source", "name": "pipelinewise-tap-x",
     "label": "pipelinewise-tap-x", "pip": "pipelinewise-tap-x",
     "package": {"name": "pipelinewise-tap-x", "version": "2.0", "month": "2025-05"}},
    {"protocol": "singer", "role": "source", "name": "tap-pinned", "label": "Pinned",
     "variant": "a", "pip": "tap-pinned==1.0 attrs==18.1.0",
     "package": {"name": "tap-pinned", "version": "3.0", "month": "2026-05"}},
    {"protocol": "singer", "role": "source", "name": "tap-built", "label": "Built", "variant": "b",
     "repository": "https://example.org/tap-built"},
]  # fmt: skip


def made(tmp_path: Path, facts: list[dict]) -> dict[str, IndexedConnector]:
    (tmp_path / "facts.jsonl").write_text("".join(f"{json.dumps(each)}\n" for each in facts))
    out = tmp_path / "index.json.gz"
    command = [sys.executable, str(SCRIPT), str(tmp_path / "facts.jsonl"), "--out", str(out)]
    subprocess.run(command, check=True, capture_output=True)
    return {entry.name: entry for entry in read(out)}


def test_the_script_says_what_to_write_and_what_each_needs(tmp_path: Path) -> None:
    found = made(tmp_path, FACTS)
    shown = {name: (e.connector, e.needs, e.version) for name, e in found.items()}
    assert shown == {
        "source-x": ("airbyte:source-x", "package", "1.2.3"),
        "source-y": ("airbyte:docker:airbyte/source-y", "image", None),
        "tap-x": ("singer:git+https://example.org/tap-x.git", "git", None),
        "pipelinewise-tap-x": ("singer:pipelinewise-tap-x", "package", "2.0"),
        "tap-pinned": ("singer:tap-pinned@1.0", "package", "1.0"),
        "tap-built": (None, "build", None),
    }
    assert found["source-x"].also == ["airbyte:docker:airbyte/source-x"]
    assert found["source-x"].keywords == ["api"]
    assert [(s.name, s.secret, s.label) for s in found["source-x"].settings] == [
        ("token", True, None)
    ], "what belongs to a hub's wrapper is no setting of the connector"
    assert found["tap-pinned"].extras == ["attrs==18.1.0"]
    package, listed = found["pipelinewise-tap-x"], found["tap-x"]
    assert package.settings == listed.settings and package.default, "one project, two ways to it"


def test_the_same_facts_give_the_same_bytes(tmp_path: Path) -> None:
    made(tmp_path, FACTS)
    first = (tmp_path / "index.json.gz").read_bytes()
    made(tmp_path, FACTS)
    assert (tmp_path / "index.json.gz").read_bytes() == first
    assert msgspec.json.decode(gzip.decompress(first), type=ConnectorIndex).count == len(FACTS)


def test_the_shipped_index_has_the_order_of_the_script() -> None:
    """So that a renewed index differs only where facts do."""
    order = [(e.protocol, e.role, e.name, e.connector or "") for e in indexed()]
    assert order == sorted(order)


@pytest.mark.network
def test_the_wheel_has_the_index(tmp_path: Path) -> None:
    """As ``uv build`` makes it; its search runs from the wheel's own files."""
    project = tmp_path / "project"
    shutil.copytree(ROOT / "src", project / "src", ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, project)
    subprocess.run(
        [uv.find_uv(), "build", "--quiet", "--wheel", "--out-dir", str(tmp_path), str(project)],
        check=True,
        capture_output=True,
        timeout=120,
    )
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path / "site")
    code = "from penstock.cli import main; main(['search', 'github']); print(main.__code__)"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": str(tmp_path / "site"), "HOME": str(tmp_path)},
        cwd=tmp_path,
        check=True,
        capture_output=True,
        text=True,
    )
    assert done.stdout.startswith("airbyte:source-github\n")
    assert str(tmp_path / "site") in done.stdout.splitlines()[-1]
