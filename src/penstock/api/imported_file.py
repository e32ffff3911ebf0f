"""Writes a pipeline file from another tool's project, with notes on what could not be carried over.

Neighbours: ``meltano_project`` and ``pyairbyte_script`` read projects; ``new_file`` writes files
from connectors' specifications.
"""

import re
from typing import Any, NamedTuple

import yaml

from penstock.config.secret_texts import names_a_secret

_NO_SECRET = re.compile(
    r"(?:^|[_-])(?:type|method|mode|title|ur[il]|path|file|name|id|fields?)$"
    r"|^(?:primary|replication|cursor|sort|partition)[_-]key$",
    re.IGNORECASE,
)


class ImportedFile(NamedTuple):
    """One pipeline file: its name in words, its text, and what could not be carried over."""

    pipeline: str
    text: str
    notes: list[str]


class Reference(str):
    """A text with variables, which is quoted: its value is a text."""


class TypedVariable(str):
    """A variable whose value may be a number or a truth value."""


class YamlNumber(str):
    """A number with a decimal point, with all of its digits."""


class _Dumper(yaml.SafeDumper):
    def ignore_aliases(self, data: Any) -> bool:
        """Values that occur twice are written twice."""
        return True


def _quoted(dumper: yaml.SafeDumper, value: str) -> yaml.Node:
    return dumper.represent_scalar("tag:yaml.org,2002:str", str(value), style='"')


def _plain(dumper: yaml.SafeDumper, value: str) -> yaml.Node:
    return dumper.represent_scalar("tag:yaml.org,2002:str", str(value))


def _number(dumper: yaml.SafeDumper, value: str) -> yaml.Node:
    return dumper.represent_scalar("tag:yaml.org,2002:float", str(value))


def _text_of(dumper: yaml.SafeDumper, value: str) -> yaml.Node:
    """Represents a text of the project, in which ``${`` is no variable."""
    return dumper.represent_scalar("tag:yaml.org,2002:str", value.replace("${", "$${"))


_Dumper.add_representer(Reference, _quoted)
_Dumper.add_representer(TypedVariable, _plain)
_Dumper.add_representer(str, _text_of)
_Dumper.add_representer(YamlNumber, _number)


def pipeline_file(
    name: str, first: str, notes: list[str], document: dict[str, Any]
) -> ImportedFile:
    """Writes a pipeline's text. ``first``: its first comment; each note follows as a comment."""
    said = [first, *(f"Not carried over: {note}." for note in notes)]
    lines = [f"# {' '.join(line.split())}" for line in said]
    body = yaml.dump(document, Dumper=_Dumper, sort_keys=False, width=96, allow_unicode=True)
    return ImportedFile(name, "\n".join(lines) + "\n" + body, notes)


def holds_a_secret(name: str) -> bool:
    """Returns whether a property of this name is treated as a secret, which no file may hold:
    ``private_token``, but not ``auth_type`` or ``token_url``."""
    return names_a_secret(name) and _NO_SECRET.search(name) is None
