"""A v4 source in Python, made a component by componentize-py: honest, and hostile by ``mode``."""

import json
import os
import sys

import ipc_writer
from componentize_py_types import Err
from wit_world import exports
from wit_world.imports import host, types

CONFIG = {}


def _fault(code, message, category):
    return Err(
        types.ConnectorError(
            category=category,
            scope=types.ErrorScope.PER_STREAM,
            code=code,
            message=message,
            retryable=False,
            retry_after_ms=None,
            backoff_class=types.BackoffClass.NORMAL,
            safe_to_retry=False,
            commit_state=None,
            details_json=None,
        )
    )


def _summary(records, size, batches):
    return types.RunSummary(
        role=types.ConnectorRole.SOURCE,
        read=types.ReadSummary(
            records_read=records,
            bytes_read=size,
            batches_emitted=batches,
            checkpoint_count=0,
            records_skipped=0,
        ),
        write=None,
        transform=None,
    )


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
            raise _fault("BAD_JSON", "as asked", types.ErrorCategory.CONFIG)
        return 1

    def discover(self, session):
        return json.dumps({"streams": []})

    def validate(self, session):
        status = types.ValidationStatus.SUCCESS
        return types.ValidationReport(status=status, message="ok", warnings=[])

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
            host.log(2, json.dumps(seen))
            return _summary(0, 0, 0)
        if mode == "print":
            for _ in range(CONFIG["n"]):
                print("x" * 1000)
                print("y" * 1000, file=sys.stderr)
            return _summary(0, 0, 0)
        if mode == "hog":
            hoard = []
            while True:
                hoard.append(bytearray(1 << 20))
        if mode == "exit":
            print("my last words", file=sys.stderr, flush=True)
            os._exit(3)
        return self._rows(CONFIG.get("frames", 1), CONFIG.get("rows", 1000))

    def _rows(self, frames, rows):
        size = 0
        for k in range(frames):
            ids = range(k * rows, (k + 1) * rows)
            data = ipc_writer.encode(
                [
                    ("id", "int64", list(ids)),
                    ("name", "utf8", [None if i % 10 == 3 else f"n{i}" for i in ids]),
                    ("value", "double", [i * 0.5 for i in ids]),
                    ("ok", "bool", [i % 2 == 0 for i in ids]),
                ]
            )
            frame = host.frame_new(len(data))
            host.frame_write(frame, data)
            host.frame_seal(frame)
            host.emit_batch(frame)
            size += len(data)
        return _summary(rows * frames, size, frames)
