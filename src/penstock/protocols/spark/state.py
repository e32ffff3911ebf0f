"""Parses the states of models: each is of one stream and is a JSON object.

A state is what ``engine.query.query_reader`` wrote into the staged rows: the cursor for the next
run of the query, or the snapshot with the rows that were sent. Neighbours:
``protocols.stream_states`` has all other rules.
"""

from collections.abc import Mapping
from typing import Any, cast

from penstock.codec.exact_json import exact_text
from penstock.errors import StateError
from penstock.model.catalog import StreamId
from penstock.model.state import StoredState
from penstock.protocols.stream_states import StreamStates, saved

STREAM = "stream"


class SparkState(StreamStates):
    """``StateRole`` of ``protocols.contract``."""

    def parse(self, raw: Any) -> list[StoredState]:
        """Accepts a list of states, a single one, and none (null, ``[]``, ``{}``)."""
        items = cast(list[Any], raw) if isinstance(raw, list) else [raw]
        states = [_parsed(item, i) for i, item in enumerate(items) if item not in (None, {})]
        return self.merge([], states)


def _parsed(item: Any, index: int) -> StoredState:
    stream = cast(Mapping[str, Any], item).get(STREAM) if isinstance(item, Mapping) else None
    if not isinstance(stream, str):
        raise StateError(
            f"state {index + 1} is not a state of a query: it names no stream",
            code="state.invalid",
            hint="give what `penstock state export` writes",
        )
    return saved(exact_text(item).decode(), StreamId.of(None, stream))
