"""Starts the process of a JVM with a Py4J gateway for PySpark, and reads the gateway's address.

The JVM's output goes to a file, not to the user's terminal. It has its own process group, so that
Ctrl-C reaches the run alone. Its stdin is a pipe of the owner's: Spark's gateway exits when that
pipe ends, so the JVM dies with its owner, even if the owner is SIGKILLed (L11). Imports the
standard library only, because the keeper of a warm JVM does too. Not here: the owners (``jvm`` for
a run, ``keeper``), the command line (``java_command``)."""

import os
import struct
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from penstock.files import PRIVATE, private


class Address(NamedTuple):
    """Holds the port of a gateway on this machine, and the secret that clients must present."""

    port: int
    secret: str


def spawn(
    command: Sequence[str], environ: Mapping[str, str], folder: Path, log: Path
) -> "subprocess.Popen[bytes]":
    """Starts a JVM in ``folder``; ``log`` takes its output. Raises ``OSError``."""
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
    """Reads the address that the gateway writes to the file ``answer`` once it is ready, and
    removes the file; None before that."""
    try:
        raw = answer.read_bytes()
    except FileNotFoundError:
        return None
    answer.unlink(missing_ok=True)
    port, length = struct.unpack(">ii", raw[:8])
    return Address(port, raw[8 : 8 + length].decode())
