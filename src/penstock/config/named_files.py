"""Finds what may be relative file names in a connector's reference, configuration and permissions.

A name counts as a file only where that file exists, as a connector does not declare which of its
texts are paths. Functions; they check whether files exist, and read none. Neighbour:
``relative_paths``.
"""

import glob
import os
import re
import shlex
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, NamedTuple

from penstock.config.pipeline import ConnectorSection
from penstock.config.place import absolute
from penstock.config.protocol_spec import specs

DOTTED = re.compile(r"""(?:^|[\s:=`'"])(\.{1,2}/[^\s`'"]*)""")  # ./x, ../x
URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
_IN_QUOTES = re.compile(r"`([^`]+)`")  # csv.`data.csv`
_DATABASE = re.compile(r"(?:sqlite|duckdb)(?:\+\w+)?:///(?!/)([^?]+)")  # sqlite:///shop.db
_OF_PATHS = re.compile(r"path|file|dir|folder|location|root|glob|pattern|source|input|output", re.I)
_LONGEST = 1024


class Named(NamedTuple):
    """A text that may name a file. ``folders``: it may also be the bare name of a folder, which
    texts of other meanings (``schema: public``) often are by chance."""

    text: str
    folders: bool = True

    @property
    def dotted(self) -> bool:
        """Returns whether it is a relative path, whether or not it exists."""
        return self.text.startswith(("./", "../"))

    def is_in(self, folder: str) -> bool:
        """Returns whether the file, or the first match of a pattern, exists relative to
        ``folder``."""
        with suppress(OSError, ValueError, re.error):
            path = absolute(self.text, folder)
            if os.path.isdir(path) and not self.folders and os.sep not in self.text:
                return False
            if os.path.lexists(path) or not glob.has_magic(self.text):
                return os.path.lexists(path)
            fixed, pattern = os.path.split(self.text)
            if glob.has_magic(fixed):  # not walked: the folder above the pattern is enough
                above = re.split(r"[^/]*[*?\[]", self.text, maxsplit=1)[0]
                return bool(above) and os.path.lexists(absolute(above, folder))
            return next(glob.iglob(pattern, root_dir=absolute(fixed, folder)), None) is not None
        return False


def is_relative(path: str) -> bool:
    return not (path.startswith(("/", "~")) or URL.match(path))


def may_be_path(text: str) -> bool:
    """Returns whether a text may be a relative path at all."""
    plain = 0 < len(text) <= _LONGEST and not re.search(r"[\0\r\n]", text)
    return plain and text.strip(".") != "" and is_relative(text) and not text.startswith("-")


def queries(use: str) -> bool:
    """Returns whether a reference is a query, or files that Spark reads."""
    spec = specs().get(use.partition(":")[0])
    return spec is not None and bool(spec.queries)


def runs_here(use: str) -> bool:
    """Returns whether the connector is a process of this machine, with a folder to work in."""
    body = use.partition(":")[2] or use
    return not (queries(use) or body.startswith("docker:") or body.endswith(".wasm"))


def named_in_use(use: str) -> list[Named]:
    """Returns what may be a relative path in a reference: ``./x`` anywhere, each word of a command,
    each name in backquotes of a query."""
    found = [Named(text) for text in DOTTED.findall(use)]
    body = use.partition(":")[2]
    if queries(use):
        bare = [] if re.search(r"\s", body.strip()) else [body.strip()]
        found += [Named(text) for text in (*bare, *_IN_QUOTES.findall(use)) if may_be_path(text)]
    elif len(body.split()) > 1:
        found += [Named(text) for text in _words(body) if may_be_path(text)]
    return list(dict.fromkeys(found))


def named_in_config(section: ConnectorSection) -> list[Named]:
    """Returns what may be a relative path in a configuration, and in the folders that a component
    or a container may open."""
    found = list(_texts("", section.config))
    permissions = section.permissions.configured() if section.permissions else {}
    folders = permissions.get("fs.allowed_preopens", ())
    found += [Named(folder.removesuffix(":ro")) for folder in folders]
    return [each for each in dict.fromkeys(found) if may_be_path(each.text)]


def _words(command: str) -> Iterator[str]:
    """Yields the words of a command, also those of its quoted words, and the modules of ``-m``."""
    try:
        words = [each for word in shlex.split(command) for each in re.split(r"[\s<>|;&()]+", word)]
    except ValueError:
        words = command.split()
    for before, word in zip(("", *words), words, strict=False):
        if before == "-m":
            module = word.replace(".", os.sep)
            yield from (f"{module}.py", module)
        elif "=" in word:  # --config=conf.json
            yield word.partition("=")[2].strip("'\"")
        else:
            yield word.strip("'\"")


def _texts(key: str, value: Any) -> Iterator[Named]:
    if isinstance(value, dict):
        for name, each in value.items():  # pyright: ignore[reportUnknownVariableType]
            yield from _texts(str(name), each)  # pyright: ignore[reportUnknownArgumentType]
    elif isinstance(value, list):
        for each in value:  # pyright: ignore[reportUnknownVariableType]
            yield from _texts(key, each)
    elif isinstance(value, str):
        database = _DATABASE.match(value)
        yield Named(database[1] if database else value, _OF_PATHS.search(key) is not None)
