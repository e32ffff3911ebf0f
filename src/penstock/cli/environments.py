"""Defines the verbs ``add``, ``remove``, ``list``: connector environments. ``connectors`` builds
them.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.api.roles import class_of, end_of
from penstock.cli import arguments
from penstock.cli.app import Surface, verb
from penstock.config.did_you_mean import hint
from penstock.errors import ConfigError
from penstock.terminal import format as text
from penstock.terminal.progress import watching

if TYPE_CHECKING:
    from rich.console import RenderableType

Connector = Annotated[str, typer.Argument(metavar="CONNECTOR", help="PROTOCOL:NAME[@VERSION].")]


@verb(
    "penstock add airbyte:source-faker@7.2.1",
    "penstock add airbyte:source-faker --upgrade",
    "penstock add singer:target-jsonl",
)
def add(
    surface: Surface,
    connector: Connector,
    upgrade: Annotated[
        bool, typer.Option("--upgrade", help="Query the package index even if one is built.")
    ] = False,
    building: arguments.BuildOptions = arguments.BUILDING,
) -> None:  # fmt: skip
    """Build a connector's environment now; `run` does it by itself when it is needed."""
    from penstock.connectors.reference import parse_ref
    from penstock.connectors.resolve import resolve

    ref = parse_ref(connector)
    with watching(surface.output) as observer:
        built = resolve(
            class_of(end_of(ref)),
            ref,
            surface.home.connectors,
            progress=lambda step: observer.phase("install", step),
            upgrade=upgrade,
            constraints=building.constraint or (),
            builds=not building.no_builds,
        )
    answer = built.describe()
    surface.output.answer(answer, lambda: [_environments([answer])])


@verb("penstock remove airbyte:source-faker", "penstock remove airbyte:source-faker@7.2.1")
def remove(surface: Surface, connector: Connector) -> None:
    """Drop a connector's environment, or one version of it."""
    from penstock.connectors.connector import describe_installed
    from penstock.connectors.environments import installed
    from penstock.connectors.install import remove as drop
    from penstock.connectors.reference import RefKind, parse_ref
    from penstock.connectors.resolve import wanted
    from penstock.protocols import load

    ref = parse_ref(connector)
    if ref.kind is not RefKind.package or ref.protocol is None:
        raise ConfigError(
            f"{connector!r} has no environment: only packages have one",
            code="connector.no_environment",
            hint="`penstock list` shows them",
        )
    root = surface.home.connectors
    with watching(surface.output) as observer:
        dropped = drop(
            wanted(ref, load(ref.protocol)), root, lambda step: observer.phase("remove", step)
        )
    if not dropped:
        known = [str(describe_installed(e)["connector"]) for e in installed(root)]
        raise ConfigError(
            f"no environment of {connector} is built",
            code="connector.no_environment",
            hint=hint(connector, known, "built"),
        )
    answer = [describe_installed(entry) for entry in dropped]
    surface.output.answer(answer, lambda: [f"removed {text.counted(len(answer), 'environment')}",
                                           _environments(answer)])  # fmt: skip


@verb("penstock list", "penstock list --json", "penstock list --available")
def list_(
    surface: Surface,
    available: Annotated[
        bool, typer.Option("--available", help="All connectors of the index, as `search` does.")
    ] = False,
) -> None:
    """The connectors whose environments are built."""
    if available:
        from penstock.cli.find import hits_text
        from penstock.engine.inspect.found_connectors import find

        hits = find((), None).hits
        surface.output.answer(hits, lambda: hits_text(hits))
        return
    from penstock.connectors.connector import describe_installed
    from penstock.connectors.environments import installed

    answer = [describe_installed(entry) for entry in installed(surface.home.connectors)]
    surface.output.answer(answer, lambda: _listed(answer))


def _listed(entries: list[dict[str, Any]]) -> "Iterator[RenderableType]":
    yield _environments(entries) if entries else "no connector is built yet; `run` builds them"


def _environments(entries: list[dict[str, Any]]) -> "RenderableType":
    rows = ((e["connector"], e["version"], e["lock"], e["path"]) for e in entries)
    return text.grid(("connector", "version", "lock", "path"), rows)
