"""Defines what a source reads.

Data only. :class:`StreamOverrides`: the user's options for a stream; the protocol's rules
(``contract.SourceRole``) make a configured stream from them. :class:`ReadRequest`: one read. Not
here: what comes back (``model.events``), the conversation with a source (``connection``).
Neighbours: ``writing``, ``transforming``, the same for the other roles.
"""

from typing import Any

import msgspec

from penstock.model.catalog import ConfiguredStream, FieldPath, Shard, Stream, StreamId
from penstock.model.state import StoredState
from penstock.runtimes.contract import RunTimeouts


class StreamOverrides(msgspec.Struct, frozen=True, kw_only=True):
    """The user's options for a stream; None: not set. Mode names are ``model.catalog`` values.
    ``replaces``: as in ``ConfiguredStream``. ``said``: who chose the modes, if not the pipeline (a
    clause for ``plan``). ``appends``: why rows are appended by default though a primary key is
    known. ``unrecorded``: the stream was synced before modes were recorded, so the defaults of that
    time apply: full_refresh without a known cursor, append for increments. ``mode``: the user's one
    word for both modes, in its canonical spelling."""

    sync_mode: str | None = None
    destination_sync_mode: str | None = None
    cursor_field: FieldPath | None = None
    primary_key: tuple[FieldPath, ...] | None = None
    columns: tuple[str | FieldPath, ...] | None = None
    replaces: bool = False
    said: str | None = None
    appends: str | None = None
    unrecorded: bool = False
    mode: str | None = None


class ReadRequest(msgspec.Struct, frozen=True, kw_only=True):
    """One read. ``states``: the saved ones, without those of streams that restart.
    ``spool_folder``: where a record longer than ``max_record_bytes`` is kept whole, as a reject's
    file; None keeps only its beginning."""

    config: dict[str, Any]
    streams: tuple[ConfiguredStream, ...]
    states: tuple[StoredState, ...] = ()
    timeouts: RunTimeouts = RunTimeouts()
    max_record_bytes: int = 256 * 1024 * 1024
    spool_folder: str | None = None
    tick: float = 1.0
    open: bool = False
    """The streams are known from messages only: every stream is accepted if a ``Schema`` event
    announces it before its first record."""
    abilities: dict[str, Any] = {}
    """``ConnectorSpec.abilities``, overridden by keys of ``ProtocolSpec.source_keys`` that the user
    set. Empty: nothing is known."""
    tries: dict[StreamId, int] = {}
    """How often each stream was tried before in this run, as its source permitted."""
    attempts: int = 1
    """How often a stream may be tried in this run, the first time included, unless the protocol has
    its own number."""
    backoff: float = 0.0
    """Seconds before the second attempt; each one after it waits three times as long."""
    limit: int | None = None
    """Read at most this many records of each stream, and keep none."""
    dry_run: bool = False
    """A dry run: no record is kept."""
    refuses: bool = False
    """The input comes from a host, which must get an error: a record before its schema, or an
    invalid schema, ends the read."""
    shards: dict[StreamId, Shard] = {}
    """Which part of a stream is read, where it is divided."""
    unchosen: tuple[Stream, ...] = ()
    """Streams of the catalog that are not read, for protocols that must deselect streams
    explicitly."""
