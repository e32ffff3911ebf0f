"""Masks secrets in what a connector reports next to its data: logs, errors, metrics and the end of
its stderr (L10).

Only ``protocols.connection.Connection`` imports this. Records, rejects, states and CONTROL pass
untouched: they are data, or never logged. Neighbours: ``runtimes.masking`` finds secrets in text.
"""

from dataclasses import replace
from typing import Any

from penstock.model.events import (
    ConnectorExited,
    ConnectorMetrics,
    Control,
    Error,
    Event,
    LogEvent,
    SkippedItems,
    StreamHalted,
)
from penstock.runtimes.masking import Masker, changed_texts


class EventMasker:
    """Masks one conversation's events in the order they came. ``config``: the connector's
    configuration. ``masker`` learns what a CONTROL changes in it before any later event."""

    def __init__(self, masker: Masker, config: dict[str, Any]) -> None:
        self._masker, self._config = masker, config

    def masked(self, event: Any) -> Any:
        if isinstance(event, Control):
            self._masker.add(changed_texts(self._config, event.config))
            self._config = event.config
        return _masked(self._masker, event)


def _masked(masker: Masker, event: Event | StreamHalted) -> Event | StreamHalted:
    """Returns the event, or a masked copy where it holds the connector's own text."""
    if not masker:
        return event
    match event:
        case LogEvent(level, message, stack):
            return LogEvent(
                level, masker.mask(message), None if stack is None else masker.mask(stack)
            )
        case Error(message, raw=raw):
            hint = None if event.hint is None else masker.mask(event.hint)
            words = {"message": masker.mask(message), "raw": masker.mask_data(raw), "hint": hint}
            return replace(event, **words)
        case SkippedItems(what):
            return replace(event, what=masker.mask(what))
        case StreamHalted(stream, message):
            return StreamHalted(stream, masker.mask(message))
        case ConnectorMetrics(stream, series):
            return ConnectorMetrics(stream, masker.mask_data(series))
        case ConnectorExited(code, tail, doubts):
            masked = (replace(doubt, reason=masker.mask(doubt.reason)) for doubt in doubts)
            return ConnectorExited(code, masker.mask(tail), tuple(masked))
        case _:
            return event
