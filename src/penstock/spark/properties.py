"""Reads and writes files of Java properties, the format of Spark's configuration.

Source: ``java.util.Properties.load``. Neighbours: ``jvm`` writes a session's settings,
``java_command`` reads a user's ``spark-defaults.conf``.
"""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|(.))", re.DOTALL)
_NAMED = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_KEY = re.compile(r"((?:\\.|[^\\=: \t\f])*)[ \t\f]*[=:]?[ \t\f]*(.*)", re.DOTALL)
_BLANK = " \t\f"


def read_properties(file: Path) -> dict[str, str]:
    """Reads the settings of a file, without blanks around values, as Spark does; empty if the file
    cannot be read."""
    try:
        text = file.read_text("utf-8", errors="replace")
    except OSError:
        return {}
    found: dict[str, str] = {}
    for line in _lines(text):
        parts = _KEY.fullmatch(line)
        if parts is not None:
            found[_plain(parts[1])] = _plain(parts[2]).strip()
    return found


def properties_text(settings: Mapping[str, str]) -> str:
    """Encodes settings as the text of a properties file."""
    return "".join(f"{_key(k)}={_value(v)}\n" for k, v in settings.items())


def _lines(text: str) -> Iterator[str]:
    """Yields logical lines: without comments, joined where one ends in a backslash."""
    begun = ""
    for natural in re.split(r"\r\n|\n|\r", text):
        line = natural.lstrip(_BLANK)
        if not begun and (not line or line[0] in "#!"):
            continue
        begun += line
        if (len(begun) - len(begun.rstrip("\\"))) % 2:
            begun = begun[:-1]
            continue
        yield begun
        begun = ""
    if begun:
        yield begun


def _plain(text: str) -> str:
    def one(found: re.Match[str]) -> str:
        return chr(int(found[1], 16)) if found[1] else _NAMED.get(found[2], found[2])

    return _ESCAPE.sub(one, text)


def _key(name: str) -> str:
    return "".join(f"\\{c}" if c in "\\ :=#!" else c for c in name)


def _value(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r")
    return f"\\{escaped}" if escaped.startswith(" ") else escaped
