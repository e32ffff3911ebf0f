"""Decides whether two references name the same connector, so that one may continue from the other's
state (L1).

Ignores versions, and the options of a command, which count as configuration. Compares files by
their resolved paths; a file that no longer exists was moved (a checkout elsewhere, a release under
a new name), and is recognised by its file name. Neighbours: ``reference`` parses references;
``engine.plan.source_protocol`` calls.
"""

import os
import re
import shlex
from pathlib import Path

from penstock.connectors.reference import ConnectorRef, RefKind, parse_ref
from penstock.errors import ConfigError

_INTERPRETER = re.compile(
    r"(?:python|pypy|node|ruby|perl|java|bash|dash|sh|zsh|env|uv|uvx)[0-9.]*(?:\.exe)?"
)
_CODE = ("-c", "-m")  # interpreter options that select the program
_VERSION = re.compile(r"[-_@.]?v?[0-9]+(?:\.[0-9]+)*(?:[-+.][0-9A-Za-z]+)*$")
_SHOWN_KINDS = (RefKind.package, RefKind.component, RefKind.path, RefKind.image)


def lasting(ref: ConnectorRef, here: Path) -> str:
    """Returns the reference with absolute paths, in which form it is stored: its meaning then does
    not depend on the current folder."""
    if ref.kind is RefKind.component and ref.command:
        return f"{ref.protocol}:{_absolute(ref.command[0], here)}"
    if ref.kind not in (RefKind.path, RefKind.command):
        return ref.text
    at = _program(ref.command)
    words = list(ref.command)
    for index in range(*at):
        if ref.kind is RefKind.path or os.sep in words[index] or (here / words[index]).is_file():
            words[index] = _absolute(words[index], here)
    return f"{ref.protocol}:{shlex.join(words)}"


def is_same(before: str, now: ConnectorRef, here: Path) -> bool:
    """Returns whether ``before`` and ``now`` are the same connector. ``before``: a result of
    :func:`lasting`, or a reference as the user wrote it (empty: unknown). Relative paths start from
    ``here``."""
    if not before:
        return True
    try:
        old, new = parse_ref(before), parse_ref(lasting(now, here))
        old = parse_ref(lasting(old, here))
    except ConfigError:
        return before == now.text
    if old.protocol != new.protocol:
        return False
    if old.kind is new.kind is RefKind.query:
        return True  # an edited query continues: its rows are compared, or its cursor holds
    if old.name is not None or new.name is not None:
        return old.name == new.name
    if not old.command or not new.command:
        return _unversioned(old.text) == _unversioned(new.text)
    ours, theirs = _words(old), _words(new)
    return len(ours) == len(theirs) and all(
        a == b or _same_file(a, b) for a, b in zip(ours, theirs, strict=True)
    )


def shown(text: str) -> str:
    """Returns a reference without passwords: of a command or a URL, which may hold one, only the
    program or the name."""
    try:
        ref = parse_ref(text)
    except ConfigError:
        return "another connector"
    if ref.kind is RefKind.query:
        return f"a query ({ref.protocol})"
    if ref.url is not None:
        return f"{ref.protocol}:{ref.name} (by its address)"
    if ref.kind in _SHOWN_KINDS and not re.search(r"\s", ref.text):
        return ref.text
    name = next((w for w in _words(ref)[:1] if w not in _CODE), "").partition(" ")[0]
    return f"a command ({ref.protocol}: {os.path.basename(name) or '...'} ...)"


def _words(ref: ConnectorRef) -> list[str]:
    first, end = _program(ref.command)
    return list(ref.command[first:end])


def _program(command: tuple[str, ...]) -> tuple[int, int]:
    """Returns the range of words that name the program: after an interpreter, up to the first
    option."""
    first = 0
    if len(command) > 1 and _INTERPRETER.fullmatch(os.path.basename(command[0])):
        first = 1
        while first < len(command) and command[first].startswith("-"):
            if command[first] in _CODE:
                return first, min(first + 2, len(command))
            first += 1
    if first == len(command):
        return 0, 1
    end = first + 1
    while end < len(command) and not command[end].startswith("-"):
        end += 1
    return first, end


def _absolute(path: str, here: Path) -> str:
    return os.path.normpath(here / Path(path).expanduser())


def _same_file(before: str, now: str) -> bool:
    if os.sep not in before or os.sep not in now:
        return False
    if os.path.realpath(before) == os.path.realpath(now):
        return True
    return not os.path.exists(before) and _stem(before) == _stem(now)


def _stem(path: str) -> str:
    """Returns a file's name without version and suffix."""
    name, _ = os.path.splitext(os.path.basename(path))
    return _VERSION.sub("", name) or name


def _unversioned(text: str) -> str:
    return re.sub(r"@[^@/]*$", "", text)
