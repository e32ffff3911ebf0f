"""Defines the option ``--role``. ``api.roles`` decides where it is not given."""

from typing import Annotated

import typer

from penstock.api.roles import AskedRole

RoleOption = Annotated[
    AskedRole | None,
    typer.Option(
        "--role",
        help="Which end it is. Default: by its name (destination-..., target-...), else source.",
        show_default=False,
    ),
]
