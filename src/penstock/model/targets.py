"""What a stream is called at the destination: its namespace and name on the way out, and back.

Pure functions over the pipeline file's ``destination.namespace`` and ``destination.prefix``. What a
table makes of the name it is given is ``model.names``'s business; a state's inner names are the
protocol's (``protocols/*``), which asks here. The rules are those of Airbyte's platform: ``source``
keeps the namespace, ``destination`` leaves it to the destination, anything else is a text in which
``${SOURCE_NAMESPACE}`` stands for the source's.
"""

from collections.abc import Iterable

from penstock.model.catalog import StreamId

SOURCE_NAMESPACE = "SOURCE_NAMESPACE"
KEEP, LEAVE = "source", "destination"


def target_of(stream: StreamId, namespace: str = KEEP, prefix: str = "") -> StreamId:
    """The stream's name at the destination. A namespace that comes out blank is none."""
    if namespace == KEEP:
        space = stream.namespace
    elif namespace == LEAVE:
        space = None
    else:
        space = namespace.replace(f"${{{SOURCE_NAMESPACE}}}", stream.namespace or "")
    return StreamId.of(space if space and space.strip() else None, prefix + stream.name)


def targets_of(
    streams: Iterable[StreamId], namespace: str = KEEP, prefix: str = ""
) -> dict[StreamId, StreamId]:
    """:func:`target_of` of each."""
    return {stream: target_of(stream, namespace, prefix) for stream in streams}


def clashes(targets: dict[StreamId, StreamId]) -> list[str]:
    """A sentence for each name at the destination that several streams would share."""
    sharing: dict[StreamId, list[StreamId]] = {}
    for stream, target in targets.items():
        sharing.setdefault(target, []).append(stream)
    return [
        f"the streams {', '.join(map(str, sorted(streams)))} would all be {str(target)!r} at the "
        "destination: keep their namespaces apart with destination.namespace"
        for target, streams in sorted(sharing.items())
        if len(streams) > 1
    ]
