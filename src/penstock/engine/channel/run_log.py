"""A run's log: one JSON-lines file, `runs/RUN/log.jsonl`, mode 0600.

What lanes wrote into the mailbox is tailed into it; what the driver has to say is written here.
Lines are masked where they are born (``engine.channel.connector_log``); the driver's own go through
the same masker. Neighbour: ``engine.run`` polls it while a sync runs.
"""

from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

import msgspec

from penstock.engine.channel.connector_log import EventLog, LogLine
from penstock.engine.specs.observer import RunObserver
from penstock.runtimes.masking import Masker

BLOCK_BYTES = 1 << 20


class RunLog:
    def __init__(self, path: Path, observer: RunObserver, masker: Masker) -> None:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.path = path
        self._own = EventLog(path, masker)
        self._observer = observer
        self._tails: dict[Path, tuple[int, bytes]] = {}

    def follow(self, path: Path) -> None:
        self._tails.setdefault(path, (0, b""))

    def poll(self) -> None:
        """Take over what is new in the lanes' files."""
        for path, at in self._tails.items():
            with suppress(FileNotFoundError), path.open("rb") as file:
                self._tails[path] = self._take(file, *at)
        self._own.flush()

    def _take(self, file: BinaryIO, offset: int, rest: bytes) -> tuple[int, bytes]:
        """Block by block: a connector may say more in a second than memory should hold."""
        file.seek(offset)
        while block := file.read(BLOCK_BYTES):
            offset += len(block)
            *lines, rest = (rest + block).split(b"\n")
            for line in lines:
                try:
                    said = msgspec.json.decode(line, type=LogLine)
                except msgspec.DecodeError:
                    continue  # cut off by a full disk; the lane counts it as lost
                self._own.take(line)
                self._observer.log(said.level, said.origin, said.message)
        return offset, rest

    def write(self, level: str, message: str) -> None:
        self._own.log(level, message, "penstock")
        self._own.flush()

    def close(self) -> None:
        self.poll()
        self._own.close()
