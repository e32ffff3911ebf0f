"""Pipelines whose ends are the other stubs: a Singer tap as the source, a Singer target or an
Airbyte destination that writes down what it hears.

As in ``pipelines``, a stub's options stand in its command line.
"""

import json
import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pipelines import NAME, Ran, Row, Site

from penstock.engine.run.start import request_cancel
from penstock.protocols import load as load_protocol

STUBS = Path(__file__).parents[1] / "stubs"


def stub(script: str, *words: str) -> str:
    """The command of a stub."""
    return shlex.join([sys.executable, str(STUBS / script), *words])


class TapSite(Site):
    """A pipeline from the stub tap."""

    def connector(self, **options: Any) -> str:
        told = {"journal": str(self.journal_path), **self.stub, **options}
        return f"singer:{stub('stub_tap.py', '--with', json.dumps(told))}"

    def described(self) -> dict[str, Any]:
        with self.store() as store:
            return load_protocol("singer").state.describe(store.states(NAME))

    def bookmarks(self) -> dict[str, int]:
        """stream -> its bookmark in the saved state."""
        return {e["name"]: e["state"]["replication_key_value"] for e in self.described()["streams"]}

    def journal(self, command: str = "read") -> list[dict[str, Any]]:
        """The tap's calls: ``read``, ``discover`` or ``about``."""
        lines = self.journal_path.read_text().splitlines() if self.journal_path.exists() else []
        calls = [json.loads(line) for line in lines]
        return [c for c in calls if _command(c) == command]


def _command(call: dict[str, Any]) -> str:
    return next((word for word in ("about", "discover") if call.get(word)), "read")


class Sunk:
    """One run of a destination stub, as its sink tells it."""

    def __init__(self, head: dict[str, Any], lines: list[dict[str, Any]]) -> None:
        self.head, self.lines = head, lines

    @property
    def catalog(self) -> dict[str, dict[str, Any]]:
        """The streams of an Airbyte destination's catalog by name."""
        return {s["stream"]["name"]: s for s in self.head["catalog"]["streams"]}

    def records(self, stream: str) -> list[Row]:
        found: list[Row] = []
        for line in self.lines:
            if line["type"] != "RECORD":
                continue
            record = line["record"] if "stream" not in line else line
            if record["stream"] == stream:
                found.append(record["data"] if "data" in record else record["record"])
        return found

    def seqs(self, stream: str) -> list[int]:
        return [row["seq"] for row in self.records(stream)]

    def states(self) -> list[dict[str, Any]]:
        """Airbyte's state objects, or Singer's values."""
        return [line.get("state", line.get("value")) for line in self.lines_of("STATE")]

    def lines_of(self, kind: str) -> list[dict[str, Any]]:
        return [line for line in self.lines if line["type"] == kind]

    def statuses(self) -> dict[str, str]:
        found: dict[str, str] = {}
        for line in self.lines_of("TRACE"):
            said = line["trace"]["stream_status"]
            found[said["stream_descriptor"]["name"]] = said["status"]
        return found


class Push:
    """A site whose destination is a stub. ``kind``: ``airbyte`` or ``singer``."""

    def __init__(self, site: Site, kind: str) -> None:
        self.site, self.kind = site, kind
        self.sink = site.folder / "sink.jsonl"

    def destination(self, **options: Any) -> str:
        if self.kind == "airbyte":
            told = {"sink": str(self.sink), **options}
            return f"airbyte:{stub('stub_destination.py', '--with', json.dumps(told))}"
        told = {"save": str(self.sink), **options}
        return f"singer:{stub('stub_target.py', json.dumps(told))}"

    def run(
        self,
        source: dict[str, Any] | None = None,
        *,
        told: dict[str, Any] | None = None,
        config: dict[str, Any] | None = None,
        destination: dict[str, Any] | None = None,
        **parts: Any,
    ) -> Ran:
        """``told``: options of the destination's stub; ``config``: its own; ``destination``:
        further keys of the pipeline's section."""
        section = {
            "use": self.destination(**(told or {})),
            "config": config or {},
            **(destination or {}),
        }
        return self.site.run(source, destination=section, **parts)

    def runs(self) -> list[Sunk]:
        """What each run of the destination heard."""
        found: list[Sunk] = []
        for line in self.lines():
            if "run" in line:
                found.append(Sunk(line["run"], []))
            else:
                if not found:
                    found.append(Sunk({}, []))
                found[-1].lines.append(line)
        return found

    def lines(self) -> list[dict[str, Any]]:
        """Every line that it heard; one that it died over is left out."""
        text = self.sink.read_text() if self.sink.exists() else ""
        return [json.loads(line) for line in text.split("\n")[:-1] if line]

    def all(self) -> Sunk:
        return Sunk({}, [line for line in self.lines() if "run" not in line])


@contextmanager
def cancelled_when(ready: Path) -> Iterator[None]:
    """The run inside is told to stop, as by Ctrl-C, once the file is there."""
    import threading
    import time

    over = threading.Event()

    def watch() -> None:
        deadline = time.monotonic() + 120
        while not over.is_set() and time.monotonic() < deadline:
            if ready.exists():
                request_cancel()
                return
            time.sleep(0.05)

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join(10)
