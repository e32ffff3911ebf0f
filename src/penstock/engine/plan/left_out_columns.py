"""Finds columns that the pipeline leaves out and that no stream has: a misspelt name would let
through the values that it should hold back.

Pure. Not here: which columns a stream keeps (``protocols.column_patterns``). Neighbour:
``engine.plan.streams`` calls.
"""

from collections.abc import Iterator, Sequence

from penstock.config import did_you_mean
from penstock.config.pipeline import Pipeline
from penstock.model.catalog import FieldPath, Stream
from penstock.protocols.column_patterns import left_out
from penstock.protocols.json_schema.paths import names_of


def unknown_left_out(pipeline: Pipeline, chosen: Sequence[Stream]) -> list[str]:
    """Returns a problem for each column that is left out by its name and that no stream has. An
    entry for several streams may name columns that only some of them have."""
    meant = [("source.defaults", pipeline.source.defaults, list(chosen))]
    for index, entry in enumerate(pipeline.source.streams or ()):
        of = [s for s in chosen if entry.matches(s.id)]
        meant.append((f"source.streams[{index}]", entry, of))
    problems: list[str] = []
    for path, settings, streams in meant:
        wanted = [n for said in settings.columns or () if (n := left_out(said)) is not None]
        if not wanted or not streams or not all(names_of(s.json_schema) for s in streams):
            continue
        known = dict.fromkeys(name for s in chosen for name in _names(s))
        opaque = [k for k in known if not any(other.startswith(f"{k}.") for other in known)]
        at = pipeline.position(f"{path}.columns") or pipeline.position(path)
        problems += [
            (f"{at}: " if at else "") + f"{path}.columns: no stream has {name}, which is to be left"
            f" out; {did_you_mean.hint(name, known, 'their columns')}"
            for name in wanted
            if name not in known and not any(name.startswith(f"{bare}.") for bare in opaque)
        ]
    return problems


def _names(stream: Stream, path: FieldPath = ()) -> Iterator[str]:
    """Yields the dotted names of all properties that the stream's schema declares."""
    for name in names_of(stream.json_schema, path):
        yield ".".join((*path, name))
        yield from _names(stream, (*path, name))
