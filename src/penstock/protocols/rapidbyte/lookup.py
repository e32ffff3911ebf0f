"""Finds the file of a v4 reference such as ``source-postgres``, in one of two folders.

Not here: opening the file; ``rapidbyte:./file.wasm``, which is a path already. Source: v4's
resolution of ``use``.
"""

import re
from collections.abc import Mapping
from pathlib import Path

from penstock.errors import ConfigError

FOLDER_VARIABLE = "RAPIDBYTE_CONNECTOR_DIR"
_REFERENCE = re.compile(r"(?:\w[\w.-]*/)*(?P<name>[\w-]+)(?:@v?(?P<version>[\w.-]+))?")


def parts(reference: str) -> tuple[str, str | None]:
    """Parses ``[namespace/...]name[@[v]version]`` into (name, version). As in v4, the version is
    not compared. Raises ``ConfigError``."""
    match = _REFERENCE.fullmatch(reference)
    if match is None:
        raise ConfigError(
            f"{reference!r} is not a Rapidbyte connector",
            code="connector.reference",
            hint="write a name such as source-postgres, or rapidbyte:./file.wasm",
        )
    return match["name"], match["version"]


def component_file(reference: str, environ: Mapping[str, str], home: Path) -> Path:
    """Returns the path of a component's file: ``-`` in the name becomes ``_``; first the folder of
    ``RAPIDBYTE_CONNECTOR_DIR``, then ``~/.rapidbyte/plugins``. Raises ``ConfigError``
    (``connector.not_found``), which names both folders."""
    file = parts(reference)[0].replace("-", "_") + ".wasm"
    folders = [home / ".rapidbyte" / "plugins"]
    if configured := environ.get(FOLDER_VARIABLE):
        folders.insert(0, Path(configured))
    for folder in folders:
        if (folder / file).is_file():
            return folder / file
    raise ConfigError(
        f"connector {reference!r} was not found: no {file} in {' or '.join(map(str, folders))}",
        code="connector.not_found",
        hint=f"put the file there, set {FOLDER_VARIABLE}, or name it: rapidbyte:./{file}",
    )
