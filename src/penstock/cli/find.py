"""Defines the verbs ``search`` and ``info``: the known connectors, before one is installed.

``engine.inspect.found_connectors`` finds them. Neighbour: ``environments`` has ``list
--available``, which prints in the same form as ``search``.
"""

import json
import shlex
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.api.roles import AskedRole
from penstock.cli.app import Surface, verb
from penstock.terminal import format as text

if TYPE_CHECKING:
    from rich.console import RenderableType

    from penstock.engine.inspect.found_connectors import FoundConnector, SearchResult

_HITS_AS_TEXT = 15
_CELL = 48

OfRole = Annotated[
    AskedRole | None,
    typer.Option("--role", help="Only sources, or only destinations.", show_default=False),
]


@verb(
    "penstock search github",
    "penstock search postgres --role destination",
    "penstock search google ads --json",
)
def search(
    surface: Surface,
    words: Annotated[
        list[str], typer.Argument(metavar="WORDS", help="Words of its name or its system.")
    ],
    role: OfRole = None,
    limit: Annotated[
        int | None,
        typer.Option(
            "--limit", metavar="N", min=1, show_default=False,
            help=f"The best N. Default: {_HITS_AS_TEXT} as text, all as JSON.",
        ),
    ] = None,
) -> None:  # fmt: skip
    """Find connectors: what to write, what each needs, and whether it runs here."""
    from penstock.engine.inspect.found_connectors import find

    most = limit if surface.output.as_json or limit is not None else _HITS_AS_TEXT
    result = find(words, None if role is None else role.value, most)
    answer = {
        "words": " ".join(words),
        "role": role,
        "found": result.found,
        "connectors": result.hits,
        "tables": result.tables,
    }
    surface.output.answer(answer, lambda: _search_text(result))


def _search_text(result: "SearchResult") -> Iterator[str]:
    for table in result.tables:
        yield table
        yield "    tables that Penstock writes itself, destination, no connector is needed"
    yield from hits_text(result.hits)
    if result.found > len(result.hits):
        yield f"{result.found - len(result.hits):,} more; --limit {result.found} shows all"
    first = next((hit.connector for hit in result.hits if hit.connector), None)
    if first is not None:
        yield f"next: penstock info {shlex.quote(first)}"


def hits_text(hits: "Sequence[FoundConnector]") -> Iterator[str]:
    """Yields two lines for each connector, the first with the reference alone, so that no terminal
    folds it; then what this machine lacks for some of them."""
    for hit in hits:
        yield hit.connector or f"{hit.name} (cannot be used: it is not published)"
        yield f"    {', '.join(filter(None, _in_short(hit)))}"
    yield from _lacking(hits)


def _in_short(hit: "FoundConnector") -> Iterator[str]:
    yield text.short(hit.label or "", _CELL)
    yield hit.role
    yield _variant(hit)
    yield f"{hit.needs} {_version(hit)}".strip()
    yield _settings(hit)
    lacks = " and ".join(each["name"] for each in hit.lacks)
    yield "runs here" if hit.runs_here else f"does not run here ({lacks})"


def _variant(hit: "FoundConnector") -> str:
    state = f"({hit.maintenance})" if hit.maintenance not in (None, "unknown") else ""
    return f"{hit.variant or ''} {state}".strip()


def _version(hit: "FoundConnector") -> str:
    return f"{hit.version or ''} {f'({hit.month})' if hit.month else ''}".strip()


def _settings(hit: "FoundConnector") -> str:
    if not hit.settings:
        return "settings not known"
    secret = sum(1 for each in hit.settings if each["secret"])
    shown = text.counted(len(hit.settings), "setting")
    return f"{shown} ({secret} secret)" if secret else shown


def _lacking(hits: "Sequence[FoundConnector]") -> Iterator[str]:
    counted = Counter(each["name"] for hit in hits for each in hit.lacks)
    checks = {each["name"]: each for hit in hits for each in hit.lacks}
    for name, count in counted.items():
        yield f"lacks {name} ({text.counted(count, 'connector')}): {checks[name]['detail']}"
        if checks[name]["fix"]:
            yield f"  fix: {checks[name]['fix']}"


@verb(
    "penstock info airbyte:source-github",
    "penstock info singer:meltanolabs-tap-postgres",
    "penstock info airbyte:docker:airbyte/source-postgres --json",
)
def info(
    surface: Surface,
    connector: Annotated[
        str, typer.Argument(metavar="CONNECTOR", help="Its name in `search` and `run`.")
    ],
) -> None:
    """What is known of a connector before it is installed: its settings, what it needs."""
    from penstock.engine.inspect.found_connectors import describe

    found, others = describe(connector)
    answer = {"connector": found, "others": others}
    surface.output.answer(answer, lambda: _info_text(found, others))


def _info_text(
    found: "FoundConnector", others: "Sequence[FoundConnector]"
) -> "Iterator[RenderableType]":
    if found.settings:
        headings = ("setting", "kind", "required", "secret", "default", "meaning")
        yield text.grid(headings, [_setting(each) for each in found.settings])
        spec = f"penstock spec {shlex.quote(found.connector or '')} --role {found.role}"
        yield f"as the index lists them; {spec} shows those of the version that it installs"
    else:
        yield "the index has no settings for it"
        yield f"try: penstock spec {shlex.quote(found.connector or '')} --role {found.role}"
    yield ""
    for label, value in _facts(found):
        if value:
            yield f"{label:<14}{value}"
    yield from _lacking([found])
    if others:
        yield ""
        yield f"{text.counted(len(others), 'other')} of the same role:"
        yield from hits_text(others[:_HITS_AS_TEXT])
    word = shlex.quote(found.connector or "")
    if found.role == AskedRole.source:
        yield f"next: penstock new {word} parquet:./lake"
    else:
        yield f"next: penstock spec {word} --role destination"


def _facts(found: "FoundConnector") -> list[tuple[str, str | None]]:
    known = {each["name"] for each in found.settings}
    groups = [", ".join(group) for group in found.required if group]
    apart = len(groups) > 1 or not all(known.issuperset(group) for group in found.required)
    return [
        ("connector", found.connector),
        ("connects to", found.label),
        ("role", f"{found.role}, {found.protocol}"),
        ("variant", _variant(found)),
        ("version", _version(found)),
        ("needs", found.needs),
        ("runs here", "yes" if found.runs_here else "no"),
        ("also as", ", ".join(found.also)),
        ("requires", " | ".join(groups) if apart else None),
        ("its hub adds", ", ".join(found.extras)),
        ("can", ", ".join(found.capabilities)),
        ("repository", found.repository),
    ]


def _setting(setting: dict[str, Any]) -> tuple[object, ...]:
    default = setting["default"]
    meaning = setting["label"] or ""
    if setting["options"]:
        meaning = f"{meaning}, one of {', '.join(map(str, setting['options']))}".removeprefix(", ")
    return (
        setting["name"],
        setting["kind"],
        setting["required"],
        "secret" if setting["secret"] else "",
        None if default is None else text.short(json.dumps(default, ensure_ascii=False), _CELL),
        text.short(meaning, 2 * _CELL),
    )
