"""Defines the verb ``import``: pipeline files from a Meltano project or a PyAirbyte program.

Runs no connector and overwrites no file. Neighbours: ``api.meltano_project`` and
``api.pyairbyte_script`` read.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from penstock.api.meltano_project import meltano_pipelines
from penstock.api.pyairbyte_script import pyairbyte_pipelines
from penstock.cli import arguments
from penstock.cli.app import Surface, verb
from penstock.errors import ConfigError

_PROJECT = "meltano.yml"


@verb(
    "penstock import meltano.yml",
    "penstock import sync.py --out pipelines",
)
def import_(
    surface: Surface,
    file: Annotated[
        str, typer.Argument(metavar="FILE", help="meltano.yml, its folder, or a Python program.")
    ],
    out: Annotated[str, arguments.option("--out", "DIR", "Default: pipelines.")] = "pipelines",
) -> None:
    """Write a pipeline file for each pipeline of a Meltano project or a PyAirbyte program."""
    path = Path(file)
    path = path / _PROJECT if path.is_dir() else path
    if path.suffix not in (".yml", ".yaml", ".py"):
        raise ConfigError(
            f"{path} is neither a project of Meltano nor a Python program",
            code="import.file",
            hint="give meltano.yml, or a .py file that uses PyAirbyte",
        )
    folder = Path(out)
    python = path.suffix == ".py"
    pipelines, notes = pyairbyte_pipelines(path) if python else meltano_pipelines(path, folder)
    places: dict[Path, str] = {}
    for each in pipelines:
        name = re.sub(r"[^A-Za-z0-9._-]+", "-", each.pipeline)
        place = folder / f"{name}.yaml"
        if place.exists():
            raise ConfigError(
                f"{place} exists already, and was not changed",
                code="config.exists",
                hint="name another folder: --out DIR",
            )
        places[place] = each.text
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for place, text in places.items():
            with place.open("x", encoding="utf-8") as written:
                written.write(text)
    except OSError as e:
        raise ConfigError(f"{folder} cannot be written: {e.strerror}", code="config.file") from None
    made = [
        {"file": str(place), "pipeline": each.pipeline, "notes": each.notes}
        for place, each in zip(places, pipelines, strict=True)
    ]

    def lines() -> Iterator[str]:
        for place, each in zip(places, pipelines, strict=True):
            yield f"wrote {place}"
            yield from (f"  not carried over: {note}" for note in each.notes)
        yield from (f"not carried over: {note}" for note in notes)
        yield f"next: penstock plan {next(iter(places))}"

    surface.output.answer({"files": made, "notes": notes}, lines)
