"""Defines the verb ``ui``: the pages of ``penstock.web`` in a browser."""

from pathlib import Path
from typing import Annotated

import typer

from penstock.cli import arguments
from penstock.cli.app import Surface, verb


@verb("penstock ui", "penstock ui ./pipelines --port 8765 --no-open")
def ui(
    surface: Surface,
    folder: Annotated[
        Path, typer.Argument(metavar="FOLDER", help="With the pipeline files.", show_default=False)
    ] = Path("."),
    port: Annotated[
        int, typer.Option("--port", metavar="N", min=0, max=65535, help="0: any free port.")
    ] = 0,
    host: Annotated[
        str | None,
        arguments.option(
            "--host", "H", "Serve others too; PENSTOCK_UI_PASSWORD must hold a password."
        ),
    ] = None,
    no_open: Annotated[
        bool, typer.Option("--no-open", help="Print the address and open no browser.")
    ] = False,
) -> None:
    """Pages in a browser: find, set up, plan, run and watch pipelines. Ctrl-C ends them; runs go
    on."""
    from penstock.web.server import serve

    def say(address: str) -> None:
        surface.output.answer({"address": address}, lambda: [address])
        surface.output.say("the address works once, in one browser; Ctrl-C stops the pages")

    serve(folder, surface.home, host=host or "127.0.0.1", port=port, opened=not no_open, say=say)
