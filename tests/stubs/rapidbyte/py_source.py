"""A v4 source in Python, made a component by componentize-py: honest, and hostile by ``mode``."""

import json
import os
import sys
import time

from rapidbyte_guest import host
from rapidbyte_guest.arrow import Column
from rapidbyte_guest.faults import fault
from wit_world import exports

CONFIG = {}


def _look(path):
    try:
        with open(path) as f:
            return f.read(20)
    except OSError as e:
        return type(e).__name__


class Source(exports.Source):
    def open(self, config_json):
        CONFIG.update(json.loads(config_json))
        if CONFIG.get("mode") == "open-err":
            raise fault("config", "BAD_JSON", "as asked")
        if CONFIG.get("mode") == "open-sleep":
            time.sleep(CONFIG["seconds"])
        return 1

    def discover(self, session):
        return json.dumps({"streams": CONFIG.get("streams", [])})

    def validate(self, session):
        return host.success("ok")

    def close(self, session):
        pass

    def run(self, session, request):
        mode = CONFIG.get("mode")
        if mode == "look":
            seen = {
                "env": dict(os.environ),
                "argv": sys.argv[1:],
                "files": {path: _look(path) for path in CONFIG["paths"]},
                "stdin": sys.stdin.read(10) if sys.stdin else None,
            }
            host.log(host.INFO, json.dumps(seen))
            return host.read_summary(0, 0, 0, 0)
        if mode == "print":
            for _ in range(CONFIG["n"]):
                print("x" * 1000)
                print("y" * 1000, file=sys.stderr)
            return host.read_summary(0, 0, 0, 0)
        if mode == "sleep":
            time.sleep(CONFIG["seconds"])
        if mode == "hog":
            hoard = []
            while True:
                hoard.append(bytearray(1 << 20))
        if mode == "raise":
            raise LookupError("no such table")
        if mode == "exit":
            print("a line before", file=sys.stderr, flush=True)
            print("my last words", file=sys.stderr, flush=True)
            os._exit(3)
        return self._rows(CONFIG.get("frames", 1), CONFIG.get("rows", 1000))

    def _rows(self, frames, rows):
        size = 0
        for k in range(frames):
            ids = range(k * rows, (k + 1) * rows)
            size += host.emit(
                [
                    Column("id", "int64", list(ids)),
                    Column("name", "utf8", [None if i % 10 == 3 else f"n{i}" for i in ids]),
                    Column("value", "float64", [i * 0.5 for i in ids]),
                    Column("ok", "bool", [i % 2 == 0 for i in ids]),
                ]
            )
        return host.read_summary(rows * frames, size, frames, 0)
