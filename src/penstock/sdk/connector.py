"""Defines what the author of a connector writes: streams that take or yield rows, an enrichment,
and the connector that has them.

Not here: batches and counters (``batches``), wire messages (``syncmaven``, ``airbyte``), its
process (``process``).
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar

import msgspec

from penstock.sdk.rate_limit import Backoff
from penstock.sdk.store import KeyValueStore

TypeOrSchema = type | dict[str, Any] | None
"""A TypedDict, dataclass or msgspec Struct; or a JSON Schema of draft 7; None: any object."""
Secret = Annotated[str, msgspec.Meta(extra_json_schema={"writeOnly": True})]
"""Text in a configuration that hosts mask in logs and never show."""


class Halt(Exception):
    """Ends the sync from anywhere in a connector. ``ok``: it ends early without an error."""

    def __init__(self, message: str, *, ok: bool = False) -> None:
        super().__init__(message)
        self.message, self.ok = message, ok


class RowError(Exception):
    """Raised by :meth:`Enricher.enrich` for a row that cannot be enriched; others continue. The
    host rejects the row, or passes it on unchanged."""


@dataclass(frozen=True)
class Sync:
    """The inputs of one sync of a stream, or of an enrichment. ``credentials`` and ``options``: of
    the declared types. ``full_refresh``: every row is sent again. ``store``: kept between runs; its
    keys belong to this sync."""

    credentials: Any
    options: Any
    sync_id: str
    full_refresh: bool
    store: KeyValueStore


class StreamWriter:
    """One stream of a destination: a class per stream, an object per sync.

    ``name``: in the list of streams. ``row``, ``options``: their types. Rows of a declared type
    come as that type, others as dicts; a row that does not fit is counted as failed.
    ``batch_size``: the most rows in one call of :meth:`write`. ``self.sync``: see :class:`Sync`.
    """

    name: ClassVar[str]
    row: ClassVar[TypeOrSchema] = None
    options: ClassVar[TypeOrSchema] = None
    batch_size: ClassVar[int] = 1

    def __init__(self, sync: Sync) -> None:
        self.sync = sync
        self._failures: list[str] = []
        self._skipped: list[str] = []

    def open(self) -> None:
        """Called before the first row. An exception halts the sync."""

    def write(self, rows: list[Any]) -> None:
        """Takes rows. All of them count as written unless :meth:`reject` or :meth:`skip` named
        them. ``RateLimitError``: the same rows come again later, so raise it before any is written.
        ``Halt`` ends the sync; after any other exception all rows of the call count as failed."""
        raise NotImplementedError

    def close(self) -> None:
        """Called after the last row: flush what :meth:`write` buffered. An exception halts the
        sync."""

    def reject(self, row: Any, reason: str) -> None:
        """Counts a row as failed; the reason is logged, the row is not."""
        del row
        self._failures.append(reason)

    def skip(self, row: Any, reason: str) -> None:
        """Counts a row as left out on purpose."""
        del row
        self._skipped.append(reason)

    def take_counts(self) -> tuple[list[str], list[str]]:
        """Returns the reasons of rows rejected and skipped since the last call."""
        counts = (self._failures, self._skipped)
        self._failures, self._skipped = [], []
        return counts


class Enricher:
    """An enrichment: an object per sync. ``row``, ``options``: as in :class:`StreamWriter`."""

    row: ClassVar[TypeOrSchema] = None
    options: ClassVar[TypeOrSchema] = None

    def __init__(self, sync: Sync) -> None:
        self.sync = sync

    def open(self) -> None:
        """Called before the first row. An exception halts the sync."""

    def enrich(self, row: Any) -> Any:
        """Returns one row, or a list of rows; ``[]`` drops the row. ``RateLimitError``: the row
        comes again later. :class:`RowError`: this row cannot be enriched, as is a row that does not
        fit the type. Any other exception halts the sync."""
        raise NotImplementedError


class _Cursor:
    """The type of :data:`CURSOR`."""


CURSOR = _Cursor()
"""The value of a :class:`Checkpoint` that has none of its own."""


@dataclass(frozen=True)
class Checkpoint:
    """Yielded among rows: all rows before it have been yielded. ``value``: JSON data, which the
    next run's :meth:`StreamReader.read` gets. By default the greatest cursor of the rows so far, of
    a stream with a ``cursor``."""

    value: Any = CURSOR


class StreamReader:
    """One stream of a source: a class per stream, an object per run.

    ``name``: in the list of streams. ``row``: the type of its rows; ``primary_key``: the fields
    that identify a row. ``cursor``: a field whose values only grow, by which a later run reads new
    rows; None: every run reads everything. ``self.config``: of the declared type."""

    name: ClassVar[str]
    row: ClassVar[TypeOrSchema] = None
    primary_key: ClassVar[Sequence[str]] = ()
    cursor: ClassVar[str | None] = None

    def __init__(self, config: Any) -> None:
        self.config = config

    def read(self, since: Any) -> Iterable[Any]:
        """Yields rows, and a :class:`Checkpoint` wherever the next run may begin. ``since``: the
        value of the last checkpoint; None: read everything. The greatest cursor of a stream with a
        ``cursor`` is one after its last row, unless a checkpoint had a value of its own. An
        exception ends this stream; the others continue."""
        raise NotImplementedError


@dataclass(frozen=True, kw_only=True)
class Connector:
    """A connector, with each role that it has an attribute for. ``streams``: of a destination, the
    first is the default; ``sources``: of a source. ``credentials``: the configuration. ``check``:
    raises where a source cannot work with its configuration."""

    description: str = ""
    credentials: TypeOrSchema = None
    streams: Sequence[type[StreamWriter]] = ()
    enrichment: type[Enricher] | None = None
    sources: Sequence[type[StreamReader]] = ()
    check: Callable[[Any], object] | None = None
    rate_limit: Backoff = field(default_factory=Backoff)
