"""Declares our output for a host that runs Penstock as its target or its destination (``penstock
serve``).

A protocol that can serve Penstock, by its spec, has a module ``serve`` with one of the two.
Neighbours: ``protocols.serving`` loads it, ``cli.serve`` prints what it builds. Not here: the run
behind it (``engine.serve``).
"""

from collections.abc import Sequence
from typing import Any, Protocol

import msgspec

from penstock.model.catalog import Catalog, ConfiguredStream, StreamId


class HostGeneration(msgspec.Struct, frozen=True, kw_only=True):
    """A host's numbers for the rows of a stream, None where it gives none: of its ``generation``
    and of the ``sync``. ``replaces``: older generations are removed."""

    generation: int | None = None
    sync: int | None = None
    replaces: bool = False


class TargetHost(Protocol):
    """Builds the output for a host that runs us as its target (``penstock serve target``)."""

    def state(self, blob: str, taken: int, rejected: int) -> str:
        """Returns the line of stdout that gives a state back. ``taken``, ``rejected``: records
        since the previous state of its scope that became rows, and that did not; 0 where not every
        state is given back (``ServeSpec.every_state``)."""
        ...

    def about(self, version: str, config_schema: dict[str, Any]) -> dict[str, Any]:
        """Describes us and what we accept."""
        ...


class DestinationHost(Protocol):
    """Builds the output for a host that runs us as its destination (``penstock serve
    destination``). Texts are lines of stdout."""

    def state(self, blob: str, taken: int, rejected: int) -> str:
        """Returns the line that gives a state back, as in ``TargetHost``."""
        ...

    def spec(self, config_schema: dict[str, Any]) -> str: ...

    def status(self, fault: str | None) -> str:
        """Reports whether a write would work. ``fault``: why it would fail, or None."""
        ...

    def failed(self, message: str, hint: str | None, code: str, exit_code: int) -> str:
        """Reports a failed write; ``code``, ``exit_code``: of the error."""
        ...

    def configured(self, raw: bytes) -> tuple[Catalog, tuple[ConfiguredStream, ...]]:
        """Decodes the host's configured catalog. Raises ``ConfigError``."""
        ...

    def generations(self, streams: Sequence[ConfiguredStream]) -> dict[StreamId, HostGeneration]:
        """Returns the host's numbers for each stream."""
        ...
