"""A v4 source in Python that says something on stderr and goes: by an exception, or by its exit."""

import json
import os
import sys

from rapidbyte_guest import host
from wit_world import exports

CONFIG = {}


class Source(exports.Source):
    def open(self, config_json):
        CONFIG.update(json.loads(config_json))
        return 1

    def discover(self, session):
        column = {"name": "id", "data_type": "Int64", "nullable": False}
        stream = {"name": "words", "schema": [column], "supported_sync_modes": ["full_refresh"]}
        return json.dumps({"streams": [stream]})

    def validate(self, session):
        return host.success("ok")

    def close(self, session):
        pass

    def run(self, session, request):
        print("a line before", file=sys.stderr, flush=True)
        if CONFIG.get("how") == "raise":
            raise LookupError("no such table")
        print("my last words", file=sys.stderr, flush=True)
        os._exit(3)
