"""Declares what a host hears that runs Penstock as its target or its destination (``penstock
serve``).

A protocol whose spec shows that Penstock can be served has a module ``serve`` with one of the two.
Neighbours: ``protocols.serving`` loads it, ``cli.serve`` prints what it gives. Not here: the run
behind it (``engine.serve``).
"""

from collections.abc import Sequence
from typing import Any, Protocol

import msgspec

from penstock.model.catalog import Catalog, ConfiguredStream, StreamId


class HostGeneration(msgspec.Struct, frozen=True, kw_only=True):
    """The numbers that a host gives to the rows of a stream, None where it gives none: its own of
    the ``generation`` and of the ``sync``. ``replaces``: older generations go."""

    generation: int | None = None
    sync: int | None = None
    replaces: bool = False


class TargetHost(Protocol):
    """What a host hears that runs us as its target (``penstock serve target``)."""

    def state(self, blob: str, taken: int, rejected: int) -> str:
        """The line of stdout that gives a state back. ``taken``, ``rejected``: records since the
        state before it in its scope that became rows, and that did not; 0 where not every state
        is given back (``ServeSpec.every_state``)."""
        ...

    def about(self, version: str, config_schema: dict[str, Any]) -> dict[str, Any]:
        """What we are and take."""
        ...


class DestinationHost(Protocol):
    """What a host hears that runs us as its destination (``penstock serve destination``). Texts
    are lines of stdout."""

    def state(self, blob: str, taken: int, rejected: int) -> str:
        """A state that is given back, as in ``TargetHost``."""
        ...

    def spec(self, config_schema: dict[str, Any]) -> str: ...

    def status(self, fault: str | None) -> str:
        """``fault``: why it would not work, or None."""
        ...

    def failed(self, message: str, hint: str | None, code: str, exit_code: int) -> str:
        """A write that failed; ``code``, ``exit_code``: of the fault."""
        ...

    def configured(self, raw: bytes) -> tuple[Catalog, tuple[ConfiguredStream, ...]]:
        """The host's configured catalog. Raises ``ConfigError``."""
        ...

    def generations(self, streams: Sequence[ConfiguredStream]) -> dict[StreamId, HostGeneration]:
        """The host's numbers for each stream."""
        ...
