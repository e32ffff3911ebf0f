"""Defines the verb ``spark``: start, status and stop of the Spark JVMs that are kept for the next
run (``spark.warm``).
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from penstock.cli.app import Surface, group, verb
from penstock.terminal import format as text

if TYPE_CHECKING:
    from rich.console import RenderableType

spark = group(
    "The Sparks that stay for the next run.", "penstock spark start", "penstock spark stop"
)


@verb("penstock spark start", app=spark)
def start(surface: Surface) -> None:
    """Start the Spark that stays, so that the first run does not wait for it."""
    from penstock.engine.run.spark import start_staying
    from penstock.spark import warm

    started = start_staying(surface.home)
    found = warm.status(warm.folder_of_all())
    what = "Spark is started" if started else "a Spark stays already"
    surface.output.answer({"started": started, "daemons": found}, lambda: (what, *_listed(found)))


@verb("penstock spark status", "penstock spark status --json", app=spark)
def status(surface: Surface) -> None:
    """The Sparks that stay: since when, for how much longer, and how much memory they hold."""
    from penstock.spark import warm

    found = warm.status(warm.folder_of_all())
    surface.output.answer({"daemons": found}, lambda: _listed(found))


@verb("penstock spark stop", app=spark)
def stop(surface: Surface) -> None:
    """Stop the Sparks that stay: an idle one at once, a used one with its run."""
    from penstock.spark import warm

    found = warm.stop(warm.folder_of_all())
    ending = [entry for entry in found if entry["state"] != "idle"]
    stopped = [entry for entry in found if entry["state"] == "idle"]
    surface.output.answer(
        {"stopped": stopped, "ending": ending}, lambda: _ended(len(stopped), len(ending))
    )


def _listed(found: list[dict[str, Any]]) -> "Iterator[RenderableType]":
    if not found:
        yield "no Spark stays"
        return
    headings = ("state", "used by", "for", "ends after", "memory", "runs", "master", "java", "jars",
                "pid")  # fmt: skip
    rows = [
        (
            entry["state"], entry["used_by"], text.seconds(entry["seconds"]),
            text.seconds(entry["idle_seconds"]), text.size(entry["memory_bytes"]), entry["runs"],
            entry["master"], entry["java"], ", ".join(entry["jars"]) or "-", str(entry["pid"]),
        )
        for entry in found
    ]  # fmt: skip
    yield text.grid(headings, rows, {1, 5, 9})


def _ended(stopped: int, ending: int) -> "Iterator[RenderableType]":
    yield f"{stopped} stopped" if stopped or ending else "no Spark stays"
    if ending:
        yield f"{ending} in use: ends with its run"
