"""Finds the address by which containers of one network reach a server of this machine.

A container cannot reach a server on loopback: its ``localhost`` is its own. It can reach the
gateway of its bridge, which is an address of this machine and of no other network of its own. Not
here: the server (``protocols.syncmaven.state_rpc``).
"""

import fcntl
import json
import os
import socket
import struct
from typing import Any, cast

from penstock.runtimes.container.engine import Engine

_BRIDGE = "com.docker.network.bridge.name"
_SIOCGIFADDR = 0x8915  # of Linux, where alone an engine's bridges are this machine's
_LONGEST_NAME = 15
_LOOPBACK = "127.0.0.1"
_OWN = {"docker": "bridge", "podman": "podman"}  # the default network of a container


def host_address(engine: Engine, network: str | None) -> str | None:
    """Returns the address to listen on, which is also the one to connect to. ``network``: the one
    that the user names. Returns None where no address works: a rootless engine, or one in a virtual
    machine, has its bridges elsewhere, and other kinds of networks have no gateway here. Raises
    ``ConnectorError`` (``connector.engine``) where the engine does not answer."""
    if engine.own_user_is_root or not engine.shares_pipes:
        return None
    if network == "host":
        return _LOOPBACK
    asked = engine.call(["network", "inspect", network or _OWN[engine.kind]])
    if asked.returncode:
        return None
    found = cast("list[dict[str, Any]]", json.loads(asked.stdout))[0]
    if (found.get("Driver") or found.get("driver")) != "bridge":
        return None
    docker = cast("list[dict[str, str]]", (found.get("IPAM") or {}).get("Config") or [])
    podman = cast("list[dict[str, str]]", found.get("subnets") or [])
    gateways = [n.get("Gateway") for n in docker] + [n.get("gateway") for n in podman]
    options = cast("dict[str, str]", found.get("Options") or {})
    # A Docker that has just made its own bridge lists no gateway until it restarts.
    gateways.append(_address_of(options.get(_BRIDGE)))
    return next((g for g in gateways if g and "." in g), None)


def _address_of(interface: str | None) -> str | None:
    """Returns the IPv4 address of an interface of this machine; None: it has none."""
    if not interface or len(interface) > _LONGEST_NAME:
        return None
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        try:
            answer = fcntl.ioctl(
                any_socket, _SIOCGIFADDR, struct.pack("256s", os.fsencode(interface))
            )
        except OSError:
            return None
    return socket.inet_ntoa(answer[20:24])
