"""Where the component of a v4 reference lies: ``source-postgres`` is a file in one of two folders.

Nothing is opened here. ``rapidbyte:./file.wasm`` needs no lookup: that is a path. Source: v4's
resolution of ``use``.
"""

import re
from collections.abc import Mapping
from pathlib import Path

from penstock.errors import ConfigError

FOLDER_VARIABLE = "RAPIDBYTE_CONNECTOR_DIR"
_REFERENCE = re.compile(r"(?:\w[\w.-]*/)*(?P<name>[\w-]+)(?:@v?(?P<version>[\w.-]+))?")


def parts(reference: str) -> tuple[str, str | None]:
    """(name, version) of ``[namespace/...]name[@[v]version]``; v4 compares the version with
    nothing. Raises ``ConfigError``."""
    match = _REFERENCE.fullmatch(reference)
    if match is None:
        raise ConfigError(
            f"{reference!r} is no Rapidbyte connector",
            code="connector.reference",
            hint="write a name such as source-postgres, or rapidbyte:./file.wasm",
        )
    return match["name"], match["version"]


def component_file(reference: str, environ: Mapping[str, str], home: Path) -> Path:
    """The file: ``-`` in the name becomes ``_``; first the folder of ``RAPIDBYTE_CONNECTOR_DIR``,
    then ``~/.rapidbyte/plugins``. Raises ``ConfigError`` (``connector.not_found``) naming both."""
    file = parts(reference)[0].replace("-", "_") + ".wasm"
    folders = [home / ".rapidbyte" / "plugins"]
    if given := environ.get(FOLDER_VARIABLE):
        folders.insert(0, Path(given))
    for folder in folders:
        if (folder / file).is_file():
            return folder / file
    raise ConfigError(
        f"connector {reference!r} was not found: no {file} in {' or '.join(map(str, folders))}",
        code="connector.not_found",
        hint=f"put the file there, set {FOLDER_VARIABLE}, or name it: rapidbyte:./{file}",
    )
