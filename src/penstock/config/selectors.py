"""Parses the values of command-line options: streams, cursors, keys, configurations.

Streams are ``name``, ``namespace.name`` or JSON (``{"namespace": "a.b", "name": "c"}``); a cursor
is a field or a JSON path (``["meta", "updated_at"]``); keys are ``field``, ``a,b``, a JSON path or
a JSON list of paths. Dots in a field's name are part of the name. A configuration is JSON or
``@FILE``; messages never quote it.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec

from penstock.config.did_you_mean import closest, hint
from penstock.config.pipeline import StreamOptions
from penstock.errors import ConfigError
from penstock.model.catalog import FieldPath, StreamId

_STREAM_HINT = (
    'name streams as NAME, NAMESPACE.NAME, A,B or JSON, as in \'{"namespace": "a.b", "name": "c"}\''
)
_PATH_HINT = 'a nested field is a JSON list, as in \'["metadata","updated_at"]\''


def option_error(option: str, what: str, advice: str | None = None) -> ConfigError:
    """Builds the error of a wrong command-line option (``config.option``)."""
    return ConfigError(f"{option}: {what}", code="config.option", where=option, hint=advice)


def parse_streams(text: str, option: str = "--streams") -> tuple[StreamOptions, ...]:
    """Parses streams: ``a,b``, or JSON of one stream or of a list. Raises ``ConfigError``."""
    if text.lstrip()[:1] in ("{", "["):
        raw = _json(text, option, _STREAM_HINT)
        found = tuple(_stream(item, option) for item in (raw if isinstance(raw, list) else [raw]))
    else:
        names = [name.strip() for name in text.split(",")]
        if not all(names):
            raise option_error(option, "a stream's name is empty", _STREAM_HINT)
        found = tuple(StreamOptions(name=name) for name in names)
    if not found:
        raise option_error(option, "no stream is named", _STREAM_HINT)
    return tuple(dict.fromkeys(found))


def parse_stream(text: str, option: str = "--stream") -> StreamOptions:
    """Parses exactly one stream. Raises ``ConfigError``."""
    found = parse_streams(text, option)
    if len(found) != 1:
        raise option_error(option, "names more than one stream", _STREAM_HINT)
    return found[0]


def find_stream(selector: StreamOptions, known: Iterable[StreamId]) -> StreamId:
    """Returns the stream of ``known`` that ``selector`` names. A match by name wins over a match by
    ``namespace.name``; of two streams under no namespace and ``""`` the one that is spelled as
    ``selector`` is. Raises ``ConfigError`` (``config.unknown_stream``,
    ``config.ambiguous_stream``)."""
    streams = list(known)
    matching = [s for s in streams if selector.matches(s)]
    found = [s for s in matching if s.name == selector.name] or matching
    if len(found) > 1 and not any(s.namespace for s in found):
        found = [s for s in found if s.namespace == selector.namespace] or found
    shown = f"{selector.namespace}.{selector.name}" if selector.namespace else selector.name
    if not found:
        raise ConfigError(
            f"there is no stream '{shown}'",
            code="config.unknown_stream",
            stream=shown,
            hint=_near(shown, streams),
        )
    if len(found) > 1:
        raise ConfigError(
            f"'{shown}' names {len(found)} streams: {', '.join(map(str, found))}",
            code="config.ambiguous_stream",
            stream=shown,
            hint="name it with its namespace",
        )
    return found[0]


def _near(shown: str, streams: list[StreamId]) -> str:
    near = closest(shown, [*(s.name for s in streams), *map(str, streams)])
    return f"did you mean '{near}'?" if near else hint(shown, map(str, streams), "streams")


def parse_cursor(text: str, option: str = "--cursor-field") -> FieldPath:
    """Parses a cursor: one field or one JSON path. Raises ``ConfigError``."""
    if text.lstrip().startswith("["):
        return _path(_json(text, option, _PATH_HINT), option)
    if "," in text:
        raise option_error(option, "a cursor is one field", _PATH_HINT)
    if not text.strip():
        raise option_error(option, "the field's name is empty", _PATH_HINT)
    return (text.strip(),)


def parse_keys(text: str, option: str = "--primary-key") -> tuple[FieldPath, ...]:
    """Parses a primary key: ``a,b`` (two fields), ``["meta","id"]`` (one path),
    ``[["meta","id"],["shop"]]`` (two paths). Raises ``ConfigError``."""
    if text.lstrip().startswith("["):
        raw = _json(text, option, _PATH_HINT)
        if isinstance(raw, list) and raw and all(isinstance(p, list) for p in raw):
            return tuple(_path(p, option) for p in raw)
        return (_path(raw, option),)
    names = [name.strip() for name in text.split(",")]
    if not all(names):
        raise option_error(option, "a field's name is empty", _PATH_HINT)
    return tuple((name,) for name in names)


def parse_config(text: str, option: str = "--config") -> dict[str, Any]:
    """Parses a configuration: a JSON object, or ``@FILE`` with one. Raises ``ConfigError``, which
    quotes none of its values (L10)."""
    advice = "give a JSON object, as in '{\"count\": 100}', or @FILE"
    if text.startswith("@"):
        try:
            text = Path(text[1:]).read_text(encoding="utf-8-sig")
        except OSError as error:
            raise option_error(option, f"{text[1:]}: {error.strerror}", advice) from None
        except UnicodeDecodeError:
            raise option_error(option, f"{text[1:]} is not UTF-8 text", advice) from None
    raw = _json(text, option, advice)
    if not isinstance(raw, dict):
        raise option_error(option, "the configuration must be a JSON object", advice)
    return raw


def _json(text: str, option: str, advice: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError as error:
        raise option_error(option, f"not JSON: {error}", advice) from None
    except RecursionError:
        raise option_error(option, "not JSON that can be read: nested too deep", advice) from None


def _stream(raw: Any, option: str) -> StreamOptions:
    if isinstance(raw, str) and raw.strip():
        return StreamOptions(name=raw)
    if isinstance(raw, dict) and raw.keys() <= {"name", "namespace"}:
        name, namespace = raw.get("name"), raw.get("namespace")
        if isinstance(name, str) and name.strip() and isinstance(namespace, str | None):
            return StreamOptions(name=name, namespace=namespace)
    raise option_error(option, "not a stream's name", _STREAM_HINT)


def _path(raw: Any, option: str) -> FieldPath:
    if isinstance(raw, list) and raw and all(isinstance(s, str) and s for s in raw):
        return tuple(raw)
    raise option_error(option, "not a path of names", _PATH_HINT)
