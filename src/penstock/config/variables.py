"""Substitutes ``${NAME}`` in scalars, and reads files of variables (``--env-file``, ``.env``).

A variable gives a value to one scalar; it never adds structure, since it is substituted after the
YAML is parsed. Values of variables are recorded, and masked wherever text is written (L10), apart
from those that ``secret_texts.is_harmless`` accepts under a key whose name does not suggest a
secret.

    port: ${PGPORT}              the whole of a plain scalar: the type YAML gives the value
    url: "${HOST}", a${HOST}b    inside a longer or quoted scalar: text
    ${NAME:-default}             where NAME is unset or empty
    $${NAME}                     the text ${NAME}

In one key a name is not a variable (SOURCE_NAMESPACE in ``destination.namespace``): there the
reference stays as written, even if the environment has such a variable.

The file ``.env`` in a pipeline file's folder provides variables that neither the environment nor
``--env-file`` has. Connectors, hooks and Penstock's own options do not see it. In a key that
identifies the pipeline (``IDENTITY``) it fills no reference that has a default: an older file, or
another tool's ``.env``, would otherwise restart the pipeline under another name.

A plain scalar that is only a variable with an empty value is null, like an empty plain scalar; in
quotes it is the empty text.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from penstock.config.did_you_mean import closest
from penstock.config.scalars import Plain, plain
from penstock.config.yaml_nodes import Scalar, decode
from penstock.errors import ConfigError

IDENTITY = ("pipeline", "id", "state", "log")
"""Keys and sections of a pipeline file that set the name and place of the saved progress."""

_NAME = r"[A-Za-z_][A-Za-z0-9_]*"
_REFERENCE = re.compile(rf"\$\$\{{|\$\{{({_NAME})(?::-([^}}]*))?\}}|(\$\{{[^}}\n]*\}}?)")
_V4_REFERENCE = re.compile(rf"\$\{{({_NAME})()\}}")
_ASSIGNMENT = re.compile(rf"[ \t]*(?:export[ \t]+)?({_NAME})[ \t]*=[ \t]*")
_DOUBLE_QUOTED = re.compile(r'"((?:[^"\\]|\\.)*)"', re.DOTALL)
_SINGLE_QUOTED = re.compile(r"'([^']*)'")
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r"}


@dataclass(slots=True)
class Substituted:
    """A scalar after substitution: its typed ``value`` and its ``text``. ``variables``: the names
    used; ``secrets``: their values, empty ones left out; ``unset``: the faults of variables without
    a value, whose references stay as written; ``passed``: names that ``.env`` has but does not
    provide here."""

    value: Plain
    text: str
    variables: tuple[str, ...] = ()
    secrets: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()
    passed: tuple[str, ...] = ()
    unset: tuple[str, ...] = ()


class EnvFileBeside:
    """The file ``.env`` of a pipeline file's ``folder``, read at the first name that has no value
    from elsewhere. ``given``: the names that it provided; ``fault``: why it is unusable, without
    any of its values; None: it can be read, or no such file exists (a folder of this name is a
    virtual environment)."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / ".env"
        self.given: dict[str, None] = {}
        self.fault: str | None = None
        self._values: dict[str, str] | None = None

    def get(self, name: str) -> str | None:
        """Returns the value of a variable; None: the file lacks it."""
        value = self._found().get(name)
        if value is not None:
            self.given[name] = None
        return value

    def has(self, name: str) -> bool:
        """Returns whether the file has a value for the variable that is not empty."""
        return bool(self._found().get(name))

    def _found(self) -> dict[str, str]:
        if self._values is None:
            self._values = self._read()
        return self._values

    def _read(self) -> dict[str, str]:
        if not self.path.is_file():
            return {}
        try:
            return read_env_file(self.path)
        except ConfigError as error:
            self.fault = f"{error.message}; nothing is taken from it"
            return {}


class VariableResolver:
    """The variables of one load. ``v4``: Rapidbyte's syntax, which has no default and no escape,
    and leaves other text unchanged. ``beside``: provides variables that ``values`` lacks."""

    def __init__(
        self, values: Mapping[str, str], *, v4: bool = False, beside: EnvFileBeside | None = None
    ) -> None:
        self._values, self._beside = values, beside
        self._pattern = _V4_REFERENCE if v4 else _REFERENCE

    def resolve(
        self, scalar: Scalar, kept: tuple[str, ...] = (), *, identity: bool = False
    ) -> Substituted:
        """Substitutes the variables of ``scalar``. A missing variable is a problem; the value must
        not be used then. ``kept``: names that are not variables in this key and stay as written.
        ``identity``: the key is one of :data:`IDENTITY`."""
        if "${" not in scalar.text:
            value = plain(scalar.text) if scalar.plain else scalar.text
            return Substituted(value, scalar.text)
        used: list[str] = []
        secrets: list[str] = []
        problems: list[str] = []
        unset: list[str] = []
        passed: list[str] = []

        def replace(match: re.Match[str]) -> str:
            if match[0] == "$${":
                return "${"
            name = match[1]
            if name is None:
                problems.append(
                    f"'{match[0]}' is not a variable: names have letters, digits and '_'; "
                    "write $${ for the text ${"
                )
                return match[0]
            if name in kept:
                if match[0] != f"${{{name}}}":
                    problems.append(f"{name} is not a variable here and has no default")
                return match[0]
            used.append(name)
            value, default = self._values.get(name), match[0].startswith(f"${{{name}:-")
            if value is None and self._beside is not None:
                if not (identity and default):
                    value = self._beside.get(name)
                elif self._beside.has(name):
                    passed.append(name)
            if default and not value:
                return match[2] or ""
            if value is None:
                near = closest(name, kept)
                meant = f"; did you mean ${{{near}}}?" if near else ""
                unset.append(f"variable {name} is not set{meant}")
                return match[0]
            if not value.isascii() and value.encode("utf-8", "ignore").decode() != value:
                problems.append(f"variable {name} is not UTF-8 text")
                return ""
            if value:
                secrets.append(value)
            return value

        text = self._pattern.sub(replace, scalar.text)
        whole = self._pattern.fullmatch(scalar.text)
        alone = scalar.plain and whole is not None and whole[1] is not None
        value = plain(text) if alone else text
        found = Substituted(value, text, tuple(used), tuple(secrets), tuple(problems))
        found.passed, found.unset = tuple(passed), tuple(unset)
        return found


def read_env_file(path: str | Path) -> dict[str, str]:
    """Reads a file of ``NAME=value`` lines: comments, ``export``, single quotes (literal), double
    quotes (``\\n``, ``\\t``, ``\\"``, ``\\\\``); a quoted value may span lines. Raises
    ``ConfigError``; its messages never show a value."""
    name = str(path)
    try:
        raw = Path(path).read_bytes()
    except OSError as error:
        raise ConfigError(
            f"the file of variables {name} cannot be read: {error.strerror}",
            code="config.env_file",
            where=name,
            hint="give --env-file a file of NAME=value lines",
        ) from None
    values: dict[str, str] = {}
    problems: list[str] = []
    text = decode(raw, name).replace("\r\n", "\n")
    at = 0
    while at < len(text):
        end = text.find("\n", at)
        end = len(text) if end < 0 else end
        line = text[at:end].strip()
        if not line or line.startswith("#"):
            at = end + 1
            continue
        at = _assignment(text, at, end, name, values, problems)
    if problems:
        raise ConfigError(
            f"{name} has {len(problems)} line(s) that cannot be read: {problems[0]}",
            problems=problems,
            code="config.env_file",
            where=name,
            hint="each line is NAME=value; put values with # or quotes in quotes",
        )
    return values


def _assignment(
    text: str, at: int, end: int, name: str, values: dict[str, str], problems: list[str]
) -> int:
    """Reads the assignment at offset ``at``; returns the offset of the next line."""
    where = f"{name}:{text.count(chr(10), 0, at) + 1}"
    match = _ASSIGNMENT.match(text, at, end)
    if match is None:
        problems.append(f"{where}: expected NAME=value")
        return end + 1
    start = match.end()
    quote = text[start : start + 1]
    if quote not in ("'", '"') or start >= end:
        value = text[start:end]
        comment = re.search(r"(?:^|\s)#", value)
        values[match[1]] = (value[: comment.start()] if comment else value).strip()
        return end + 1
    quoted = (_SINGLE_QUOTED if quote == "'" else _DOUBLE_QUOTED).match(text, start)
    if quoted is None:
        problems.append(f"{where}: the quote of {match[1]} is not closed")
        return end + 1
    after = text.find("\n", quoted.end())
    after = len(text) if after < 0 else after
    rest = text[quoted.end() : after].strip()
    if rest and not rest.startswith("#"):
        problems.append(f"{where}: text after the closing quote of {match[1]}")
    values[match[1]] = _unescape(quoted[1]) if quote == '"' else quoted[1]
    return after + 1


def _unescape(text: str) -> str:
    return re.sub(r"\\(.)", lambda m: _ESCAPES.get(m[1], m[1]), text, flags=re.DOTALL)


def merged(env: Mapping[str, str], files: Iterable[str | Path]) -> dict[str, str]:
    """Merges variables: the environment overrides the files, a later file an earlier one."""
    values: dict[str, str] = {}
    for path in files:
        values.update(read_env_file(path))
    values.update(env)
    return values
