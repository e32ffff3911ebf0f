"""What stands for a transform that is a connector: the in-memory twin of its protocol."""

from collections.abc import Callable, Iterator
from typing import Any

from penstock.connectors.launch import Launch
from penstock.protocols.connection import Connection
from penstock.protocols.memory import MemoryProtocol, PlayedConnector
from penstock.protocols.transforming import Given, TransformRequest
from penstock.runtimes.contract import ConnectionStats
from penstock.runtimes.masking import Masker
from penstock.store.keys import OpenKeys

Apply = Callable[[TransformRequest, Iterator[Any], OpenKeys], Iterator[Given]]
Connect = Callable[[Launch], Connection]


def playing(apply: Apply, keys: OpenKeys | None = None) -> Connect:
    protocol = MemoryProtocol(PlayedConnector(apply=apply))
    return lambda launch: protocol.connect(launch, Masker(), ConnectionStats(), keys=keys)


def none(launch: Launch) -> Connection:
    raise AssertionError("no transform of these is a connector")
