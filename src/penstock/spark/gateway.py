"""Starts the process of a JVM whose gateway PySpark talks to, and reads the gateway's answer.

The JVM's output goes to a file (a user sees nothing of it); it has a process group of its own
(Ctrl-C reaches a run alone) and a pipe of its owner's as its stdin: Spark's gateway exits when that
pipe ends, so the JVM dies with its owner, even when that is SIGKILLed. Standard library only, for
the keeper of a warm JVM imports it. Neighbours: ``jvm`` (a run is the owner), ``keeper``.
"""

import os
import struct
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from penstock.files import PRIVATE, private


class Address(NamedTuple):
    """Where a gateway listens on this machine, and what it wants to be told."""

    port: int
    secret: str


def spawn(
    command: Sequence[str], environ: Mapping[str, str], folder: Path, log: Path
) -> "subprocess.Popen[bytes]":
    """Start it in ``folder``. Raises ``OSError``."""
    with private(log, "ab") as output:
        os.fchmod(output.fileno(), PRIVATE)  # whatever the mode of one that was there
        return subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=environ,
            cwd=folder,
            process_group=0,
        )


def address(answer: Path) -> Address | None:
    """What the gateway wrote once it was ready; None before that. The file is removed."""
    try:
        raw = answer.read_bytes()
    except FileNotFoundError:
        return None
    answer.unlink(missing_ok=True)
    port, length = struct.unpack(">ii", raw[:8])
    return Address(port, raw[8 : 8 + length].decode())
