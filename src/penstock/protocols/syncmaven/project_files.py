"""Reads the files of a Syncmaven project: YAML, JSON5, and SQL with ``config`` directives.

Returns each file's values by key, with its variables inserted: ``{{ env.NAME }}``, ``${env.NAME}``
and ``${env.NAME:default}``. An inserted value is text and is not parsed again, so it can name no
other variable, add no key and never loop. Not here: what the keys mean (``project``). Source: the
pages Project, Model, Connection and Sync of the host's documentation; reference §3.
"""

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, cast

from penstock.config import yaml_nodes
from penstock.config.scalars import plain
from penstock.config.secret_texts import is_harmless
from penstock.config.variables import merged
from penstock.config.yaml_nodes import Node, Scalar
from penstock.errors import ConfigError

_READ = (".yml", ".yaml", ".json")
_EXPRESSION = re.compile(r"\{\{\{?~?\s*(?P<braces>[^{}]*?)\s*~?\}?\}\}|\$\{(?P<dollar>[^{}\n]*)\}")
_VARIABLE = re.compile(r"env\.(?P<name>[A-Za-z_]\w*)")
_WITH_DEFAULT = re.compile(r"\s*env\.(?P<name>[A-Za-z_]\w*)\s*(?::(?P<default>.*))?", re.DOTALL)
_CONFIG = re.compile(r'config\s+(["\'])(?P<key>[\w.]+)\1\s+(?P<value>.+)', re.DOTALL)
_RESULT = re.compile(r"result\.(rows|row|length)")
"""The placeholders of the ``http`` connector, which fills rows in by itself."""

_FILES = (".env", ".env.local")


def variables(
    folder: Path, environ: Mapping[str, str], env_files: tuple[str, ...]
) -> dict[str, str]:
    """Returns the variables of a project. The first source with a variable wins: the process's
    environment, ``--env-file`` (the last one first), ``.env.local`` and ``.env`` of the current
    folder, those of the project. Raises ``ConfigError``."""
    found = [place / name for place in (folder, Path.cwd()) for name in _FILES]
    return merged(environ, [*(file for file in found if file.is_file()), *env_files])


class File:
    """One file of a project. ``name``: as in messages. :meth:`values` reads its keys."""

    def __init__(self, path: Path, folder: Path) -> None:
        self.path, self.name = path, str(path.relative_to(folder))
        self.lines: dict[str, int] = {}
        self._raw: Any = None
        self._sql: str | None = None

    def read(self) -> None:
        """Parses the file. Raises ``ConfigError``."""
        try:
            raw = self.path.read_bytes()
        except OSError as e:
            raise ConfigError(
                f"{self.name} cannot be read: {e.strerror}",
                code="config.project",
                where=self.name,
                hint="every file of a project must be readable",
            ) from None
        text = yaml_nodes.decode(raw, self.name)
        if self.path.suffix == ".sql":
            self._sql = text
        elif self.path.suffix == ".json":
            self._raw = _json5(text, self.name)
        else:
            document = yaml_nodes.compose(text, self.name)
            if document.problems:
                line, said = document.problems[0]
                raise _fault(f"{self.name}:{line}", said)
            if isinstance(document.root, yaml_nodes.Mapping):
                self.lines = {key.text: key.line for key, _ in document.root.items}
            self._raw = _plain(document.root)
        if self._sql is None and not isinstance(self._raw, dict):
            raise _fault(self.name, "it is not a mapping of keys to values")

    @property
    def stem(self) -> str:
        """The file's name up to its first dot: its id where it has no key ``id``."""
        return self.path.name.partition(".")[0]

    def at(self, key: str = "") -> str:
        """Returns the position of a key, for messages."""
        line = self.lines.get(key.partition(".")[0])
        return f"{self.name}:{line}" if line is not None else self.name

    def id(self) -> str:
        """Its key ``id``, as written, else its :attr:`stem`."""
        if self._sql is not None:
            matched = re.search(r'config\s+(["\'])id\1\s+(["\'])(?P<id>[^"\']+)\2', self._sql)
            return matched["id"] if matched else self.stem
        named = self._raw.get("id")
        return str(named) if named not in (None, "") else self.stem

    def values(self, put: "Variables") -> dict[str, Any]:
        """Returns the keys with their values; ``query`` is the text of an SQL file."""
        if self._sql is not None:
            return put.sql(self._sql, self)
        found = cast(dict[str, Any], self._raw)
        return {key: put.inside(value, self.at(key)) for key, value in found.items()}


class Variables:
    """Inserts variables into texts. ``problems``: the faults found, each with its position.
    ``secrets``: the inserted values."""

    def __init__(self, values: Mapping[str, str]) -> None:
        self._values = values
        self.problems: list[str] = []
        self.secrets: set[str] = set()

    def inside(self, value: Any, where: str) -> Any:
        """Returns the value with the variables in every text inserted."""
        if isinstance(value, str):
            return self.text(value, where)
        if isinstance(value, dict):
            pairs = cast(dict[str, Any], value).items()
            return {key: self.inside(item, where) for key, item in pairs}
        if isinstance(value, list):
            return [self.inside(item, where) for item in cast(list[Any], value)]
        return value

    def text(
        self, text: str, where: str, directive: Callable[[str], str | None] | None = None
    ) -> str:
        """Returns the text with its variables inserted, each unchanged. ``directive``: the
        replacement of an expression in braces that is not a variable; None: it is unknown."""

        def replaced(match: re.Match[str]) -> str:
            braces = match["braces"]
            if braces is None:
                matched = _WITH_DEFAULT.fullmatch(match["dollar"])
                if matched is not None:
                    return self._value(matched["name"], matched["default"], where)
            else:
                matched = _VARIABLE.fullmatch(braces)
                if matched is not None:
                    return self._value(matched["name"], None, where)
                if (result := _RESULT.fullmatch(braces)) is not None:
                    name = {"rows": "ROWS", "row": "ROW", "length": "LENGTH"}[result[1]]
                    return f"[RESULT_{name}]"
                made = directive(braces) if directive is not None else None
                if made is not None:
                    return made
            self.problems.append(
                f"{where}: {match[0]!r} is not a variable: write ${{env.NAME}},"
                " ${env.NAME:default} or {{ env.NAME }}"
            )
            return match[0]

        return _EXPRESSION.sub(replaced, text)

    def sql(self, text: str, file: File) -> dict[str, Any]:
        """Returns the keys that the ``config`` directives of an SQL file set, and its query."""
        found: dict[str, Any] = {}

        def directive(inner: str) -> str | None:
            matched = _CONFIG.fullmatch(inner)
            if matched is None:
                return None
            _set(found, matched["key"].split("."), self._argument(matched["value"], file))
            return ""

        query = self.text(text, file.name, directive)
        lines = query.splitlines()
        while lines and lines[0].strip() in ("", "--"):
            lines.pop(0)
        return {**found, "query": "\n".join(lines)}

    def _argument(self, text: str, file: File) -> Any:
        """Returns the value of a directive: a quoted text, a variable, a number, a boolean."""
        text = text.strip()
        if len(text) > 1 and text[0] == text[-1] and text[0] in "\"'":
            return self.text(text[1:-1], file.name)
        matched = _VARIABLE.fullmatch(text)
        if matched is not None:
            return self._value(matched["name"], None, file.name)
        value = plain(text)
        if isinstance(value, str):
            self.problems.append(
                f"{file.name}: {text!r} is not a value of a config directive: write"
                ' "TEXT" or env.NAME'
            )
        return value

    def _value(self, name: str, default: str | None, where: str) -> str:
        found = self._values.get(name, default)
        if found is None:
            self.problems.append(f"{where}: variable {name} is not set")
            return f"${{env.{name}}}"
        if name in self._values and not is_harmless(found):
            self.secrets.add(found)
        return found


def files_in(folder: Path, kind: str, notes: list[str]) -> list[File]:
    """Returns the parsed files of one of a project's folders, sorted by name. Hidden files are
    skipped; other files that do not belong to a project are noted. Raises ``ConfigError``."""
    endings = (*_READ, ".sql") if kind == "models" else _READ
    found: list[File] = []
    for path in sorted((folder / kind).iterdir()):
        if path.name.startswith("."):
            continue
        if path.is_dir() or path.suffix not in endings:
            what = "folder" if path.is_dir() else "file"
            notes.append(f"{path.relative_to(folder)} is not a {what} of a project: it is ignored")
            continue
        file = File(path, folder)
        file.read()
        found.append(file)
    return found


def _set(values: dict[str, Any], steps: list[str], value: Any) -> None:
    for step in steps[:-1]:
        inner = values.get(step)
        if not isinstance(inner, dict):
            inner = values[step] = {}
        values = cast(dict[str, Any], inner)
    values[steps[-1]] = value


def _plain(node: Node) -> Any:
    if isinstance(node, Scalar):
        return plain(node.text) if node.plain else node.text
    if isinstance(node, yaml_nodes.Mapping):
        return {key.text: _plain(value) for key, value in node.items}
    return [_plain(item) for item in node.items]


def _json5(text: str, name: str) -> Any:
    import json5

    try:
        return json5.loads(text)
    except ValueError as e:
        raise _fault(name, f"it is not JSON5: {e}") from None


def _fault(where: str, what: str) -> ConfigError:
    return ConfigError(
        f"{where}: {what}",
        problems=[f"{where}: {what}"],
        code="config.project",
        where=where,
        hint="the files of a project are YAML, JSON5 and, in models/, SQL",
    )
