"""Formats figures and tables for people. No I/O: ``output`` prints the result."""

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from penstock.terminal.output import one_line

if TYPE_CHECKING:
    from rich.table import Table

_UNITS = ("B", "kB", "MB", "GB", "TB")


def size(count: float) -> str:
    """Formats bytes: ``412 B``, ``4.1 kB``, ``12 MB`` (units of 1000)."""
    unit = _UNITS[0]
    for unit in _UNITS:
        if count < 1000 or unit == _UNITS[-1]:
            break
        count /= 1000
    return f"{count:.0f} {unit}" if count >= 10 or unit == "B" else f"{count:.1f} {unit}"


def seconds(value: float) -> str:
    """Formats seconds: ``0.4 s``, ``12 s``, ``3 min 5 s``, ``2 h 10 min``."""
    if value < 10:
        return f"{value:.1f} s"
    whole = round(value)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


def counted(number: int, singular: str, plural: str | None = None) -> str:
    """Formats a number with its noun: ``1 row``, ``1,204 rows``."""
    return f"{number:,} {singular if number == 1 else plural or singular + 's'}"


_RATED_ROWS = 1000


def rate(rows: int, seconds: float) -> str | None:
    """Formats a rate: ``1,204 rows/s``. None for few rows, whose rate would only show the start-up
    time."""
    if rows < _RATED_ROWS or seconds < 1 or rows < seconds:
        return None
    return f"{rows / seconds:,.0f} rows/s"


def stream_name(entry: Mapping[str, Any]) -> str:
    """Returns the name of an entry with ``namespace`` and ``name``."""
    namespace, name = entry.get("namespace"), entry.get("name")
    return str(name) if namespace is None else f"{namespace}.{name}"


def grid(
    headings: Sequence[str], rows: Iterable[Sequence[object]], numbers: Iterable[int] = ()
) -> "Table":
    """Returns a table without lines; the columns ``numbers`` (by index) are aligned to the
    right."""
    from rich.table import Table
    from rich.text import Text

    right = set(numbers)
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for index, heading in enumerate(headings):
        table.add_column(
            heading, justify="right" if index in right else "left", overflow="fold",
            no_wrap=index in right,
        )  # fmt: skip
    for row in rows:
        table.add_row(*(Text(one_line(_cell(value))) for value in row))
    return table


def _cell(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:,}" if isinstance(value, int) else str(value)


def paths(value: Iterable[Sequence[str]] | None) -> str:
    """Formats key paths: ``id, meta.id``."""
    return ", ".join(".".join(path) for path in value or ())


def short(text: str, length: int = 100) -> str:
    """Returns at most ``length`` characters of a text, on one line."""
    flat = " ".join(text.split())
    return flat if len(flat) <= length else flat[: length - 1] + "…"
