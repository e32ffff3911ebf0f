"""Makes a runnable source from a declarative manifest: ``airbyte:./manifest.yaml``.

The manifest runs in the package that its protocol's spec names (``ManifestFiles``), in an
environment that all manifests share. Not here: the meaning of the manifest (the package), how it
gets the configuration (the protocol's wrapper). Neighbour: ``resolve`` calls it.
"""

from importlib.util import find_spec
from pathlib import Path

import msgspec

from penstock.config.protocol_spec import ROOT, ManifestFiles, spec_of
from penstock.connectors.environments import Installed
from penstock.connectors.launch import Launch
from penstock.connectors.package_request import PackageRequest
from penstock.connectors.reference import ConnectorRef, RefKind
from penstock.errors import ConfigError


def manifests_of(ref: ConnectorRef) -> ManifestFiles | None:
    """Returns the manifest files of the reference's protocol, where its path names a manifest;
    None: it is an executable."""
    if ref.kind is not RefKind.path or ref.protocol is None:
        return None
    files = spec_of(ref.protocol).manifests
    return files if files is not None and ref.command[0].endswith(files.endings) else None


def wanted_for(ref: ConnectorRef, files: ManifestFiles) -> PackageRequest:
    """Returns the request for the environment in which manifests run."""
    return PackageRequest(
        protocol=ref.protocol or "",
        reference=ref.text,
        name=files.script,
        package=files.package,
        scripts=(files.script,),
    )


def manifest_launch(
    ref: ConnectorRef, files: ManifestFiles, launch: Launch, entry: Installed, here: Path
) -> Launch:
    """Returns the launch of a manifest. ``launch``: runs the environment's own script. Raises
    ``ConfigError`` where the file does not exist."""
    manifest = (here / Path(ref.command[0]).expanduser()).resolve()
    if not manifest.is_file():
        raise ConfigError(
            f"connector {ref.text!r}: there is no file {manifest}",
            code="connector.not_found",
            hint=f"a declarative source is {ref.protocol}:./PATH/manifest.yaml",
        )
    python = str(Path(entry.executable).with_name("python"))
    wrapper = find_spec(f"{ROOT}.{ref.protocol}.{files.wrapper}")
    assert wrapper is not None and wrapper.origin is not None
    command = (python, str(Path(wrapper.origin).resolve()), str(manifest))
    return msgspec.structs.replace(launch, command=command)
