"""Chooses the streams that a run syncs, from the pipeline file and the source's catalog.

Pure. Not here: how a chosen stream is planned (``engine.plan.stream_plan``). Neighbours:
``engine.plan.streams`` calls; ``config.pipeline`` matches names and patterns.
"""

from collections.abc import Set
from difflib import get_close_matches

from penstock.config.pipeline import Pipeline, StreamOptions, StreamSettings
from penstock.model.catalog import Catalog, Stream, StreamId


def choose_streams(
    pipeline: Pipeline, catalog: Catalog, known: Set[StreamId], problems: list[str]
) -> tuple[list[tuple[Stream, StreamSettings]], list[StreamId]]:
    """Returns the streams to sync, with their settings, and the configured ones that the source no
    longer has; adds unknown names to ``problems``."""
    named = pipeline.source.streams is not None
    wanted = [s for s in catalog.streams if named or s.selected]
    chosen = [(s, w) for s in wanted if (w := pipeline.stream_settings(s.id)) is not None]
    gone: list[StreamId] = []
    if catalog.open:
        return chosen, gone
    if pipeline.source.streams is None:
        gone += sorted(known - {s.id for s in catalog.streams}, key=lambda s: s.key)
    for index, entry in enumerate(pipeline.source.streams or ()):
        found = [s.id for s in catalog.streams if entry.matches(s.id)]
        if entry.is_pattern and len(found) > 1:
            continue
        if len(found) > 1 and not entry.namespace and entry.name not in map(str, found):
            listed = ", ".join(map(str, found))
            problems.append(f"stream {entry.name!r} is ambiguous: {listed}; name its namespace")
        if not found:
            before = [s for s in known if entry.matches(s)]
            gone += before
            if not before:
                at = pipeline.position(f"source.streams[{index}]")
                problems.append((f"{at}: " if at else "") + _unknown(entry, catalog))
    for name in pipeline.source.exclude:
        left_out = StreamOptions(name=name)
        here = any(left_out.matches(s) for s in (*(s.id for s in catalog.streams), *known))
        if not here and not left_out.is_pattern:
            problems.append(f"excluded: {_unknown(left_out, catalog)}")
    if not chosen and not gone and not problems:
        unselected = "; its catalog selects none" if catalog.streams and not wanted else ""
        problems.append(f"the source has no stream to sync{unselected}")
    return chosen, gone


def _unknown(entry: StreamOptions, catalog: Catalog) -> str:
    names = [str(s.id) for s in catalog.streams]
    wanted = f"{entry.namespace}.{entry.name}" if entry.namespace else entry.name
    close = get_close_matches(wanted, names, n=1) or get_close_matches(
        entry.name, [s.id.name for s in catalog.streams], n=1
    )
    if close:
        return f"unknown stream {wanted!r}; did you mean {close[0]!r}?"
    shown = ", ".join(sorted(names)[:10]) + (", ..." if len(names) > 10 else "")
    return f"unknown stream {wanted!r}; the source has: {shown or 'none'}"
