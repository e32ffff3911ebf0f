"""Secrets out of what a connector says: its events, its errors, its answers (L10).

Neighbours: ``runtimes.masking`` finds them in text. Records, rejects, states and CONTROL pass
untouched: they are data, or never logged.
"""

from collections.abc import Generator, Iterable, Iterator
from contextlib import closing
from dataclasses import replace
from typing import Any, cast

from penstock.errors import PenstockError
from penstock.model.events import Control, Error, Event, Exited, Log, Measured
from penstock.protocols.contract import EventSink
from penstock.runtimes.masking import Masker


def masked_event(masker: Masker, event: Event) -> Event:
    """The event, or a masked copy where it holds words of the connector's."""
    if not masker:
        return event
    match event:
        case Log(level, message, stack):
            return Log(level, masker.mask(message), None if stack is None else masker.mask(stack))
        case Error(message, raw=raw):
            return replace(event, message=masker.mask(message), raw=masker.mask_data(raw))
        case Measured(stream, series):
            return Measured(stream, masker.mask_data(series))
        case Exited(code, tail):
            return Exited(code, masker.mask(tail))
        case _:
            return event


def masked_sink(masker: Masker, sink: EventSink) -> EventSink:
    def take(event: Event, /) -> None:
        sink(masked_event(masker, event))

    return take


def learning(masker: Masker, config: dict[str, Any], events: Iterator[Event]) -> Generator[Event]:
    """The same events; ``masker`` learns what a CONTROL changes of ``config`` before anything that
    comes after it. Each text that changed counts: nothing says which of them are secret."""
    with closing(cast(Generator[Event], events)):
        for event in events:
            if isinstance(event, Control):
                masker.add(changed_texts(config, event.config))
                config = event.config
            yield event


def changed_texts(before: dict[str, Any], after: dict[str, Any]) -> set[str]:
    """What a configuration holds that it did not hold before."""
    return _texts(after) - _texts(before)


def _texts(value: Any) -> set[str]:
    if isinstance(value, str):
        return {value}
    if isinstance(value, dict):
        value = cast(dict[str, Any], value).values()
    elif not isinstance(value, list):
        return set()
    return set[str]().union(*map(_texts, cast(Iterable[Any], value)))


def mask_error(masker: Masker, error: PenstockError) -> None:
    """Its words masked in place, so that it can be raised on."""
    error.message = masker.mask(error.message)
    error.args = (error.message,)
    if error.hint is not None:
        error.hint = masker.mask(error.hint)
    if error.connector is not None:
        error.connector = masker.mask_data(error.connector)
