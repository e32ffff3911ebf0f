"""Names under which the store keeps what the engine must remember of a stream."""

from penstock.model.catalog import StreamId


def versions_key(stream: StreamId) -> str:
    """Where the store keeps the generation of each version of a stream."""
    return f"versions:{stream.key}"


def visible_key(stream: StreamId) -> str:
    """Where the store keeps which generations became visible; the newest is."""
    return f"visible:{stream.key}"
