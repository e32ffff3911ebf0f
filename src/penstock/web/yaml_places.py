"""Finds the span of each value in the text of a pipeline file, so that one can be changed without
changing any other byte.

The values are those of the pipeline file's own reader (``config.yaml_nodes``, ``config.scalars``),
variables unresolved; this adds their places. Pure. Neighbour: ``file_edit`` changes texts by them.
"""

from collections import deque
from dataclasses import dataclass, field
from typing import Any, Literal

from penstock.config import yaml_nodes
from penstock.config.scalars import plain

_NAME = "the file"


@dataclass(slots=True, eq=False)
class YamlPlace:
    """A value and its span in the text, with the tag and the anchor before it. ``column``: of a
    mapping's first key or a list's first dash; ``flow``: it is in brackets or braces; ``alias``: it
    refers to a value elsewhere, and has no items of its own; ``keys``: of a mapping, the text and
    the span of each key."""

    start: int
    end: int
    column: int
    value: Any
    kind: Literal["scalar", "mapping", "list", "alias"]
    flow: bool = False
    keys: list[tuple[str, int, int]] = field(default_factory=list[tuple[str, int, int]])
    items: list["YamlPlace"] = field(default_factory=list["YamlPlace"])


def values_in(text: str) -> Any:
    """Returns the values of a text as plain data. Raises ``ConfigError`` (``config.yaml``,
    ``config.empty``)."""
    return _plain(yaml_nodes.compose(text, _NAME).root)


def places_of(text: str) -> YamlPlace:
    """Returns the place of the text's root. Raises ``ConfigError`` (``config.yaml``,
    ``config.empty``)."""
    import yaml

    root = yaml_nodes.compose(text, _NAME).root
    loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    events = yaml.parse(yaml_nodes.shield(text)[0], Loader=loader)
    kinds = ("Scalar", "Alias", "MappingStart", "SequenceStart", "MappingEnd", "SequenceEnd")
    return _take(deque(e for e in events if type(e).__name__[:-5] in kinds), text, root)


def _take(events: deque[Any], text: str, node: yaml_nodes.Node) -> YamlPlace:
    event = events.popleft()
    start, kind = event.start_mark.index, type(event).__name__
    if kind in ("AliasEvent", "ScalarEvent"):
        end = _end(event, text)
        word = "alias" if kind == "AliasEvent" else "scalar"
        return YamlPlace(start, end, event.start_mark.column, _plain(node), word)
    flow = event.flow_style is True
    if isinstance(node, yaml_nodes.Sequence):
        made = YamlPlace(start, 0, event.start_mark.column, _plain(node), "list", flow)
        made.items = [_take(events, text, item) for item in node.items]
    else:
        assert isinstance(node, yaml_nodes.Mapping)
        made = YamlPlace(start, 0, event.start_mark.column, _plain(node), "mapping", flow)
        for key, item in node.items:
            named = events.popleft()
            if not made.keys:
                made.column = named.start_mark.column
            made.keys.append((key.text, named.start_mark.index, _end(named, text)))
            made.items.append(_take(events, text, item))
    end = events.popleft().end_mark.index
    made.end = end if flow or not made.items else made.items[-1].end
    return made


def _end(event: Any, text: str) -> int:
    """Returns where a scalar ends: the marks of a block scalar include the empty lines after it."""
    start = event.start_mark.index
    return start + len(text[start : event.end_mark.index].rstrip())


def _plain(node: yaml_nodes.Node) -> Any:
    """Returns the value of a node; of a duplicate key the first, as everywhere."""
    if isinstance(node, yaml_nodes.Scalar):
        return plain(node.text) if node.plain else node.text
    if isinstance(node, yaml_nodes.Sequence):
        return [_plain(item) for item in node.items]
    made: dict[str, Any] = {}
    for key, item in node.items:
        made.setdefault(key.text, _plain(item))
    return made
