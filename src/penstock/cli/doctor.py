"""Defines the verbs ``doctor`` and ``schema``."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.app import Surface, verb
from penstock.errors import ConfigError

if TYPE_CHECKING:
    from rich.console import RenderableType

    from penstock.engine.inspect.machine_checks import DoctorCheck


@verb("penstock doctor", "penstock doctor --fix")
def doctor(
    surface: Surface,
    fix: Annotated[bool, typer.Option("--fix", help="Repair what is safe to repair.")] = False,
) -> int:
    """Check whether this machine can run pipelines, and show how to repair what is missing."""
    from penstock.engine.inspect.doctor import examine

    checks = examine(surface.home, mend=fix)
    surface.output.answer({"checks": checks}, lambda: _checks(checks))
    return 0 if all(check.ok for check in checks) else ConfigError.exit_code


@verb("penstock schema > penstock.schema.json")
def schema(surface: Surface) -> None:
    """JSON Schema of the pipeline file, for editors (with and without --json)."""
    from penstock.config.schema import pipeline_json_schema

    surface.output.document(pipeline_json_schema())


def _checks(checks: "Sequence[DoctorCheck]") -> "Iterator[RenderableType]":
    from rich.text import Text

    for check in checks:
        mark = ("✓ ", "green") if check.ok else ("✗ ", "red")
        yield Text.assemble(mark, f"{check.name:<11}{check.detail}")
        if check.fix:
            yield f"    {'try' if check.ok else 'fix'}: {check.fix}"
