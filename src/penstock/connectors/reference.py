"""What the user wrote as a connector, read into a :class:`ConnectorRef`. No I/O.

The grammar is the command-line contract's CONNECTOR. Neighbours: ``source`` makes a runnable
connector of a reference; ``tables`` takes references of kind table. Whether a name exists is not
known here.
"""

import difflib
import re
import shlex
from enum import StrEnum

import msgspec

from penstock.errors import ConfigError
from penstock.protocols import KNOWN as PROTOCOLS

LATER_PROTOCOLS = ("syncmaven",)
COMPONENTS = "rapidbyte"
"""The protocol whose connectors are WebAssembly components."""
TABLE_FORMATS = ("parquet", "delta", "iceberg", "postgres", "postgresql")

_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?")
_COMPONENT_NAME = re.compile(r"(?:\w[\w.-]*/)*[\w-]+(?:@v?(?P<version>[\w.-]+))?")
_BARE = re.compile(r"(?:[\w.-]+/)*(?:source|dest|destination|transform)-[\w-]+(?:@[\w.-]+)?")
"""Names that a Rapidbyte file uses without saying the protocol."""
_WASM = ".wasm"
_VERSION = re.compile(r"[0-9A-Za-z][0-9A-Za-z.!+_-]*")
_OWN_NAMES = ("singer",)
"""Protocols whose connectors are packages by their own name, whatever that begins with."""
_NAMED = {
    **dict.fromkeys(("source-", "destination-"), "airbyte"),
    **dict.fromkeys(("tap-", "target-"), "singer"),
}
"""How names begin, and of which protocol they then are."""
_PATH_STARTS = ("./", "../", "/", "~/")
_FORMS = (
    "PROTOCOL:NAME[@VERSION], PROTOCOL:./executable, PROTOCOL:'command with arguments', "
    "parquet:PATH or delta:PATH"
)


class RefKind(StrEnum):
    package = "package"  # name, version: an environment of its own is built
    component = "component"  # command: one .wasm file; or name: such a file is looked up
    path = "path"  # command: one executable
    command = "command"  # command: words, run without a shell
    table = "table"  # format, target
    spark = "spark"  # target: a SELECT


class ConnectorRef(msgspec.Struct, frozen=True, kw_only=True):
    """``text``: as written. ``protocol`` is set for package, path and command. A relative path
    stays relative. ``target`` of a table is None where only its format was named."""

    kind: RefKind
    text: str
    protocol: str | None = None
    name: str | None = None
    version: str | None = None
    command: tuple[str, ...] = ()
    format: str | None = None
    target: str | None = None


def parse_ref(text: str) -> ConnectorRef:
    """Raises ``ConfigError`` (``connector.reference``, ``connector.docker_later``,
    ``connector.protocol_later``) with what was probably meant."""
    text = text.strip()
    head, colon, rest = text.partition(":")
    if not text:
        raise _wrong(text, "is empty", f"write {_FORMS}")
    if head in TABLE_FORMATS:
        return _table(text, head, rest.strip() if colon else None)
    if not colon and (text.endswith(_WASM) or _BARE.fullmatch(text)):
        return _component(text, text)
    if not colon:
        raise _no_protocol(text)
    if head == "spark":
        return _spark(text, rest.strip())
    if head in LATER_PROTOCOLS:
        raise _wrong(
            text,
            f"is of the {head} protocol, which this version does not run yet",
            f"this version runs: {', '.join(PROTOCOLS)}",
            code="connector.protocol_later",
        )
    if head == COMPONENTS:
        return _component(text, rest.strip())
    if head not in PROTOCOLS:
        raise _unknown_head(text, head, rest)
    return _connector(text, head, rest.strip())


def _component(text: str, rest: str) -> ConnectorRef:
    """A file, or a name as Rapidbyte's own files have it: ``[namespace/]name[@version]``."""
    if not rest:
        raise _wrong(text, "names no component", f"write {COMPONENTS}:./file.wasm, or a name")
    if rest.endswith(_WASM) or rest.startswith(_PATH_STARTS):
        return ConnectorRef(kind=RefKind.component, text=text, protocol=COMPONENTS, command=(rest,))
    match = _COMPONENT_NAME.fullmatch(rest)
    if match is None:
        raise _wrong(text, "has no valid name", f"write {COMPONENTS}:./file.wasm, or a name")
    return ConnectorRef(
        kind=RefKind.component,
        text=text,
        protocol=COMPONENTS,
        name=rest.partition("@")[0],
        version=match["version"],
    )


def _connector(text: str, protocol: str, rest: str) -> ConnectorRef:
    if not rest:
        raise _wrong(text, "names no connector", f"write {protocol}:NAME, as in the package index")
    if rest.startswith("docker:"):
        raise _wrong(
            text,
            "is a container image; containers come later",
            f"use the connector's package ({protocol}:NAME) or a local executable",
            code="connector.docker_later",
        )
    words = _words(text, rest)
    if len(words) > 1:
        return ConnectorRef(
            kind=RefKind.command, text=text, protocol=protocol, command=tuple(words)
        )
    word = words[0]
    if word.startswith(_PATH_STARTS) or word in (".", ".."):
        return ConnectorRef(kind=RefKind.path, text=text, protocol=protocol, command=(word,))
    return _package(text, protocol, word)


def _words(text: str, rest: str) -> list[str]:
    """As a shell splits them. A quoted whole, as a YAML file may hold it, is split once more, but
    for a path with spaces."""
    try:
        words = shlex.split(rest)
        if len(words) == 1 and " " in words[0] and not words[0].startswith(_PATH_STARTS):
            words = shlex.split(words[0])
    except ValueError as e:
        raise _wrong(text, f"has unbalanced quotes ({e})", "close the quote") from None
    if not words or not words[0]:
        raise _wrong(text, "names no command", "write the command between the quotes")
    return words


def _package(text: str, protocol: str, word: str) -> ConnectorRef:
    name, at, version = word.partition("@")
    if "/" in word or "\\" in word or word.endswith((".py", ".sh", ".wasm")):
        raise _wrong(
            text, "looks like a path", f"did you mean {protocol}:./{word.removeprefix('./')} ?"
        )
    for separator in ("==", ":", "="):
        if separator in name:
            meant = "@".join(word.split(separator, 1))
            raise _wrong(
                text, f"has {separator!r} before its version", f"did you mean {protocol}:{meant} ?"
            )
    if name.startswith(f"{protocol}-") and protocol not in _OWN_NAMES:
        meant = word.removeprefix(f"{protocol}-")
        raise _wrong(text, "names the protocol twice", f"did you mean {protocol}:{meant} ?")
    if not _NAME.fullmatch(name):
        raise _wrong(text, f"has no valid name ({name!r})", f"write {_FORMS}")
    if at and not _VERSION.fullmatch(version):
        raise _wrong(
            text,
            f"has no valid version ({version!r})",
            f"write one exact version, as {name}@1.2.3, or none for the newest",
        )
    return ConnectorRef(
        kind=RefKind.package,
        text=text,
        protocol=protocol,
        name=re.sub(r"[._-]+", "-", name).lower(),
        version=version or None,
    )


def _table(text: str, name: str, target: str | None) -> ConnectorRef:
    if target == "":
        raise _wrong(text, "names no place", f"write {name}:PATH, as in {name}:./lake")
    if name in ("postgres", "postgresql") and target is not None:
        name, target = "postgres", text
    return ConnectorRef(kind=RefKind.table, text=text, format=name, target=target)


def _spark(text: str, query: str) -> ConnectorRef:
    if not query:
        raise _wrong(text, "has no query", "write spark:'SELECT ...'")
    return ConnectorRef(kind=RefKind.spark, text=text, target=query)


def _no_protocol(text: str) -> ConfigError:
    """No colon: a name of Rapidbyte's, an image, a path, or half a reference."""
    first = _named(text) or PROTOCOLS[0]
    if text.startswith(_PATH_STARTS) or (" " in text):
        return _wrong(text, "does not say its protocol", f"did you mean {first}:{text!r} ?")
    if "/" in text:
        name = text.rpartition("/")[2]
        return _wrong(text, "looks like an image", f"did you mean {first}:{name} ?")
    if _named(text):
        return _wrong(text, "does not say its protocol", f"did you mean {first}:{text} ?")
    if text in (*PROTOCOLS, *LATER_PROTOCOLS):
        return _wrong(text, "names no connector", f"write {text}:NAME")
    close = difflib.get_close_matches(text, (*TABLE_FORMATS, *PROTOCOLS), 1)
    meant = f"did you mean {close[0]}: ?" if close else f"write {_FORMS}"
    return _wrong(text, "does not say its protocol", meant)


def _named(text: str) -> str | None:
    """The protocol that a bare name's last part points to."""
    name = text.rpartition("/")[2]
    for beginning, protocol in _NAMED.items():
        if name.startswith(beginning) or (protocol in _OWN_NAMES and f"-{beginning}" in name):
            return protocol
    return None


def _unknown_head(text: str, head: str, rest: str) -> ConfigError:
    known = (*PROTOCOLS, *TABLE_FORMATS, "spark", *LATER_PROTOCOLS)
    close = difflib.get_close_matches(head.lower(), known, 1)
    if close:
        hint = f"did you mean {close[0]}:{rest} ?"
    elif "/" in head or _named(head):
        name = head.rpartition("/")[2]
        hint = f"did you mean {_named(head) or PROTOCOLS[0]}:{name}@{rest} ?"
    else:
        hint = f"known: {', '.join(known)}"
    return _wrong(text, f"begins with an unknown protocol or table format, {head!r}", hint)


def _wrong(text: str, what: str, hint: str, *, code: str = "connector.reference") -> ConfigError:
    return ConfigError(f"connector {text!r} {what}", code=code, hint=hint)
