"""Parses hosts and host patterns strictly, and classifies addresses as public, private or special.

A host is a name of RFC 1123 labels in ASCII (an international one in its IDNA form; underscores are
allowed, since container networks use them), four decimal numbers, or an IPv6 address without a
zone. Everything else is refused: a resolver may read ``127.1``, ``0x7f000001`` or a name that
contains a NUL as a different host than a pattern does. Also here: which hosts a list allows, and at
which addresses (v4 connects to any address that a name resolves to). Pure. Neighbours:
``config.converters`` (the pipeline's patterns), ``protocols.rapidbyte.declared.host_patterns`` (a
connector's)."""

import ipaddress
import re
from collections.abc import Iterable
from enum import StrEnum
from typing import NamedTuple

import msgspec

ANY = "*"
_BELOW = "*."
_LABEL = re.compile(r"[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?")
_NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*")
_PORT = re.compile(r"[0-9]{1,5}")
_LONGEST_NAME = 253

Address = ipaddress.IPv4Address | ipaddress.IPv6Address


class AddressClass(StrEnum):
    """The class of an address. ``special``: an address that no pipeline reads from: link-local
    (clouds serve a machine's credentials there), multicast, unspecified and reserved ones."""

    public = "public"
    private = "private"
    special = "special"


class Pattern(NamedTuple):
    """A host pattern. ``host``: a host, ``*``, or ``*.domain`` (any depth below the domain, not the
    domain itself). ``port`` None: every port."""

    host: str
    port: int | None = None

    @property
    def exact(self) -> bool:
        return not self.host.startswith(ANY)

    @property
    def names_hosts(self) -> bool:
        """Returns whether a pipeline with this pattern names its hosts: a single host, or those
        below a domain. ``*`` names none: it matches every host of every network."""
        return self.host != ANY

    def __str__(self) -> str:
        if self.port is None:
            return self.host
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def host_of(text: str) -> str | None:
    """Returns the canonical spelling of a host: lower case, no brackets, an address in its
    canonical form, no final dot. None if ``text`` is not a host."""
    if text.startswith("[") and text.endswith("]"):
        inner = _address(text[1:-1])
        return str(inner) if isinstance(inner, ipaddress.IPv6Address) else None
    address = _address(text)
    return _name(text) if address is None else str(address)


def address_of(host: str) -> Address | None:
    """Returns the address that ``host`` is; None for a name."""
    return _address(host)


def pattern_of(text: str) -> Pattern | None:
    """Parses ``HOST``, ``*.DOMAIN`` or ``*``, optionally with ``:PORT`` (``[::1]:5432``); None for
    any other ``text``."""
    host, port = text, None
    if text.startswith("[") or text.count(":") == 1:
        head, colon, tail = text.rpartition(":")
        if colon and not tail.endswith("]"):
            host = head
            if not _PORT.fullmatch(tail) or not 0 < int(tail) < 65536:
                return None
            port = int(tail)
    if host == ANY:
        return Pattern(ANY, port)
    below = host.startswith(_BELOW)
    found = _name(host[2:]) if below else host_of(host)
    if found is None:
        return None
    return Pattern(f"{_BELOW}{found}" if below else found, port)


def covers(pattern: str, other: str) -> bool:
    """Returns whether ``pattern`` matches every host that ``other`` (a host or a pattern)
    matches."""
    if pattern in (ANY, other):
        return True
    if not pattern.startswith(_BELOW) or other == ANY:
        return False
    return other.removeprefix(ANY).endswith(pattern[1:]) and other != pattern[2:]


def lies(address: Address) -> AddressClass:
    """Classifies an address; one that embeds an IPv4 address (mapped, NAT64, 6to4) as that address.
    Loopback counts as private."""
    inner = address if isinstance(address, ipaddress.IPv4Address) else _carried(address)
    if inner is not None:
        return _lies4(inner)
    assert isinstance(address, ipaddress.IPv6Address)
    if address in _METADATA:
        return AddressClass.special
    if address.is_loopback or address in _UNIQUE_LOCAL or address.is_site_local:
        return AddressClass.private
    usual = address in _GLOBAL_UNICAST and address.is_global
    return AddressClass.public if usual else AddressClass.special


class ReachableHosts(msgspec.Struct, frozen=True, kw_only=True):
    """The hosts that a connector may reach. ``hosts``: the patterns of all of them. ``named``:
    those that the pipeline names, in full or by their domain (``*.corp``), which may be in a
    private network. ``private``: all of ``hosts`` may."""

    hosts: tuple[str, ...] = ()
    named: tuple[str, ...] = ()
    private: bool = False

    def refusal(self, host: str, port: int, address: Address) -> str | None:
        """Returns why an allowed host must not be reached at ``address``, one of its own; None: it
        may. A ``special`` address (link-local, metadata service) must itself be in ``named``."""
        kind = lies(address)
        if kind is AddressClass.public or allows(self.named, str(address), port):
            return None
        if kind is AddressClass.private and (self.private or allows(self.named, host, port)):
            return None
        at = "is" if address_of(host) == address else f"is at {address},"
        if kind is AddressClass.special:
            return (
                f"Host '{host}' {at} a link-local, metadata or reserved address, which only a "
                f"pipeline can allow: write {address} into permissions.network.allowed_hosts"
            )
        return (
            f"Host '{host}' {at} a private address, and the pipeline does not name that host: "
            f"write {host} into permissions.network.allowed_hosts"
        )


def allows(patterns: Iterable[str], host: str, port: int | None = None) -> bool:
    """Returns whether a pattern covers the host, as ``model.hosts.host_of`` writes it, at this
    port."""
    return any(
        covers(p.host, host) and p.port in (None, port)
        for p in parsed(patterns)
    )  # fmt: skip


def parsed(patterns: Iterable[str]) -> list[Pattern]:
    """Parses patterns; skips other text, since it allows nothing."""
    found = (pattern_of(text.strip()) for text in patterns)
    return [pattern for pattern in found if pattern is not None]


_UNIQUE_LOCAL = ipaddress.IPv6Network("fc00::/7")
_GLOBAL_UNICAST = ipaddress.IPv6Network("2000::/3")
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")
"""Not 64:ff9b:1::/48: each network lays it out in its own way, so that the IPv4 address is unknown
and the address counts as ``special``."""
_ASSIGNED4 = ipaddress.IPv4Network("192.0.0.0/24")  # IETF protocols; global to older Pythons
_COMPATIBLE = ipaddress.IPv6Network("::/96")
_PRIVATE4 = tuple(
    ipaddress.IPv4Network(n)
    for n in ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10", "127.0.0.0/8")
)
_METADATA: frozenset[Address] = frozenset(
    {
        ipaddress.IPv6Address("fd00:ec2::254"),  # Amazon
        ipaddress.IPv6Address("fd20:ce::254"),  # Google
        ipaddress.IPv4Address("100.100.100.200"),  # Alibaba
        ipaddress.IPv4Address("168.63.129.16"),  # Azure, a public address within
    }
)


def _lies4(address: ipaddress.IPv4Address) -> AddressClass:
    if address in _METADATA or address in _ASSIGNED4:
        return AddressClass.special
    if any(address in network for network in _PRIVATE4):
        return AddressClass.private
    usual = address.is_global and not (address.is_multicast or address.is_reserved)
    return AddressClass.public if usual else AddressClass.special


def _carried(address: ipaddress.IPv6Address) -> ipaddress.IPv4Address | None:
    if address.ipv4_mapped is not None:
        return address.ipv4_mapped
    if address in _NAT64:
        return ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    if address in _COMPATIBLE and int(address) > 0xFFFF:
        return ipaddress.IPv4Address(int(address))
    return address.sixtofour


def _address(text: str) -> Address | None:
    """Returns the address in ``text``; None for IPv6 with a zone and for IPv4 with a leading zero,
    which ``ipaddress`` refuses."""
    if "%" in text:
        return None
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        return None


def _name(text: str) -> str | None:
    name = text.lower().removesuffix(".") if text.isascii() else ""
    labels = name.split(".")
    if len(name) > _LONGEST_NAME or not all(map(_LABEL.fullmatch, labels)):
        return None
    # Some resolvers read a name that ends in a number as an address (127.1, 0x7f.1).
    return None if _NUMBER.fullmatch(labels[-1]) else name
