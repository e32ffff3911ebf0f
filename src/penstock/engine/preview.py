"""A few rows of one stream, decoded as a run would decode them; nothing is kept.

No Spark and no log: the connector runs beside the command and is stopped once it has given enough.
Neighbours: ``cli`` prints the rows; ``engine.plan``'s rules do not apply (no destination).
"""

from collections.abc import Generator
from contextlib import closing
from typing import Any, cast

from penstock.codec.decode import RowDecoder
from penstock.codec.json_schema import row_schema
from penstock.connectors.launch import runtime_for
from penstock.connectors.source import SourceConnector
from penstock.errors import ConfigError, PenstockError, SourceError
from penstock.model.catalog import Catalog, SyncMode
from penstock.model.events import Batch, Error, Event, Exited
from penstock.model.names import clean_columns
from penstock.model.types import CHANGES, EXTRACTED_AT, RAW_ID, SEQ
from penstock.protocols.contract import ReadRequest, StreamWish
from penstock.runtimes.contract import Timeouts

MAX_SECONDS = 300.0


def preview(
    connector: SourceConnector, config: dict[str, Any], stream: str | None, limit: int
) -> dict[str, Any]:
    """``{"rows": [...], "changes": n}``: at most ``limit`` rows of the stream (the first one where
    none is named), with values that did not fit already NULL. Raises ``SourceError``."""
    timeouts = Timeouts(total=MAX_SECONDS)
    connector.validate(config)
    package = connector.protocol
    chosen = _choose(connector.discover(config, timeouts), stream)
    wish = StreamWish(sync_mode=SyncMode.full_refresh.value, destination_sync_mode="append")
    configured = package.source.configure(chosen, wish)
    record = package.schema.data_type(chosen.json_schema)
    schema = row_schema(record, clean_columns(f.source for f in record.fields), None)
    decoder = RowDecoder(schema, words=package.change_words)
    rows: list[dict[str, Any]] = []
    changes = 0
    request = ReadRequest(config=config, streams=(configured,), timeouts=timeouts)
    runtime = runtime_for(connector.launch(), connector.secrets(config))
    events = cast(Generator[Event], package.source.read(runtime, request))
    with closing(events):
        for event in events:
            match event:
                case Batch():
                    decoded = decoder.decode(event.bodies, 0, event.extracted_at, event.changes)
                    changes += decoded.misfits
                    kept = decoded.table.drop_columns([SEQ, RAW_ID, EXTRACTED_AT, CHANGES])
                    rows += kept.slice(0, limit - len(rows)).to_pylist()
                case Error():
                    raise SourceError(event.message, connector=event.raw or None)
                case Exited(code=code) if code != 0:
                    raise _ended(code, event.stderr_tail)
                case _:
                    pass
            if len(rows) >= limit:
                break
    return {"rows": rows, "changes": changes}


def _choose(catalog: Catalog, name: str | None) -> Any:
    found = [s for s in catalog.streams if name is None or name in (str(s.id), s.id.name)]
    if found:
        return found[0]
    raise ConfigError(
        f"unknown stream {name!r}",
        code="config.streams",
        hint="the source has: " + ", ".join(str(s.id) for s in catalog.streams[:20]),
    )


def _ended(code: int | None, tail: str) -> PenstockError:
    said = f"; its last words: {tail.strip()}" if tail else ""
    return SourceError(f"the source ended with exit code {code}{said}", code="source.exited")
