"""Reads the progress of a running run, in any process, from what its lanes wrote to the home.

Read only. Neighbours: ``engine.channel.mailbox`` has the files, ``engine.inspect.runs`` what ended
runs left. Not here: the progress of this process's own run (``engine.specs.observer``).
"""

import re
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from penstock.config.home import Home
from penstock.config.pipeline import Pipeline
from penstock.engine.channel.mailbox import Mailbox
from penstock.model.catalog import StreamId

_PROGRESS = re.compile(r"progress-(\d+)\.json")


def progress(home: Home, what: Pipeline | str, run: str) -> dict[str, Any] | None:
    """Returns ``{"streams": [{"namespace", "name", "read", "bytes", "states", "expected_rows"}],
    "states", "phase", "time"}`` of a running run; None: this machine sees no report of any of its
    lanes. ``phase``: what it does now. ``time``: seconds as in a report, with the lanes' and the
    loads' together as ``extract``."""
    name, settings = (what, None) if isinstance(what, str) else (what.pipeline, what.log)
    root = home.log(name, settings)
    if "://" in root:
        return None
    box = Mailbox(Path(root), run)
    streams: dict[StreamId, dict[str, Any]] = {}
    states, seen = 0, False
    for epoch in _epochs(box.folder):
        with suppress(msgspec.DecodeError):
            found = box.progress(epoch)
            if found is None:
                continue
            seen = True
            states += found.states
            for key, rows, size, expected in found.streams:
                stream = StreamId(*msgspec.json.decode(key, type=tuple[str | None, str]))
                entry = streams.setdefault(stream, _entry(stream))
                entry["read"] += rows
                entry["bytes"] += size
                entry["expected_rows"] = expected or entry["expected_rows"]
            for key, count in found.stream_states:
                stream = StreamId(*msgspec.json.decode(key, type=tuple[str | None, str]))
                streams.setdefault(stream, _entry(stream))["states"] += count
    if not seen:
        return None
    phase, spent = _activity(box)
    return {"streams": [*streams.values()], "states": states, "phase": phase, "time": spent}


def _activity(box: Mailbox) -> tuple[str | None, dict[str, float]]:
    found = None
    with suppress(msgspec.DecodeError):
        found = box.activity()
    if found is None:
        return None, {}
    rest = time.time() - found.began - sum(found.spent.values())
    return found.phase, {**found.spent, "extract": max(rest, 0.0)}


def _entry(stream: StreamId) -> dict[str, Any]:
    return {
        "namespace": stream.namespace,
        "name": stream.name,
        "read": 0,
        "bytes": 0,
        "states": 0,
        "expected_rows": None,
    }


def _epochs(folder: Path) -> list[int]:
    try:
        names = [path.name for path in folder.iterdir()]
    except OSError:
        return []
    return sorted(int(m[1]) for name in names if (m := _PROGRESS.fullmatch(name)))
