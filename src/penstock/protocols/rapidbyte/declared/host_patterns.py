"""Combines and extracts the hosts that a connector may reach.

A pattern is a name, an address or ``*.domain``, each with or without a port. Also extracts the
hosts that a configuration names. Pure functions over text. Not here: matching (``model.hosts``),
resolving and connecting (``rapidbyte.guest.sockets``). Source: the protocol, section 8, and v4's
forms of a host.
"""

import re
from collections.abc import Callable, Iterable
from typing import Any, cast

from penstock.model.hosts import (
    ANY,
    AddressClass,
    Pattern,
    address_of,
    covers,
    lies,
    parsed,
    pattern_of,
)

_HOST_KEYS = frozenset({"host", "hostname", "server", "address"})
_NAMING_KEYS = ("host", "server", "addr", "url", "uri", "dsn", "endpoint", "broker")
_ITEM = "[]"
_AUTHORITY = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://([^/?#]*)")
_LIBPQ_HOST = re.compile(r"\bhost(?:addr)?\s*=\s*'?([^\s']+)")


def intersection(left: Iterable[str], right: Iterable[str]) -> tuple[str, ...]:
    """Returns patterns of exactly the hosts that both lists allow, sorted."""
    ours, theirs = parsed(left), parsed(right)
    return _least({both for a in ours for b in theirs for both in _common(a, b)})


def union(*lists: Iterable[str]) -> tuple[str, ...]:
    """Returns patterns of the hosts that any of the lists allows, sorted, without redundant
    ones."""
    return _least({pattern for patterns in lists for pattern in parsed(patterns)})


def naming(patterns: Iterable[str]) -> tuple[str, ...]:
    """Returns the patterns of a pipeline that name their hosts."""
    return tuple(str(p) for p in parsed(patterns) if p.names_hosts)


def is_any(pattern: str) -> bool:
    """Returns whether the pattern allows every host."""
    return any(p.host == ANY for p in parsed([pattern]))


def is_local(pattern: str) -> bool:
    """Returns whether the pattern is one host that is never public: an address outside the public
    ranges, ``localhost`` or a name below it."""
    for one in parsed([pattern]):
        address = address_of(one.host)
        if address is not None:
            return lies(address) is not AddressClass.public
        return covers("localhost", one.host) or covers("*.localhost", one.host)
    return False


def malformed(patterns: Iterable[str]) -> list[str]:
    """Returns the texts that are not patterns, and so allow nothing."""
    return [text for text in patterns if pattern_of(text.strip()) is None]


def hosts_in(config: Any) -> tuple[str, ...]:
    """Extracts the hosts that a configuration names, by v4's rule: text under the keys ``host``,
    ``hostname``, ``server`` and ``address``, and the authority of a URL under a key that contains
    ``url``; any case, any depth; without ports."""

    def hosts_of(key: str, text: str) -> Iterable[str]:
        if key in _HOST_KEYS:
            return (text,)
        named = "url" in key and not key.endswith(_ITEM)
        authority = _AUTHORITY.match(text) if named else None
        return () if authority is None else (authority[1].rpartition("@")[2],)

    return _collected(config, hosts_of)


def named_in(config: Any) -> tuple[str, ...]:
    """Extracts the hosts that a configuration seems to name: those of :func:`hosts_in`, and text
    under any key that contains such a word, several hosts in one text, a libpq string. This alone
    does not allow such a host."""

    def hosts_of(key: str, text: str) -> Iterable[str]:
        if not any(word in key for word in _NAMING_KEYS):
            return ()
        authority = _AUTHORITY.match(text)
        if authority is not None:
            return authority[1].rpartition("@")[2].split(",")
        return [*text.split(","), *_LIBPQ_HOST.findall(text)]

    return _collected(config, hosts_of)


def _common(a: Pattern, b: Pattern) -> Iterable[Pattern]:
    if None not in (a.port, b.port) and a.port != b.port:
        return
    port = a.port if b.port is None else b.port
    if covers(a.host, b.host):
        yield Pattern(b.host, port)
    elif covers(b.host, a.host):
        yield Pattern(a.host, port)


def _least(patterns: set[Pattern]) -> tuple[str, ...]:
    """Returns the patterns as sorted text, without those that another one covers."""

    def within(p: Pattern, q: Pattern) -> bool:
        return q != p and covers(q.host, p.host) and q.port in (None, p.port)

    return tuple(sorted(str(p) for p in patterns if not any(within(p, q) for q in patterns)))


def _collected(config: Any, hosts_of: Callable[[str, str], Iterable[str]]) -> tuple[str, ...]:
    hosts: set[str] = set()

    def collect(key: str, value: Any) -> None:
        if isinstance(value, dict):
            for name, inner in cast(dict[str, Any], value).items():
                collect(name.lower(), inner)
        elif isinstance(value, list):
            for item in cast(list[Any], value):
                collect(key + _ITEM if isinstance(item, str) else "", item)
        elif isinstance(value, str):
            hosts.update(h for text in hosts_of(key, value) if (h := _literal(text)))

    collect("", config)
    return tuple(sorted(hosts))


def _literal(text: str) -> str:
    """Returns the host in a configuration's text; empty for a wildcard, which allows nothing
    there."""
    pattern = pattern_of(text.strip())
    return pattern.host if pattern is not None and pattern.exact else ""
