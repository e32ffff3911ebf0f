"""Draws small charts as SVG: rows and seconds of the last runs, where a run's time went.

Pure; colours are the stylesheet's. Not here: figures.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from markupsafe import Markup

_WIDTH, _HEIGHT = 160, 32
_STEPS = ("install", "prepare", "discover", "start", "stage", "lane", "extract", "load", "finish")


def line_of_runs(runs: Sequence[Mapping[str, Any]]) -> Markup:
    """Draws a bar for each run, oldest first: its height is the number of rows, coloured by its
    status."""
    shown = [*reversed(runs)]
    if not shown:
        return Markup("")
    rows = [sum(int(s["read"]) for s in r.get("streams") or ()) for r in shown]
    most = max([*rows, 1])
    step = _WIDTH / 20
    bars = Markup("").join(
        Markup(
            '<rect class="{}" x="{:.1f}" y="{:.1f}" width="{:.1f}" height="{:.1f}">'
            "<title>{}: {:,} rows{}</title></rect>"
        ).format(
            f"s-{run['status']}",
            index * step,
            _HEIGHT - (height := max(3.0, count / most * _HEIGHT)),
            step - 2,
            height,
            str(run["started_at"])[:19],
            count,
            "" if run.get("seconds") is None else f" in {run['seconds']:.0f} s",
        )
        for index, (run, count) in enumerate(zip(shown, rows, strict=True))
    )
    label = f"rows of the last {len(shown)} runs"
    return Markup(
        '<svg class="spark" viewBox="0 0 {} {}" role="img" aria-label="{}">{}</svg>'
    ).format(_WIDTH, _HEIGHT, label, bars)


def time_bar(time: Mapping[str, float] | None) -> list[tuple[str, float, Markup]]:
    """Returns the steps of a run that took time: name, seconds, and a bar of their share."""
    spent = {step: float((time or {}).get(step) or 0) for step in _STEPS}
    whole = sum(spent.values())
    return [
        (
            step,
            seconds,
            Markup(
                '<svg class="bar" viewBox="0 0 100 8" preserveAspectRatio="none" '
                'aria-hidden="true"><rect class="track" width="100" height="8"/>'
                '<rect class="fill" width="{:.1f}" height="8"/></svg>'
            ).format(100 * seconds / whole),
        )
        for step, seconds in spent.items()
        if whole and seconds / whole >= 0.005
    ]
