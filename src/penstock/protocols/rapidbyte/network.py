"""Which hosts a connector may reach: names, addresses, ``*.domain`` patterns, and those that its
own configuration names.

Pure functions over text; nothing is resolved or connected here (``sockets``). Source: the protocol,
section 8, and v4's forms of a host.
"""

import ipaddress
import re
from collections.abc import Iterable
from typing import Any, cast

ANY = "*"
_HOST_KEYS = frozenset({"host", "hostname", "server", "address"})
_AUTHORITY = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://([^/?#]*)")
_PORT = re.compile(r"([^:]*):[0-9]+")


def normalized(host: str) -> str:
    """One spelling per host: no port, no brackets, lower case, addresses in their canonical form,
    no final dot."""
    text = host.strip()
    if text.startswith("[") and "]" in text:
        text = text[1 : text.index("]")]
    try:
        return str(ipaddress.ip_address(text))
    except ValueError:
        pass
    with_port = _PORT.fullmatch(text)
    if with_port is not None:
        text = with_port[1]
    text = text.lower()
    try:
        return str(ipaddress.ip_address(text))
    except ValueError:
        return text.removesuffix(".")


def allows(patterns: Iterable[str], host: str) -> bool:
    """Whether a host may be reached. ``*``: any; ``*.d``: any depth below ``d``, not ``d``."""
    wanted = normalized(host)
    return bool(wanted) and any(_covers(pattern, wanted) for pattern in patterns)


def intersection(left: Iterable[str], right: Iterable[str]) -> tuple[str, ...]:
    """The patterns of exactly the hosts that both allow, sorted."""
    ours, theirs = set(map(_pattern, left)), set(map(_pattern, right))
    both = {a for a in ours for b in theirs if _covers(b, a)}
    both |= {b for b in theirs for a in ours if _covers(a, b)}
    return _least(both)


def union(*lists: Iterable[str]) -> tuple[str, ...]:
    return _least({_pattern(pattern) for patterns in lists for pattern in patterns})


def hosts_in(config: Any) -> tuple[str, ...]:
    """Hosts that a configuration names: text under the keys ``host``, ``hostname``, ``server`` and
    ``address``, and the authority of a URL under a key that contains ``url``; any case, any
    depth."""
    found: set[str] = set()
    _collect(config, found)
    found.discard("")
    return tuple(sorted(found))


def _pattern(pattern: str) -> str:
    text = pattern.strip().lower()
    return text if text == ANY or text.startswith("*.") else normalized(text)


def _covers(pattern: str, other: str) -> bool:
    """Whether every host that ``other`` (a host or a pattern) stands for matches ``pattern``."""
    pattern = _pattern(pattern)
    if pattern in (ANY, other):
        return True
    if not pattern.startswith("*.") or other == ANY:
        return False
    return other.removeprefix("*").endswith(pattern[1:]) and other != pattern[2:]


def _least(patterns: set[str]) -> tuple[str, ...]:
    """Without those that another one covers."""
    return tuple(
        sorted(p for p in patterns if p and not any(q != p and _covers(q, p) for q in patterns))
    )


def _collect(value: Any, found: set[str]) -> None:
    if isinstance(value, list):
        for item in cast(list[Any], value):
            _collect(item, found)
    if not isinstance(value, dict):
        return
    for key, inner in cast(dict[str, Any], value).items():
        if not isinstance(inner, str):
            _collect(inner, found)
        elif key.lower() in _HOST_KEYS:
            found.add(_literal(inner))
        elif "url" in key.lower():
            authority = _AUTHORITY.match(inner)
            if authority is not None:
                found.add(_literal(authority[1].rpartition("@")[2]))


def _literal(host: str) -> str:
    """A configured host is a host: a ``*`` in it opens nothing."""
    text = normalized(host)
    return "" if "*" in text else text
