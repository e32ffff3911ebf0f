"""Parses what the user wrote as a connector into a :class:`ConnectorRef`. No I/O, except that the
hint for an invalid reference reads the index of connectors.

The grammar is the command-line contract's CONNECTOR. Not here: whether a name exists. Neighbours:
``resolve`` makes a runnable connector from a reference; ``tables`` takes references of kind table.
"""

import difflib
import re
import shlex
from enum import StrEnum
from functools import cache

import msgspec

from penstock.config.protocol_spec import ProtocolSpec, specs
from penstock.config.table_formats import table_formats
from penstock.errors import ConfigError

_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?")
_COMPONENT_NAME = re.compile(r"(?:\w[\w.-]*/)*[\w-]+(?:@v?(?P<version>[\w.-]+))?")
_WASM = ".wasm"
_VERSION = re.compile(r"[0-9A-Za-z][0-9A-Za-z.!+_-]*")
_NPM_NAME = re.compile(
    r"(?P<name>(?:@[a-z0-9][a-z0-9._~-]*/)?[a-z0-9][a-z0-9._~-]*)"
    r"(?:@(?P<version>[0-9][0-9A-Za-z.+-]*))?"
)
_PATH_STARTS = ("./", "../", "/", "~/")
_URL = re.compile(r"(?:git\+(?:https?|ssh|file)|https?|file)://\S+")
_IMAGE = "docker:"
_IMAGE_NAME = re.compile(
    r"(?P<name>(?:[A-Za-z0-9.-]+(?::[0-9]+)?/)?[a-z0-9]+(?:[._/-]+[a-z0-9]+)*)"
    r"(?::(?P<tag>\w[\w.-]{0,127}))?(?:@(?P<digest>sha256:[0-9a-f]{64}))?"
)
_USER = re.compile(r"://[^/\s]*@")
_LONGEST_WORD = 60
_FORMS = (
    "PROTOCOL:NAME[@VERSION], PROTOCOL:./executable, PROTOCOL:docker:IMAGE, "
    "PROTOCOL:'command with arguments', spark:'SELECT ...', parquet:PATH or delta:PATH"
)


class RefKind(StrEnum):
    """The forms of a reference."""

    package = "package"  # name, version: an environment of its own is built
    component = "component"  # command: one .wasm file; or name: such a file is looked up
    path = "path"  # command: one executable
    command = "command"  # command: words, run without a shell
    image = "image"  # target: a container image; name, version: without and only its tag
    table = "table"  # format, target
    query = "query"  # target: what Spark reads: a SELECT, a table, a file


class ConnectorRef(msgspec.Struct, frozen=True, kw_only=True):
    """A parsed reference. ``text``: as written. ``protocol``: set for all but tables. ``url``: the
    address of a package from outside the index. A relative path stays relative. ``target`` of a
    table is None where only its format was named."""

    kind: RefKind
    text: str
    protocol: str | None = None
    name: str | None = None
    version: str | None = None
    url: str | None = None
    command: tuple[str, ...] = ()
    format: str | None = None
    target: str | None = None


def parse_ref(text: str) -> ConnectorRef:
    """Parses a reference. Raises ``ConfigError`` (``connector.reference``) with a did-you-mean."""
    text = text.strip()
    head, colon, rest = text.partition(":")
    if not text:
        raise _wrong(text, "is empty", f"write {_FORMS}")
    if head in table_formats():
        return _table(text, head, rest.strip() if colon else None)
    if not colon:
        return _bare(text)
    spec = specs().get(head)
    if spec is None:
        raise _unknown_head(text, head, rest)
    read = _component if spec.components else _query if spec.queries else _connector
    return read(text, spec, rest.strip())


def _bare(text: str) -> ConnectorRef:
    """Parses a reference without a colon: a component's file, or a name with the prefix of a
    component protocol."""
    for spec in specs().values():
        names = _bare_names((*spec.prefixes, *spec.transforms))
        if spec.components and (text.endswith(_WASM) or names.fullmatch(text)):
            return _component(text, spec, text)
    raise _no_protocol(text)


@cache
def _bare_names(beginnings: tuple[str, ...]) -> re.Pattern[str]:
    """Returns the pattern of names that a Rapidbyte file uses without a protocol."""
    known = "|".join(map(re.escape, beginnings)) or "(?!)"
    return re.compile(rf"(?:[\w.-]+/)*(?:{known})[\w-]+(?:@[\w.-]+)?")


def _component(text: str, spec: ProtocolSpec, rest: str) -> ConnectorRef:
    """Parses a component: a file, or a name in the form of Rapidbyte's files,
    ``[namespace/]name[@version]``."""
    protocol = spec.name
    if not rest:
        raise _wrong(text, "names no component", f"write {protocol}:./file.wasm, or a name")
    if rest.endswith(_WASM) or rest.startswith(_PATH_STARTS):
        return ConnectorRef(kind=RefKind.component, text=text, protocol=protocol, command=(rest,))
    match = _COMPONENT_NAME.fullmatch(rest)
    if match is None:
        raise _wrong(text, "has no valid name", f"write {protocol}:./file.wasm, or a name")
    return ConnectorRef(
        kind=RefKind.component,
        text=text,
        protocol=protocol,
        name=rest.partition("@")[0],
        version=match["version"],
    )


def _connector(text: str, spec: ProtocolSpec, rest: str) -> ConnectorRef:
    protocol = spec.name
    if not rest:
        raise _wrong(text, "names no connector", f"write {protocol}:NAME, as in the package index")
    if rest.startswith(_IMAGE):
        return _image(text, protocol, rest.removeprefix(_IMAGE).strip())
    if _URL.fullmatch(rest) and spec.registry == "pypi":
        return _of_url(text, protocol, rest)
    words = _words(text, rest)
    if len(words) > 1:
        return ConnectorRef(
            kind=RefKind.command, text=text, protocol=protocol, command=tuple(words)
        )
    word = words[0]
    if word.startswith(_PATH_STARTS) or word in (".", ".."):
        return ConnectorRef(kind=RefKind.path, text=text, protocol=protocol, command=(word,))
    return (_npm_package if spec.registry == "npm" else _package)(text, spec, word)


def _npm_package(text: str, spec: ProtocolSpec, word: str) -> ConnectorRef:
    protocol = spec.name
    match = _NPM_NAME.fullmatch(word)
    if match is None or word.endswith((".js", ".mjs", ".py", ".sh")):
        raise _wrong(
            text,
            "names no package of npm",
            f"write {protocol}:NAME[@VERSION], {protocol}:@SCOPE/NAME[@VERSION], "
            f'{protocol}:./EXECUTABLE, {protocol}:"COMMAND WORDS" or {protocol}:docker:IMAGE',
        )
    return ConnectorRef(
        kind=RefKind.package,
        text=text,
        protocol=protocol,
        name=match["name"],
        version=match["version"],
    )


def _image(text: str, protocol: str, image: str) -> ConnectorRef:
    """Parses an image as the engine's command line names it, with a tag or a digest."""
    match = _IMAGE_NAME.fullmatch(image)
    if match is None:
        raise _wrong(
            text,
            f"has no valid image name ({image!r})" if image else "names no image",
            f"write {protocol}:{_IMAGE}IMAGE[:TAG], as in airbyte/source-faker:7.2.1",
        )
    return ConnectorRef(
        kind=RefKind.image,
        text=text,
        protocol=protocol,
        name=match["name"],
        version=match["tag"] or match["digest"],
        target=image,
    )


def _of_url(text: str, protocol: str, url: str) -> ConnectorRef:
    """Parses ``git+https://host/tap-x.git@REVISION`` or an archive, in pip's syntax. The name comes
    from the URL until the package's own is known."""
    place, _, fragment = url.partition("#")
    user = place.partition("://")[2].partition("/")[0].rpartition("@")[0]
    # A user without a password is a token over HTTP (https://TOKEN@github.com/...); over SSH it is
    # a name.
    if ":" in user or (user and "ssh" not in place.partition("://")[0]):
        raise _wrong(
            text,
            "has a password or a token in its address, which is shown in many places",
            "give it to git (a credential helper) or to uv (a .netrc file)",
        )
    egg = re.search(r"(?:^|&)egg=([^&\[]+)", fragment)
    last = re.sub(r"@[^/]*$", "", place.partition("?")[0]).rstrip("/").rpartition("/")[2]
    plain = re.sub(r"\.(?:git|whl|zip|tgz|tar\.\w+)$", "", last)
    name = egg[1] if egg else re.split(r"-(?=\d)", plain)[0]
    if not _NAME.fullmatch(name):
        raise _wrong(text, "has an address that names no package", "end it with #egg=NAME")
    return ConnectorRef(
        kind=RefKind.package,
        text=text,
        protocol=protocol,
        name=re.sub(r"[._-]+", "-", name).lower(),
        url=url,
    )


def _words(text: str, rest: str) -> list[str]:
    """Splits a command as a shell does. A single quoted string, as in a YAML file, is split once
    more, unless it is a path with spaces."""
    try:
        words = shlex.split(rest)
        if len(words) == 1 and " " in words[0] and not words[0].startswith(_PATH_STARTS):
            words = shlex.split(words[0])
    except ValueError as e:
        raise _wrong(text, f"has unbalanced quotes ({e})", "close the quote") from None
    if not words or not words[0]:
        raise _wrong(text, "names no command", "write the command between the quotes")
    return words


def _package(text: str, spec: ProtocolSpec, word: str) -> ConnectorRef:
    protocol = spec.name
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
    if name.startswith(f"{protocol}-") and not spec.own_names:
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
    return ConnectorRef(kind=RefKind.table, text=text, format=name, target=target)


def _query(text: str, spec: ProtocolSpec, rest: str) -> ConnectorRef:
    if not rest:
        raise _wrong(text, "has no query", f"write {spec.name}:'SELECT ...', or name a table")
    return ConnectorRef(kind=RefKind.query, text=text, protocol=spec.name, target=rest)


def _no_protocol(text: str) -> ConfigError:
    """Returns the error for an image, a path, or a reference without a protocol."""
    first = _named(text) or next(iter(specs()))
    if text.startswith(_PATH_STARTS) or (" " in text):
        return _wrong(text, "does not name its protocol", f"did you mean {first}:{text!r} ?")
    if "/" in text:
        return _wrong(text, "looks like an image", f"did you mean {first}:{_IMAGE}{text} ?")
    if _named(text):
        from penstock.connectors.catalog.suggest import listed_as

        meant = listed_as(first, text) or f"{first}:{text}"
        return _wrong(text, "does not name its protocol", f"did you mean {meant} ?")
    if text in specs():
        return _wrong(text, "names no connector", f"write {text}:NAME")
    close = difflib.get_close_matches(text, (*table_formats(), *specs()), 1)
    meant = f"did you mean {close[0]}: ?" if close else _in_the_index(text)
    return _wrong(text, "does not name its protocol", meant)


def _in_the_index(text: str) -> str:
    """Returns a hint with the connector that a word finds, such as ``github``."""
    from penstock.connectors.catalog.suggest import found_for

    found = found_for(text) if len(text) <= _LONGEST_WORD else None
    if found is None:
        return f"write {_FORMS}; `penstock search WORDS` finds connectors"
    first, word = found
    return f"did you mean {first} ? `penstock search {shlex.quote(word)}` shows all"


def _named(text: str) -> str | None:
    """Returns the protocol whose prefix the last part of a bare name has, or None."""
    name = text.rpartition("/")[2]
    for spec in specs().values():
        if not spec.components and any(
            name.startswith(p) or (spec.own_names and f"-{p}" in name) for p in spec.prefixes
        ):
            return spec.name
    return None


def _unknown_head(text: str, head: str, rest: str) -> ConfigError:
    known = (*specs(), *table_formats())
    close = difflib.get_close_matches(head.lower(), known, 1)
    if close:
        hint = f"did you mean {close[0]}:{rest} ?"
    elif "/" in head:
        package = f"{_named(head) or known[0]}:{head.rpartition('/')[2]}@{rest}"
        hint = f"did you mean {_named(head) or known[0]}:{_IMAGE}{text}, or {package} ?"
    elif _named(head):
        name = head.rpartition("/")[2]
        hint = f"did you mean {_named(head) or known[0]}:{name}@{rest} ?"
    else:
        hint = f"known: {', '.join(known)}"
    return _wrong(text, f"begins with an unknown protocol or table format, {head!r}", hint)


def _wrong(text: str, what: str, hint: str) -> ConfigError:
    """Returns the error for a reference; the user in a URL, which may have a password, is
    masked."""
    hidden, advice = (_USER.sub("://****@", said) for said in (text, hint))
    return ConfigError(f"connector {hidden!r} {what}", code="connector.reference", hint=advice)
