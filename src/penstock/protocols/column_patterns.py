"""Chooses the columns of a stream by patterns, and those to leave out: ``addr*``, ``!email``.

``*`` stands for any text, dots included, and ``?`` for one character: ``*_at`` also means
``meta.created_at``. A property whose name equals a pattern is selected by it. An exclusion
overrides every other entry; a list that begins with one means everything else. Pure. Not here:
plain names and paths (``stream_config.selection`` calls for the others).
"""

from collections.abc import Sequence, Set
from fnmatch import fnmatchcase

from penstock.errors import ConfigError
from penstock.model.catalog import FieldPath, Stream
from penstock.protocols.json_schema.paths import names_of

_NOT = "!"


def is_pattern(stream: Stream, said: str | FieldPath) -> bool:
    """Returns whether an entry of ``columns`` is a pattern or an exclusion."""
    return not is_plain(said) and said not in names_of(stream.json_schema)


def left_out(said: str | FieldPath) -> str | None:
    """Returns the name that an entry of ``columns`` excludes; None: it is another entry."""
    named = isinstance(said, str) and said.startswith(_NOT) and not {*said} & {*"*?"}
    return said[1:] if named and isinstance(said, str) else None


def is_plain(said: str | FieldPath) -> bool:
    """Returns whether an entry of ``columns`` is a name or a path, whatever the schema has."""
    return not isinstance(said, str) or not (said.startswith(_NOT) or {*said} & {*"*?"})


def matching(
    stream: Stream, patterns: Sequence[str], others: Sequence[FieldPath], most: Set[str]
) -> list[FieldPath]:
    """Returns the paths that the ``patterns`` and the ``others``, plain ones, leave. ``most``:
    properties that are chosen in any case. An exclusion of something that does not exist has no
    effect. Raises ``ConfigError`` where a part of a property of unknown shape is to be excluded, or
    nothing is left."""
    if not names_of(stream.json_schema):
        raise _wrong(
            stream,
            f"its schema names no properties, so none can be chosen by a pattern ({patterns[0]})",
            "list the columns to keep by their names",
        )
    walk = _Walk(
        stream,
        [_glob(p) for p in patterns if not p.startswith(_NOT)],
        [_glob(p.removeprefix(_NOT)) for p in patterns if p.startswith(_NOT)],
        others,
    )
    found = walk.all(most)
    for path in found:
        if inside := walk.left_out_inside(path):
            raise _wrong(
                stream,
                f"{inside} cannot be left out alone, because the source's schema does not name "
                "the fields around it",
                f"leave out {'.'.join(path)}",
            )
    if not found:
        raise _wrong(stream, "they leave no column", "list what to keep, or exclude the stream")
    return found


def _wrong(stream: Stream, what: str, hint: str) -> ConfigError:
    return ConfigError(
        f"stream {stream.id}: columns: {what}",
        code="config.unknown_field",
        hint=hint,
        stream=str(stream.id),
    )


def _glob(pattern: str) -> str:
    """Returns the pattern for ``fnmatch``, which gives brackets a meaning; ``address.*`` is all of
    the object ``address``."""
    while pattern.endswith(".*"):
        pattern = pattern.removesuffix(".*")
    return pattern.replace("[", "[[]")


class _Walk:
    """A walk over a stream's properties."""

    def __init__(
        self,
        stream: Stream,
        chosen: Sequence[str],
        left_out: Sequence[str],
        others: Sequence[FieldPath],
    ) -> None:
        self._schema, self._chosen, self._left_out = stream.json_schema, chosen, left_out
        self._others = others

    def all(self, most: Set[str]) -> list[FieldPath]:
        names = dict.fromkeys(names_of(self._schema))
        found = [path for name in names for path in self._below((name,), name in most)]
        beyond = [
            other  # which the schema does not name
            for other in self._others
            if not any(f[: len(other)] == other or other[: len(f)] == f for f in found)
            and not any(self._out(other[:depth]) for depth in range(1, len(other) + 1))
        ]
        return found + beyond

    def left_out_inside(self, path: FieldPath) -> str | None:
        """Returns what is to be excluded from a property whose fields the schema does not name."""
        if names_of(self._schema, path):
            return None
        within = ".".join(path) + "."
        return next((p for p in self._left_out if p.startswith(within)), None)

    def _out(self, path: FieldPath) -> bool:
        return any(fnmatchcase(".".join(path), p) for p in self._left_out)

    def _below(self, path: FieldPath, chosen: bool) -> list[FieldPath]:
        """Returns the kept paths of a property: itself, or those inside it. ``chosen``: its object
        is."""
        if self._out(path):
            return []
        chosen |= path in self._others
        chosen |= any(fnmatchcase(".".join(path), p) for p in self._chosen)
        inside = [(*path, inner) for inner in dict.fromkeys(names_of(self._schema, path))]
        kept = [self._below(each, chosen) for each in inside]
        if chosen and all(found == [each] for found, each in zip(kept, inside, strict=True)):
            return [path]
        return [each for found in kept for each in found]
