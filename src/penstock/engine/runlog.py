"""A run's log: one JSON-lines file, `runs/RUN/log.jsonl`, mode 0600.

What lanes wrote into the mailbox is tailed into it; what the driver has to say is written here.
Lines are masked where they are born (``engine.events_log``); the driver's own go through the same
masker. Neighbour: ``engine.run`` polls it while a sync runs.
"""

from pathlib import Path

import msgspec

from penstock.engine.events_log import EventLog, LogLine
from penstock.engine.progress import RunObserver
from penstock.runtimes.masking import Masker


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
        for path, (offset, rest) in list(self._tails.items()):
            try:
                with path.open("rb") as f:
                    f.seek(offset)
                    block = f.read()
            except FileNotFoundError:
                continue
            *lines, rest = (rest + block).split(b"\n")
            self._tails[path] = (offset + len(block), rest)
            for line in lines:
                try:
                    said = msgspec.json.decode(line, type=LogLine)
                except msgspec.DecodeError:
                    continue  # cut off by a full disk; the lane counts it as lost
                self._own.take(line)
                self._observer.log(said.level, said.origin, said.message)
        self._own.flush()

    def write(self, level: str, message: str) -> None:
        self._own.log(level, message, "penstock")
        self._own.flush()

    def close(self) -> None:
        self.poll()
        self._own.close()
