"""Runs a declarative Airbyte source from its manifest, inside the environment of ``airbyte-cdk``.

python declarative_wrapper.py MANIFEST COMMAND [--config FILE ...]

It adds the manifest to the configuration, as Airbyte's platform does
(``__injected_declarative_manifest`` and, for a ``components.py`` next to the manifest,
``__injected_components_py`` with its checksum), and hands over to the environment's
``source-declarative-manifest``. Answers ``spec`` from the manifest. Imports nothing of Penstock: it
runs under the connector's own Python. Neighbour: ``connectors.declarative`` builds the command.
"""

import hashlib
import json
import os
import runpy
import sys
from pathlib import Path
from typing import Any


def main(manifest_file: str, *arguments: str) -> None:
    import yaml  # of the connector's environment

    manifest: Any = yaml.safe_load(Path(manifest_file).read_text("utf-8"))
    if not isinstance(manifest, dict) or "streams" not in manifest:
        sys.exit(f"{manifest_file} is not a declarative manifest: it has no streams")
    if arguments[:1] == ("spec",):
        _say_spec(manifest)
        return
    words = list(arguments)
    if "--config" in words:
        place = words.index("--config") + 1
        words[place] = _with_manifest(Path(words[place]), manifest, Path(manifest_file))
    script = str(Path(sys.executable).with_name("source-declarative-manifest"))
    sys.argv = [script, *words]
    runpy.run_path(script, run_name="__main__")


def _say_spec(manifest: dict[str, Any]) -> None:
    given = manifest.get("spec") or {}
    spec = {
        "connectionSpecification": given.get("connection_specification") or {"type": "object"},
        "documentationUrl": given.get("documentation_url"),
        "supportsIncremental": True,
    }
    spec = {name: value for name, value in spec.items() if value is not None}
    sys.stdout.write(json.dumps({"type": "SPEC", "spec": spec}) + "\n")


def _with_manifest(config_file: Path, manifest: dict[str, Any], manifest_file: Path) -> str:
    """Writes a copy of the configuration with the manifest, in the same private folder."""
    config = json.loads(config_file.read_bytes())
    config["__injected_declarative_manifest"] = manifest
    components = manifest_file.with_name("components.py")
    if components.is_file():
        code = components.read_text("utf-8")
        digest = hashlib.md5(code.encode(), usedforsecurity=False).hexdigest()
        config["__injected_components_py"] = code
        config["__injected_components_py_checksums"] = {"md5": digest}
        os.environ["AIRBYTE_ENABLE_UNSAFE_CODE"] = "true"
    injected = config_file.with_name("config.with_manifest.json")
    fd = os.open(injected, os.O_CREAT | os.O_TRUNC | os.O_WRONLY, 0o600)
    with os.fdopen(fd, "w") as out:
        json.dump(config, out)
    return str(injected)


if __name__ == "__main__":
    main(*sys.argv[1:])
