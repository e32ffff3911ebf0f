"""Which end of a pipeline a connector is: by what the user says, else by its name.

No I/O. Neighbours: ``cli.connector`` and ``cli.environments`` ask the end that this tells.
"""

import re
from enum import StrEnum
from pathlib import PurePath
from typing import Annotated

import typer

from penstock.connectors.reference import ConnectorRef, RefKind


class End(StrEnum):
    source = "source"
    destination = "destination"


Role = Annotated[
    End | None,
    typer.Option(
        "--role",
        help="Which end it is. Default: by its name (destination-..., target-...), else source.",
        show_default=False,
    ),
]

_WORD = re.compile(r"(?:^|[-_.])(source|tap|destination|dest|target)(?=$|[-_.])")


def end_of(ref: ConnectorRef) -> End:
    """By the first word in its name that tells it (``source``, ``tap``, ``destination``,
    ``dest``, ``target``), whatever stands before: ``meltanolabs-target-postgres``,
    ``./destination``, ``dest_postgres.wasm``,
    ``python my_target.py``. A source where none does."""
    if ref.kind is RefKind.table:
        return End.destination
    for word in (ref.name,) if ref.name else ref.command:
        found = _WORD.search(PurePath(word).name.lower()) if not word.startswith("-") else None
        if found is not None:
            return End.destination if found[1] in ("destination", "dest", "target") else End.source
    return End.source
