"""Answers ``search``, ``info`` and ``list --available``: connectors of the index as JSON data, and
whether each runs on this machine.

Installs nothing and uses no network. Neighbours: ``connectors.catalog`` has the index,
``runs_here`` the machine, ``cli.find`` prints.
"""

import shlex
from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec

from penstock.config.protocol_spec import EndpointRole
from penstock.config.table_formats import table_formats
from penstock.connectors.catalog.index import IndexedConnector, Setting
from penstock.connectors.catalog.search import named, near, others, search
from penstock.connectors.catalog.suggest import found_for, listed_as, meant
from penstock.connectors.reference import ConnectorRef, RefKind, parse_ref
from penstock.connectors.same_connector import shown as shown_reference
from penstock.engine.inspect.runs_here import ThisMachine
from penstock.errors import ConfigError
from penstock.short_texts import shown

_PACKAGED = (RefKind.package, RefKind.image)


class FoundConnector(msgspec.Struct, frozen=True, kw_only=True):
    """A connector of the index as JSON data, with the keys in docs/cli.md. ``lacks``: the checks
    that fail for it here, each with ``name``, ``detail`` and ``fix``. ``required`` of a setting is
    None where the index does not know."""

    connector: str | None
    protocol: str
    role: EndpointRole
    name: str
    label: str | None
    variant: str | None
    maintenance: str | None
    quality: str | None
    default: bool
    version: str | None
    month: str | None
    needs: str
    also: list[str]
    extras: list[str]
    runs_here: bool
    lacks: list[dict[str, Any]]
    repository: str | None
    keywords: list[str]
    capabilities: list[str]
    settings: list[dict[str, Any]]
    required: list[list[str]]


class SearchResult(NamedTuple):
    """The result of a search. ``tables``: formats that the words name and that Penstock writes
    itself, as references (``parquet:PATH``). ``found``: how many connectors match; ``hits``: the
    best of them."""

    tables: list[str]
    found: int
    hits: list[FoundConnector]


def find(words: Sequence[str], role: EndpointRole | None, limit: int | None = None) -> SearchResult:
    """Returns the best ``limit`` connectors that all words match. Raises ``ConfigError``:
    ``connector.none_found``, with similar names; ``connector.index``."""
    hits = search(words, role)
    tables = [] if role == "source" else _tables(words)
    if not hits and not tables:
        raise _none_found(words, role)
    machine = ThisMachine()
    return SearchResult(tables, len(hits), [_described(hit, machine) for hit in hits[:limit]])


def _tables(words: Sequence[str]) -> list[str]:
    asked = {word.casefold() for given in words for word in given.split()}
    formats = table_formats().values()
    return [f"{f.name}:PATH" for f in formats if asked & {f.name, f.label.casefold()}]


def describe(word: str) -> tuple[FoundConnector, list[FoundConnector]]:
    """Returns the connector that a reference names, and those that do the same. Raises
    ``ConfigError``: ``connector.reference``, ``connector.not_indexed``, ``connector.index``."""
    ref = parse_ref(word)
    entry = named(_canonical(ref)) if ref.kind in _PACKAGED else None
    if entry is None:
        raise _not_indexed(ref)
    machine = ThisMachine()
    return _described(entry, machine), [_described(each, machine) for each in others(entry)]


def _canonical(ref: ConnectorRef) -> str:
    """Returns the reference as the index has it: the package index treats ``tap_x`` as
    ``tap-x``."""
    if ref.kind is RefKind.image or ref.url is not None:
        return ref.text
    version = f"@{ref.version}" if ref.version else ""
    return f"{ref.protocol}:{ref.name}{version}"


def _described(entry: IndexedConnector, machine: ThisMachine) -> FoundConnector:
    lacks = machine.lacks(entry)
    return FoundConnector(
        connector=entry.connector,
        protocol=entry.protocol,
        role=entry.role,
        name=entry.name,
        label=entry.label,
        variant=entry.variant,
        maintenance=entry.maintenance,
        quality=entry.quality,
        default=entry.default,
        version=entry.version,
        month=entry.month,
        needs=entry.needs,
        also=entry.also,
        extras=entry.extras,
        runs_here=not lacks,
        lacks=[{"name": c.name, "detail": c.detail, "fix": c.fix} for c in lacks],
        repository=entry.repository,
        keywords=entry.keywords,
        capabilities=entry.capabilities,
        settings=[_setting(each, entry.required) for each in entry.settings],
        required=entry.required,
    )


def _setting(setting: Setting, groups: list[list[str]]) -> dict[str, Any]:
    always = all(setting.name in group for group in groups) if groups else None
    return {**msgspec.structs.asdict(setting), "required": always}


def instead(words: Sequence[str], role: EndpointRole | None) -> list[str]:
    """Returns what to search for where nothing is found: the same words, where only the other role
    has them, else similar names."""
    if role is not None and search(words):
        return [" ".join(words)]
    return near(words)


def _none_found(words: Sequence[str], role: EndpointRole | None) -> ConfigError:
    text = shown(" ".join(words))
    hint = "try one word of its name; a connector that is not in the index runs too: penstock spec "
    hint += "PROTOCOL:NAME"
    elsewhere = search(words) if role is not None else []
    close = near(words)
    if elsewhere:
        hint = f"there is a {elsewhere[0].role}: penstock search {shlex.join(words)}"
    elif close:
        hint = " or ".join(f"penstock search {shlex.quote(name)}" for name in close)
        hint = f"did you mean: {hint}"
    kind = f"{role} connector" if role is not None else "connector"
    return ConfigError(
        f"the index has no {kind} for {text!r}", code="connector.none_found", hint=hint
    )


def _not_indexed(ref: ConnectorRef) -> ConfigError:
    if ref.kind not in _PACKAGED or ref.url is not None:
        hint = "`penstock spec` prints a connector's own settings"
        if ref.format is not None:
            hint = "it is a table; `penstock check` shows whether it can be written"
        elif ref.kind is RefKind.component and ref.name and (close := found_for(ref.name)):
            hint = f"did you mean {close[0]} ? the index has no components; {hint}"
    else:
        protocol, name = ref.protocol or "", ref.name or ""
        close = listed_as(protocol, name) or meant(protocol, name)
        hint = f"did you mean {close} ? " if close else ""
        hint += (
            "a connector that is not in the index runs too; `penstock spec` installs it and "
            "prints its settings"
        )
    called = ref.text if ref.kind is RefKind.table else shown_reference(ref.text)
    return ConfigError(
        f"the index of connectors does not have {called}",
        code="connector.not_indexed",
        hint=hint,
    )
