"""Computes a stream's namespace and name at the destination.

Pure functions of the pipeline file's ``destination.namespace`` and ``destination.prefix``. The
rules are those of Airbyte's platform: ``source`` keeps the namespace, ``destination`` leaves it to
the destination, any other text is the namespace, in which ``${SOURCE_NAMESPACE}`` is replaced by
the source's. Not here: cleaned table names (``model.names``), stream names inside a state
(``protocols/*``, which call this module)."""

from collections.abc import Iterable

from penstock.model.catalog import StreamId

SOURCE_NAMESPACE = "SOURCE_NAMESPACE"
KEEP, LEAVE = "source", "destination"


def target_of(stream: StreamId, namespace: str = KEEP, prefix: str = "") -> StreamId:
    """Returns the stream's id at the destination. A blank namespace counts as none, except that
    ``""`` stays ``""`` if the source also has the stream without a namespace (``StreamId``), to
    keep the two apart."""
    if namespace == KEEP:
        space = stream.namespace
    elif namespace == LEAVE:
        space = None
    else:
        space = namespace.replace(f"${{{SOURCE_NAMESPACE}}}", stream.namespace or "")
    blank = "" if stream.namespace == "" else None
    return StreamId(space if space and space.strip() else blank, prefix + stream.name)


def targets_of(
    streams: Iterable[StreamId], namespace: str = KEEP, prefix: str = ""
) -> dict[StreamId, StreamId]:
    """Returns :func:`target_of` for each of ``streams``."""
    return {stream: target_of(stream, namespace, prefix) for stream in streams}


def clashes(targets: dict[StreamId, StreamId]) -> list[str]:
    """Returns a sentence for each id at the destination that several streams would share."""
    sharing: dict[StreamId, list[StreamId]] = {}
    for stream, target in targets.items():
        sharing.setdefault(target, []).append(stream)
    return [
        f"the streams {', '.join(map(str, sorted(streams)))} would all be {str(target)!r} at the "
        "destination: keep their namespaces apart with destination.namespace"
        for target, streams in sorted(sharing.items())
        if len(streams) > 1
    ]
