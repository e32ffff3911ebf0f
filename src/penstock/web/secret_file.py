"""Keeps secrets that were typed into a form in ``.env`` in the pipeline file's folder, which every
verb reads, mode 0600.

A secret gets a variable of the pipeline's own name. The value of a variable that another file of
the folder uses is never changed. A file that others may read gets no secrets. In a git work tree
``.gitignore`` excludes the file. Not here: which property is a secret (``forms``).
"""

import os
import re
import stat
from collections.abc import Iterable, Mapping
from pathlib import Path

from penstock.config.variables import read_env_file
from penstock.errors import ConfigError
from penstock.files import PRIVATE, replace, write_new

NAME = ".env"
_REFERENCE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")


def variable_in(value: object) -> str | None:
    """Returns the name of the variable if the value is only a reference to it; else None."""
    found = _REFERENCE.fullmatch(value) if isinstance(value, str) else None
    return None if found is None else found[1]


def known_variables(folder: Path) -> set[str]:
    """Lists the variables that have a value: in the environment, or in the folder's file."""
    return {*os.environ, *_read(folder / NAME)}


def chosen_name(folder: Path, file: str, pipeline: str, path: Iterable[str], had: object) -> str:
    """Returns the variable for a secret at ``path`` of the pipeline file ``file``: the one that it
    ``had``, if no other file uses it, else a new name."""
    others = _used_elsewhere(folder, file)
    known = known_variables(folder)
    prefix = _upper(pipeline)
    own = variable_in(had)
    if own is not None and own.lstrip("_").startswith(f"{prefix}_") and own not in others:
        return own
    wanted = "_".join([prefix, *map(_upper, path)])
    wanted = f"_{wanted}" if wanted[0].isdecimal() else wanted
    taken = others | known
    number = 1
    name = wanted
    while name in taken:
        number += 1
        name = f"{wanted}_{number}"
    return name


def store(folder: Path, values: Mapping[str, str]) -> None:
    """Writes the values into the folder's file. Raises ``ConfigError`` (``ui.secret_file``) where
    others may read it, or it cannot be written."""
    path = folder / NAME
    if not values:
        return
    try:
        mode = stat.S_IMODE(path.lstat().st_mode) if path.is_symlink() or path.exists() else None
        if mode is not None and (mode & 0o077 or path.is_symlink()):
            raise ConfigError(
                f"{path} can be read by others, and gets no secret",
                code="ui.secret_file",
                where=str(path),
                hint=f"chmod 600 {path}",
            )
        text = path.read_text(encoding="utf-8") if mode is not None else ""
        _ignore(folder)
        replace(path, _with(text, values).encode(), durable=True, permissions=PRIVATE)
    except OSError as e:
        raise ConfigError(
            f"{path} cannot be written: {e.strerror}", code="ui.secret_file", where=str(path)
        ) from None


def _with(text: str, values: Mapping[str, str]) -> str:
    """Returns the text with the values in place of earlier ones of the same names."""
    for name in values:
        quoted = r"'[^']*'|\"(?:[^\"\\]|\\.)*\"|[^\n]*"
        text = re.sub(
            rf"(?m)^[ \t]*(?:export[ \t]+)?{name}[ \t]*=[ \t]*(?:{quoted}).*\n?", "", text
        )
    text += "\n" if text and not text.endswith("\n") else ""
    return text + "".join(f"{name}={_quoted(value)}\n" for name, value in values.items())


def _quoted(value: str) -> str:
    escaped = value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


def _read(path: Path) -> dict[str, str]:
    try:
        return read_env_file(path) if path.exists() else {}
    except ConfigError:
        return {}  # its fault is shown where the pipeline is loaded


def _used_elsewhere(folder: Path, file: str) -> set[str]:
    found: set[str] = set()
    for other in folder.iterdir():
        if other.suffix in (".yaml", ".yml") and other.name != file and other.is_file():
            text = other.read_text(encoding="utf-8", errors="replace")
            found |= {match[1] for match in re.finditer(r"\$\{([A-Za-z_][A-Za-z0-9_]*)", text)}
    return found


def _ignore(folder: Path) -> None:
    """Creates ``.gitignore`` in the work tree's root or the folder, where none exists."""
    for above in (folder, *folder.parents):
        if (above / ".git").exists():
            if not (folder / ".gitignore").exists() and not (above / ".gitignore").exists():
                write_new(folder / ".gitignore", f"{NAME}\n".encode())
            return


def _upper(text: str) -> str:
    return re.sub(r"[^A-Z0-9]+", "_", text.upper()).strip("_") or "X"
