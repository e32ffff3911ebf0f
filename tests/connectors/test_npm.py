"""Connectors that are packages of npm (issue 12): looked up, locked with integrity hashes, made
once, made again of the lock elsewhere. The registry of one scope is served here; npm is real."""

import base64
import hashlib
import io
import json
import os
import shutil
import tarfile
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import msgspec
import pytest

from penstock.connectors.destination import DestinationConnector
from penstock.connectors.environments import installed
from penstock.connectors.launch import ready
from penstock.connectors.resolve import resolve
from penstock.errors import PenstockError

CDK = "0.0.11"
NAME = "@penstock-test/kept"
MAIN = """
const { stdProtocol } = require("@syncmaven/node-cdk");
const { z } = require("zod");
stdProtocol({
  name: "kept " + process.env.SYNCMAVEN_VERSION,
  credentialsType: z.object({ key: z.string() }),
  defaultStream: "contacts",
  streams: [{ name: "contacts", rowType: z.object({}), createOutputStream: async () => ({}) }],
});
"""


class Registry:
    """Serves packages of one scope; ``broken``: their files are not those that it promised."""

    def __init__(self) -> None:
        self.packages: dict[str, dict[str, Any]] = {}
        self.files: dict[str, bytes] = {}
        self.broken = False
        registry = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                name = self.path.lstrip("/").replace("%2f", "/").replace("%2F", "/")
                body = registry.files.get(name)
                if body is not None and registry.broken:
                    body = registry.packed("other", "9.9.9", {})
                if body is None and name in registry.packages:
                    body = json.dumps(registry.packages[name]).encode()
                self.send_response(404 if body is None else 200)
                self.end_headers()
                self.wfile.write(body or b'{"error": "Not found"}')

            def log_message(self, format: str, *args: object) -> None:
                del format, args

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    @staticmethod
    def packed(name: str, version: str, dependencies: dict[str, str], **more: Any) -> bytes:
        told = {"name": name, "version": version, "main": "lib/main", **more}
        told["dependencies"] = dependencies
        files = {"package/package.json": json.dumps(told), "package/lib/main.js": MAIN}
        out = io.BytesIO()
        with tarfile.open(fileobj=out, mode="w:gz") as archive:
            for path, text in files.items():
                entry = tarfile.TarInfo(path)
                entry.size = len(text)
                archive.addfile(entry, io.BytesIO(text.encode()))
        return out.getvalue()

    def publish(self, name: str, version: str, **dependencies: str) -> None:
        needed = {key.replace("__", "/"): value for key, value in dependencies.items()}
        script = {"postinstall": "node -e \"require('fs').writeFileSync('RAN', '')\""}
        body = self.packed(name, version, needed, scripts=script)
        file = f"{name}/-/kept-{version}.tgz"
        self.files[file] = body
        entry = self.packages.setdefault(name, {"name": name, "dist-tags": {}, "versions": {}})
        entry["dist-tags"]["latest"] = version
        digest = base64.b64encode(hashlib.sha512(body).digest()).decode()
        entry["versions"][version] = {
            "name": name,
            "version": version,
            "dependencies": needed,
            "dist": {"tarball": f"{self.url}/{file}", "integrity": f"sha512-{digest}"},
        }


@pytest.fixture
def registry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Registry]:
    assert shutil.which("npm") is not None, "Node.js and npm are needed"
    made = Registry()
    own = Path(os.environ.get("NPM_CONFIG_USERCONFIG") or Path.home() / ".npmrc")
    settings = own.read_text() if own.is_file() else ""
    (tmp_path / "npmrc").write_text(f"{settings}\n@penstock-test:registry={made.url}/\n")
    monkeypatch.setenv("NPM_CONFIG_USERCONFIG", str(tmp_path / "npmrc"))
    monkeypatch.setenv("NPM_CONFIG_CACHE", str(tmp_path / "npm cache"))
    yield made
    made.server.shutdown()
    made.server.server_close()


@pytest.fixture
def connectors(tmp_path: Path) -> Path:
    return tmp_path / "connectors"


def found(connectors: Path, name: str, **how: Any) -> DestinationConnector:
    return resolve(DestinationConnector, f"syncmaven:{name}", connectors, **how)


def refused(connectors: Path, name: str) -> PenstockError:
    with pytest.raises(PenstockError) as failed:
        found(connectors, name)
    assert failed.value.hint and failed.value.exit_code == 5
    return failed.value


@pytest.mark.network
@pytest.mark.timeout(600)
def test_a_destination_by_its_name_is_locked_run_and_made_again_elsewhere(
    registry: Registry, connectors: Path, tmp_path: Path
) -> None:
    registry.publish(NAME, "1.0.0", **{"@syncmaven__node-cdk": CDK, "zod": "^3"})
    registry.publish(NAME, "1.1.0", **{"@syncmaven__node-cdk": CDK, "zod": "^3"})
    made = found(connectors, f"{NAME}@1.0.0")
    spec = made.spec()
    assert spec.config_schema["properties"].keys() == {"key"}
    (entry,) = installed(connectors)
    assert (entry.name, entry.environment.version) == (NAME, "1.0.0")
    lock = json.loads(entry.environment.lock)["packages"]
    assert all(told["integrity"].startswith("sha") for name, told in lock.items() if name)
    assert lock[f"node_modules/{NAME}"]["version"] == "1.0.0"
    assert not list(Path(entry.path).rglob("RAN")), "no script of a package runs"

    known, registry.packages = registry.packages, {}  # what is there is used without asking
    launch = found(connectors, NAME).launch()
    registry.packages = known
    assert launch.command[1] == entry.executable
    elsewhere = msgspec.structs.replace(entry.environment, folder=str(tmp_path / "other"))
    gone = str(tmp_path / "gone" / "main.js")
    there = ready(
        msgspec.structs.replace(launch, environment=elsewhere, command=("/nowhere/node", gone))
    )
    assert there.command[0] == shutil.which("node")
    assert there.command[1].startswith(str(tmp_path / "other")) and Path(there.command[1]).exists()


@pytest.mark.network
@pytest.mark.timeout(600)
def test_the_newest_version_is_asked_for_where_none_is_named(
    registry: Registry, connectors: Path
) -> None:
    registry.publish(NAME, "1.0.0")
    assert found(connectors, NAME).describe()["version"] == "1.0.0"
    registry.publish(NAME, "2.0.0")
    assert found(connectors, NAME).describe()["version"] == "1.0.0"
    assert found(connectors, NAME, upgrade=True).describe()["version"] == "2.0.0"


@pytest.mark.network
@pytest.mark.timeout(600)
def test_what_npm_does_not_have_or_did_not_promise_is_refused(
    registry: Registry, connectors: Path
) -> None:
    registry.publish(NAME, "1.0.0")
    assert refused(connectors, "@penstock-test/nothing").code == "connector.not_found"
    assert "version 3.0.0" in refused(connectors, f"{NAME}@3.0.0").message
    registry.broken = True
    error = refused(connectors, NAME)
    assert error.code == "connector.install_failed" and "integrity" in error.message.lower()
    assert not installed(connectors)


def test_without_node_the_error_says_so(
    connectors: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    error = refused(connectors, NAME)
    assert error.code == "connector.node_missing" and "`node` is not installed" in error.message
