"""Changes values in the text of a pipeline file and keeps every other byte: comments, order,
quotes, spaces, line ends.

A change becomes the smallest text edits that make it (``_Pieces``). The new text is parsed again,
and must have the wanted values. Not here: the format of a file (``config``), the values of a form
(``forms``), where values stand (``yaml_places``), how a value is written (``yaml_text``).
"""

from collections.abc import Mapping, Sequence
from copy import deepcopy
from difflib import SequenceMatcher
from functools import lru_cache
from itertools import pairwise
from typing import Any, NamedTuple, cast

from penstock.errors import ConfigError
from penstock.web.list_pairs import alike
from penstock.web.yaml_places import YamlPlace, places_of, values_in
from penstock.web.yaml_text import BlockWriter, in_line, same

Steps = tuple[str, ...]


class TextEdit(NamedTuple):
    """A span of the text and its replacement."""

    start: int
    end: int
    text: str


class _Unfit(Exception):
    """The change cannot be made by edits of single pieces."""


def values_of(text: str) -> dict[str, Any]:
    """Returns the file's values as plain data, variables unresolved. Raises ``ConfigError``
    (``config.yaml``, ``config.empty``)."""
    return deepcopy(_values_of(text))


@lru_cache(maxsize=2)
def _values_of(text: str) -> dict[str, Any]:
    """Caches the values, as a file of 10,000 streams takes seconds to read."""
    found = values_in(text)
    return cast(dict[str, Any], found) if isinstance(found, dict) else {}


def edited(text: str, changes: Mapping[Steps, Any]) -> str:
    """Returns the text with other values at these places; None: removes the key. A mapping is
    changed key by key. Raises ``ConfigError`` (``config.yaml``, ``ui.text``)."""
    for steps, value in changes.items():
        text = _changed(text, steps, value)
    return text


def with_breaks_of(had: str, text: str) -> str:
    """Returns a text that a browser sent, with the line breaks of the file's text ``had``."""
    plain, sent = had.replace("\r\n", "\n"), text.replace("\r\n", "\n")
    if plain == sent:
        return had
    windows = had.count("\r\n") * 2 > had.count("\n")
    return sent.replace("\n", "\r\n") if windows else sent


def _changed(text: str, steps: Steps, value: Any) -> str:
    root = places_of(text)
    if root.kind != "mapping":
        raise ConfigError("a pipeline file is a mapping of keys to values", code="config.yaml")
    wanted = _with(root.value, steps, value)
    if same(root.value, wanted):
        return text
    for whole, literal in ((False, True), (False, False), (True, False)):
        try:
            pieces = _Pieces(text, whole, literal).of(root, wanted, steps)
            made = _put(text, pieces)
            if same(values_in(made), wanted):
                return made
        except (_Unfit, ConfigError):
            continue
    raise ConfigError(
        f"{'.'.join(steps)} cannot be changed by the form in this text, and it is left as it is",
        code="ui.text",
        hint="change it in the text of the file",
    )


def _with(values: Any, steps: Steps, value: Any) -> Any:
    made: dict[str, Any] = dict(cast(dict[str, Any], values)) if isinstance(values, dict) else {}
    first, *rest = steps
    if rest:
        made[first] = _with(made.get(first), tuple(rest), value)
    elif value is None:
        made.pop(first, None)
    else:
        made[first] = value
    return made


def _put(text: str, pieces: Sequence[TextEdit]) -> str:
    for piece in sorted(pieces, key=lambda p: (p.start, p.end), reverse=True):
        text = text[: piece.start] + piece.text + text[piece.end :]
    return text


class _Pieces:
    """Finds the edits of one change. ``whole``: the value at its steps is written as a whole;
    ``literal``: a text of several lines may be a literal block."""

    def __init__(self, text: str, whole: bool, literal: bool) -> None:
        self._text, self._whole = text, whole
        self._writer = BlockWriter(literal)
        self._break = "\r\n" if "\r\n" in text else "\n"
        self._found: list[TextEdit] = []
        self._known_dashes: dict[int, list[int]] = {}

    def of(self, root: YamlPlace, wanted: Any, steps: Steps) -> list[TextEdit]:
        """Returns the edits that give ``root`` the wanted values."""
        self._mapping(root, wanted, steps)
        ordered = sorted(self._found)
        for one, other in pairwise(ordered):
            if other.start < one.end or other[:2] == one[:2]:
                raise _Unfit
        return ordered

    def _add(self, start: int, end: int, text: str) -> None:
        self._found.append(TextEdit(start, end, text.replace("\n", self._break)))

    def _set(self, place: YamlPlace, after: int, column: int, wanted: Any, steps: Steps) -> None:
        """``after``: where the key or the dash before the value ends; ``column``: the column of
        that key or dash, -1 in brackets or braces; ``steps``: the path to the changed value."""
        if same(place.value, wanted):
            return
        if steps or not self._whole:
            filled = bool(wanted) and (bool(place.items) or column < 0)
            if place.kind == "mapping" and isinstance(wanted, dict) and filled:
                return self._mapping(place, cast(dict[str, Any], wanted), steps)
            if place.kind == "list" and isinstance(wanted, list) and wanted and place.items:
                return self._list(place, cast(list[Any], wanted))
        self._replace(place, after, column, wanted)

    def _replace(self, place: YamlPlace, after: int, column: int, wanted: Any) -> None:
        kept = self._anchor(place)
        if column < 0:
            return self._add(place.start, place.end, kept + in_line(wanted))
        new = in_line(wanted) if kept else self._writer.inner(wanted, column + 2)
        below = place.start > self._line_end(after)
        if new.startswith("\n") and self._text[after - 1] == "-":
            new = new.lstrip()
        if new.startswith("\n") and below:
            self._add(self._line_start(place.start), place.end, new[1:])
        elif new.startswith("\n"):  # a comment at the old value stays at the key
            self._add(after, place.end, "")
            end = self._line_end(place.end)
            self._add(end, end, new)
        elif below:
            self._add(after, after, f" {kept}{new}")
            self._add(self._line_start(place.start) - len(self._break), place.end, "")
        else:
            gap = " " if place.start == after else ""
            self._add(place.start, place.end, gap + kept + new)

    def _anchor(self, place: YamlPlace) -> str:
        """Returns what stays before a new value: the mark of a secret, and the name of an
        anchor."""
        kept = ""
        at = place.start
        while place.kind != "alias" and self._text[at : at + 1] in ("&", "!"):
            word = self._text[at : place.end].split(maxsplit=1)[0]
            if word.startswith("&") or word == "!secret":
                kept += f"{word} "
            at += len(word)
            at += len(self._text[at:]) - len(self._text[at:].lstrip())
        return kept

    # -- mappings

    def _mapping(self, place: YamlPlace, wanted: Mapping[str, Any], steps: Steps) -> None:
        names = [name for name, _, _ in place.keys]
        if len(set(names)) != len(names):
            raise _Unfit
        column = -1 if place.flow else place.column
        for (name, _, end), item in zip(place.keys, place.items, strict=True):
            if name in wanted:
                rest = steps[1:] if steps[:1] == (name,) else ()
                self._set(item, self._colon(end), column, wanted[name], rest)
        gone = [n for n, name in enumerate(names) if name not in wanted]
        self._remove(place, [start for _, start, _ in place.keys], gone)
        new = {name: value for name, value in wanted.items() if name not in names}
        if new:
            self._append(
                place, self._writer.block(new, 0) if column >= 0 else in_line(new)[1:-1], gone
            )

    def _colon(self, end: int) -> int:
        return self._text.find(":", end) + 1

    # -- lists

    def _list(self, place: YamlPlace, wanted: list[Any]) -> None:
        values = [item.value for item in place.items]
        had, new = [*map(repr, values)], [*map(repr, wanted)]
        gone: list[int] = []
        for word, a, b, c, d in SequenceMatcher(None, had, new, autojunk=False).get_opcodes():
            if word == "equal":
                continue
            pairs = alike(values[a:b], wanted[c:d])
            gone += sorted({*range(a, b)} - {a + n for n, _ in pairs})
            first = c
            for n, m in [*pairs, (b - a, d - c)]:
                if first < c + m:
                    self._insert(place, a + n, wanted[first : c + m], gone)
                if a + n < b:
                    self._item(place, a + n, wanted[c + m])
                first = c + m + 1
        starts = [i.start for i in place.items]
        self._remove(place, starts if place.flow else self._dashes(place), gone)

    def _item(self, place: YamlPlace, n: int, wanted: Any) -> None:
        item = place.items[n]
        if place.flow:
            return self._set(item, item.start, -1, wanted, ())
        self._set(item, self._dashes(place)[n] + 1, place.column, wanted, ())

    def _dashes(self, place: YamlPlace) -> list[int]:
        """Returns where each item's dash is: in the list's column, after the item before."""
        if (known := self._known_dashes.get(place.start)) is not None:
            return known
        found: list[int] = []
        least = place.start
        for item in place.items:
            at = self._line_start(item.start) + place.column
            while at >= least and self._text[at : at + 1] != "-":
                at = self._line_start(self._line_start(at) - 1) + place.column
            if at < least:
                raise _Unfit
            found.append(at)
            least = item.end
        self._known_dashes[place.start] = found
        return found

    def _insert(
        self, place: YamlPlace, at: int, values: Sequence[Any], gone: Sequence[int]
    ) -> None:
        if place.flow:
            text = ", ".join(map(in_line, values))
            if at < len(place.items):
                return self._add(place.items[at].start, place.items[at].start, f"{text}, ")
            return self._append(place, text, gone)
        lines = self._writer.block(values, 0)
        if at == len(place.items):
            return self._append(place, lines, gone)
        dash = self._dashes(place)[at]
        start = self._line_start(dash)
        if self._text[start:dash].strip():
            raise _Unfit
        start = self._with_comments_above(start, place, at)
        self._add(start, start, _indented(lines, place.column) + "\n")

    def _with_comments_above(self, start: int, place: YamlPlace, at: int) -> int:
        """Returns the start of the comment lines directly above an item, in its column."""
        least = self._line_end(place.items[at - 1].end) if at else place.start
        mark = " " * place.column + "#"
        while (above := self._line_start(start - 1)) > least and self._text.startswith(mark, above):
            start = above
        return start

    # -- both

    def _append(self, place: YamlPlace, lines: str, gone: Sequence[int]) -> None:
        """Adds items after the last remaining one."""
        kept = [n for n in range(len(place.items)) if n not in gone]
        if place.flow:
            last = place.items[kept[-1]].end if kept else place.end - 1
            return self._add(last, last, f", {lines}" if kept else lines)
        if not kept:
            raise _Unfit
        end = self._past_comments_of(self._line_end(place.items[kept[-1]].end), place.column)
        self._add(end, end, "\n" + _indented(lines, place.column))

    def _past_comments_of(self, end: int, column: int) -> int:
        """Returns where the comment lines after ``end`` end that stand deeper than ``column``: they
        are about what the item holds, as the options that a new file shows below ``config``."""
        while (start := end + self._break_at(end)) > end:
            line = self._text[start : self._line_end(start)]
            inner = line.lstrip(" ")
            if not inner.startswith("#") or len(line) - len(inner) <= column:
                break
            end = self._line_end(start)
        return end

    def _remove(self, place: YamlPlace, starts: Sequence[int], gone: Sequence[int]) -> None:
        if place.flow:
            return self._remove_in_flow(place, starts, gone)
        if gone and len(gone) == len(place.items):
            raise _Unfit
        for n in gone:
            start, end = starts[n], place.items[n].end
            begin = self._line_start(start)
            if not self._text[begin:start].strip():
                end = self._line_end(end)
                self._add(begin, end + self._break_at(end), "")
            elif n == len(place.items) - 1:
                raise _Unfit
            elif not self._text[end : starts[n + 1]].strip():
                self._add(start, starts[n + 1], "")  # first item after a dash: the next moves up
            else:
                self._add(start, end, "")

    def _remove_in_flow(self, place: YamlPlace, starts: Sequence[int], gone: Sequence[int]) -> None:
        """Removes runs of items, each with the comma after it; a run at the end with the comma
        before it."""
        runs: list[list[int]] = []
        for n in gone:
            if runs and runs[-1][-1] == n - 1:
                runs[-1].append(n)
            else:
                runs.append([n])
        for run in runs:
            start, end = starts[run[0]], place.items[run[-1]].end
            if run[-1] < len(starts) - 1:
                end = starts[run[-1] + 1]
            elif run[0] > 0:
                before = place.items[run[0] - 1].end
                # a comment between them is the item's before: its comma stays, as YAML permits
                start = start if "\n" in self._text[before:start] else before
            self._add(start, end, "")

    def _line_start(self, at: int) -> int:
        return self._text.rfind("\n", 0, max(at, 0)) + 1

    def _line_end(self, at: int) -> int:
        """Returns where the line of ``at`` ends, without its line break."""
        end = self._text.find("\n", at)
        end = len(self._text) if end < 0 else end
        return end - 1 if end > at and self._text[end - 1] == "\r" else end

    def _break_at(self, end: int) -> int:
        if self._text.startswith("\r\n", end):
            return 2
        return 1 if self._text.startswith("\n", end) else 0


def _indented(lines: str, column: int) -> str:
    return "\n".join(" " * column + line if line else line for line in lines.split("\n"))
