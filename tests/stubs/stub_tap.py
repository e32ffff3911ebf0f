#!/usr/bin/env python3
"""A scriptable Singer tap: one file beside ``stub_source.py``, whose records, faults and steps it
shares, for everything that no real tap emits on demand. Not a mock: it is a process.

    stub_tap.py [--with JSON] --about --format json
    stub_tap.py [--with JSON] --config F --discover
    stub_tap.py [--with JSON] --config F [--catalog F | --properties F] [--state F]

``--with`` gives options; the config's own keys win over it, both win over the scenario's presets.

SCENARIOS (``{"scenario": NAME}``; each is only a preset of the options below)
    basic               2 streams (s0, s1) of 100 records, a STATE every 25
    versioned           version on every record, ACTIVATE_VERSION after each stream; versioned_both:
                        before it too, as PipelineWise's taps do
    two_names           messages are called by ``stream``, which differs from ``tap_stream_id``
    same_names          two streams whose messages bear one name
    batch, batch_plain, batch_parquet  BATCH files in ``batch_folder``; batch_missing: one is gone
    schemaless          no SCHEMA before the records
    changed_schema       s0's SCHEMA gets a column half way
    schema_repeated     the same SCHEMA before every 10th record
    schema_broken       a SCHEMA whose schema is a text
    lower               message types in lower case
    write_back          the tap rotates ``refresh_token`` in its config file mid-way
    late_crash          CRITICAL on stderr and exit 1 after 60 records
    hang                sleeps for ever after 30 records; hang_stubborn: ignores SIGTERM as well
    drains              on SIGTERM sends what it has, and exits 0, as the Singer SDK's taps do
    half_line, nan, noise, big_line, trailing, stateless, null_records, deletes, empty, file, leak
    no_discovery        does not know --discover, --catalog, --about; open_stream: ignores them all
    properties          knows --properties only; neither: no option for a catalog
    unselective         without a catalog: nothing, and exit 0

OPTIONS, beside those of ``stub_source.py`` that make sense here (streams, records, state_every,
trailing, interleave, key_space, pad, delay, schema, remove, crash_after, crash_code, hang_after,
hang, once, exit_code, journal, seed, big_bytes, delete_every, file, steps)
    knows               options of the command line that it knows
    metadata            by stream: words of its root metadata; fields: by stream and field
    extracted           false: records without time_extracted
    key_properties      absent with null; bookmark: a name for bookmark_properties
    version             of every record; activate "after" | "before" | "both"

STEPS: those of ``stub_source.py``, but for record, state and status, and
    {"schema": {...}} {"record": {...}} {"state": value} {"activate": {...}} {"batch": {...}}
    each a message without its type; {"records": {"stream", "from", "to"}} generated ones;
    {"schema": "s0"} the generated SCHEMA of a stream
"""

import argparse
import contextlib
import json
import os
import signal
import sys
import time

from stub_source import DEFAULTS, EPOCH_MS, Out, Reader, cat, load_json, record_data

KNOWS = ["about", "discover", "catalog", "state"]
SCENARIOS = {
    "basic": {},
    "versioned": {"version": 7, "activate": "after"},
    "versioned_both": {"version": 7, "activate": "both"},
    "two_names": {"stream_name": "table_{}"},
    "same_names": {"stream_name": "table"},
    "batch": {"batch": "gzip"},
    "batch_plain": {"batch": "none"},
    "batch_parquet": {"batch": "parquet"},
    "batch_missing": {"batch": "gzip", "batch_missing": True},
    "schemaless": {"schemaless": True},
    "changed_schema": {"changed_schema": True},
    "schema_repeated": {"schema_repeated": True},
    "schema_broken": {"schema_broken": True},
    "lower": {"lower": True},
    "write_back": {"write_back": True},
    "late_crash": {"crash_after": 60, "crash_trace": True},
    "hang": {"hang_after": 30, "hang": "sleep"},
    "hang_stubborn": {"hang_after": 30, "hang": "stubborn"},
    "drains": {"drains": True, "delay": 0.05},
    "half_line": {"half_line": True},
    "nan": {"special": "nan"},
    "noise": {"noise": True},
    "big_line": {"streams": 1, "big_bytes": 50_000_000},
    "trailing": {"trailing": 10},
    "stateless": {"state_every": None},
    "null_records": {"null_every": 10},
    "deletes": {"delete_every": 7, "cdc": True},
    "empty": {"records": 0},
    "leak": {"leak": True},
    "file": {},
    "no_discovery": {"knows": ["state"]},
    "open_stream": {"knows": ["about", "discover", "catalog", "state"], "deaf": True},
    "properties": {"knows": ["discover", "properties", "state"]},
    "neither": {"knows": ["discover", "state"]},
    "unselective": {"needs_catalog": True},
}


def time_text(seq):
    moment = EPOCH_MS // 1000 + seq
    return time.strftime("%Y-%m-%dT%H:%M:%S.", time.gmtime(moment)) + f"{seq % 1000:03d}Z"


def json_schema(opts):
    words = {
        "id": {"type": ["null", "integer"]},
        "seq": {"type": ["null", "integer"]},
        "name": {"type": ["null", "string"]},
        "amount": {"type": ["null", "integer"]},
        "active": {"type": ["null", "boolean"]},
        "updated_at": {"type": ["null", "string"], "format": "date-time"},
        "note": {"type": ["string", "null"]},
    }
    if opts["schema"] == 2:
        del words["note"]
        words["email"] = {"type": ["null", "string"]}
        words["amount"] = {"type": ["null", "number"]}
    if opts.get("cdc"):
        words["_sdc_deleted_at"] = {"type": ["null", "string"], "format": "date-time"}
    return {"type": "object", "properties": words}


def streams_of(opts):
    given = opts["streams"]
    given = [{"name": f"s{i}"} for i in range(given)] if isinstance(given, int) else given
    return [s for s in given if s["name"] not in opts.get("remove", [])]


def catalog_of(opts):
    entries = []
    for stream in streams_of(opts):
        name = stream["name"]
        fields = opts.get("fields", {}).get(name, {})
        schema = json_schema(opts)
        root = {
            "inclusion": "available",
            "table-key-properties": ["id"],
            "valid-replication-keys": ["seq"],
            "replication-key": "seq",
            **opts.get("metadata", {}).get(name, {}),
        }
        metadata = [{"breadcrumb": [], "metadata": root}]
        for field in schema["properties"]:
            words = {"inclusion": "automatic" if field in ("id", "seq") else "available"}
            breadcrumb = ["properties", field]
            metadata.append(
                {"breadcrumb": breadcrumb, "metadata": {**words, **fields.get(field, {})}}
            )
        entries.append(
            {
                "tap_stream_id": name,
                "stream": message_name(opts, name),
                "schema": schema,
                "metadata": metadata,
            }
        )
    return {"streams": entries}


def message_name(opts, name):
    return opts.get("stream_name", "{}").format(name)


class Tap(Reader):
    """The sync: streams x records with states between them, and the faults asked for."""

    def __init__(self, opts, config, config_path, catalog, state, out):
        self.opts, self.config, self.out = opts, config, out
        self.config_path = config_path
        self.emitted = 0
        self.fault_allowed = not (opts.get("once") and os.path.exists(opts["once"]))
        self.marks = dict((state or {}).get("bookmarks", {})) if state else {}
        self.selected = self._selected(catalog)
        self.stopping = False
        if opts.get("drains"):
            signal.signal(signal.SIGTERM, self._stop)

    def _stop(self, *_):
        self.stopping = True

    def _selected(self, catalog):
        """Name -> (replication method, selected fields or None); all of them without a catalog."""
        if catalog is None:
            names = [] if self.opts.get("needs_catalog") else streams_of(self.opts)
            return {s["name"]: ("INCREMENTAL", None) for s in names}
        found = {}
        for entry in catalog["streams"]:
            by = {tuple(m["breadcrumb"]): m["metadata"] for m in entry.get("metadata", [])}
            root = by.get((), {})
            if root.get("selected") is True:
                fields = {
                    c[1]
                    for c, m in by.items()
                    if len(c) == 2 and (m.get("selected") or m.get("inclusion") == "automatic")
                }
                method = root.get("replication-method", "FULL_TABLE")
                found[entry["tap_stream_id"]] = (method, fields)
        return found

    # -- messages
    def say(self, kind, **fields):
        kind = kind.lower() if self.opts.get("lower") else kind
        self.out.line(json.dumps({"type": kind, **fields}, ensure_ascii=False))

    def tell_schema(self, name, schema=None):
        fields = self.selected.get(name, ("", None))[1]
        schema = schema or json_schema(self.opts)
        if fields is not None:
            kept = {k: v for k, v in schema["properties"].items() if k in fields or k == "extra"}
            schema = {**schema, "properties": kept}
        if self.opts.get("schema_broken"):
            schema = "not a schema"
        words = {"stream": message_name(self.opts, name), "schema": schema}
        if self.opts.get("key_properties", ["id"]) is not None:
            words["key_properties"] = self.opts.get("key_properties", ["id"])
        if self.opts.get("bookmark"):
            words["bookmark_properties"] = [self.opts["bookmark"]]
        self.say("SCHEMA", **words)

    def state_of(self):
        self.say("STATE", value={"bookmarks": self.marks, "currently_syncing": None})
        self.out.flush()

    def record(self, stream, seq):
        name = stream["name"] if isinstance(stream, dict) else stream
        self._faults()
        if self.opts.get("delay"):
            self.out.flush()
            time.sleep(self.opts["delay"])
        if self.opts.get("noise") and self.emitted % 10 == 3:
            self._noise(name)
        self.say("RECORD", **self.message(name, seq))
        self.emitted += 1
        self.marks[name] = {"replication_key": "seq", "replication_key_value": seq}
        if self.opts.get("write_back") and self.emitted == 10:
            self._rotate()

    def data(self, name, seq):
        data = record_data(self.opts, name, seq)
        gone = data.pop("_ab_cdc_deleted_at", None)
        if self.opts.get("cdc"):
            data["_sdc_deleted_at"] = gone
        if self.opts.get("special") == "nan" and seq == 5:
            data.update(amount=float("nan"), note="not a number")
        if self.opts.get("big_bytes") and seq == 5:
            data["note"] = "x" * self.opts["big_bytes"]
        if self.opts.get("changed_schema") and seq > 50:
            data["extra"] = f"extra {seq}"
        fields = self.selected.get(name, ("", None))[1]
        return {k: v for k, v in data.items() if fields is None or k in fields or k == "extra"}

    def message(self, name, seq):
        null = self.opts.get("null_every") and seq % self.opts["null_every"] == 0
        words = {
            "stream": message_name(self.opts, name),
            "record": None if null else self.data(name, seq),
        }
        if self.opts.get("extracted", True):
            words["time_extracted"] = time_text(seq)
        if self.opts.get("version") is not None:
            words["version"] = self.opts["version"]
        return words

    def _rotate(self):
        config = {**self.config, "refresh_token": f"rotated-{self.opts['seed']}"}
        with open(self.config_path, "w", encoding="utf-8") as file:
            json.dump(config, file, indent=2)
        self.out.flush()

    def _noise(self, name):
        for line in ("", "a line of plain text", '{"not": "a message"}', "[1, 2, 3]"):
            self.out.line(line)
        self.say("FUTURE", future={"a": 1})
        metric = {"type": "counter", "metric": "record_count", "value": 10, "tags": {}}
        print(f"INFO METRIC: {json.dumps(metric)}", file=sys.stderr, flush=True)

    def _faults(self):
        if self.emitted == self.opts.get("crash_after") and self._fault():
            self.out.flush()
            if self.opts.get("crash_trace"):
                print("INFO going on", file=sys.stderr)
                print("CRITICAL the stub crashed as asked", file=sys.stderr, flush=True)
            os._exit(self.opts["crash_code"])
        super()._faults()

    # -- the sync
    def run(self):
        if "steps" in self.opts:
            self.steps(self.opts["steps"])
            self.out.flush()
            return 0
        if self.opts.get("file"):
            cat(self.opts["file"])
            return 0
        if self.opts.get("leak"):
            self._leak()
        work = [self._sync(s) for s in streams_of(self.opts) if s["name"] in self.selected]
        if self.opts.get("interleave"):
            while work:
                work = [w for w in work if next(w, None) is not None]
        else:
            for one in work:
                for _ in one:
                    if self.stopping:
                        self.out.flush()
                        return 0
        return self._end()

    def _sync(self, stream):
        """Emits one stream, yielding after each record."""
        name = stream["name"]
        total = stream.get("records", self.opts["records"])
        start = 0
        if self.selected[name][0] != "FULL_TABLE":
            start = self.marks.get(name, {}).get("replication_key_value", 0)
        if not self.opts.get("schemaless"):
            self.tell_schema(name)
        version = self.opts.get("version")
        label = message_name(self.opts, name)
        if self.opts.get("activate") in ("before", "both"):
            self.say("ACTIVATE_VERSION", stream=label, version=version)
        every, trailing = self.opts["state_every"], self.opts.get("trailing", 0)
        for seq in range(start + 1, total + 1):
            if self.opts.get("changed_schema") and seq == 51:
                schema = json_schema(self.opts)
                schema["properties"]["extra"] = {"type": ["null", "string"]}
                self.tell_schema(name, schema)
            if self.opts.get("schema_repeated") and seq % 10 == 0:
                self.tell_schema(name)
            if self.opts.get("batch"):
                if seq % 50 == 0 or seq == total:
                    self._batch(name, max(start + 1, seq - (seq - 1) % 50), seq)
            else:
                self.record(stream, seq)
            left = total - seq - trailing
            if every is not None and (left == 0 or (every and seq % every == 0 and left > 0)):
                self.state_of()
            yield seq
        if self.opts.get("activate") in ("after", "both"):
            self.say("ACTIVATE_VERSION", stream=label, version=version)
        if every is not None and start >= total:
            self.state_of()

    def _batch(self, name, first, last):
        how = self.opts["batch"]
        path = os.path.join(self.opts["batch_folder"], f"{name}-{first}-{os.getpid()}.{how}")
        rows = [self.data(name, seq) for seq in range(first, last + 1)]
        if how == "parquet":
            import pyarrow as pa
            import pyarrow.parquet as pq

            pq.write_table(pa.Table.from_pylist(rows), path)
            encoding = {"format": "parquet"}
        else:
            import gzip

            text = "".join(json.dumps(r) + "\n" for r in rows).encode()
            with (gzip.open if how == "gzip" else open)(path, "wb") as file:
                file.write(text)
            encoding = {"format": "jsonl", "compression": how}
        if self.opts.get("batch_missing") and first > 50:
            os.unlink(path)
        words = {"stream": message_name(self.opts, name), "encoding": encoding}
        self.say("BATCH", **words, manifest=[f"file://{path}"])
        self.marks[name] = {"replication_key": "seq", "replication_key_value": last}

    def _leak(self):
        secret = str(self.config.get("api_key", ""))
        self.out.line(f"plain text {secret}")
        self.out.flush()
        print(f"CRITICAL stderr {secret}", file=sys.stderr, flush=True)

    def _end(self):
        if self.opts.get("half_line") and self._fault():
            line = json.dumps({"type": "RECORD", **self.message("s0", self.emitted + 1)})
            self.out.raw(line[: len(line) // 2].encode())
        code = self.opts.get("exit_code", 0)
        if code and self._fault():
            print("CRITICAL the stub ends badly as asked", file=sys.stderr, flush=True)
        else:
            code = 0
        self.out.flush()
        return code

    # -- steps that are Singer's own
    def _step_schema(self, value):
        if isinstance(value, str):
            self.tell_schema(value)
        else:
            self.say("SCHEMA", **value)

    def _step_record(self, value):
        self.say("RECORD", **value)

    def _step_records(self, value):
        for seq in range(value.get("from", 1), value["to"] + 1):
            self.record(value["stream"], seq)

    def _step_state(self, value):
        self.say("STATE", value=value)
        self.out.flush()

    def _step_activate(self, value):
        self.say("ACTIVATE_VERSION", **value)

    def _step_batch(self, value):
        self.say("BATCH", **value)


def about():
    properties = {
        "api_key": {"type": ["string", "null"], "secret": True, "writeOnly": True},
        "refresh_token": {"type": ["string", "null"], "writeOnly": True},
        "records": {"type": "integer", "minimum": 0},
    }
    return {
        "name": "stub-tap",
        "version": "1.0",
        "sdk_version": "0.0",
        "capabilities": ["catalog", "state", "discover", "about"],
        "settings": {"type": "object", "properties": properties},
    }


def arguments(knows):
    parser = argparse.ArgumentParser(prog="stub_tap.py")
    parser.add_argument("--with", dest="given", type=json.loads, default={})
    needed = "about" not in knows
    parser.add_argument("-c", "--config", required=needed)
    for name in ("state", "catalog", "properties", "format"):
        if name in knows or name == "format":
            parser.add_argument(f"--{name}")
    for name in ("discover", "about"):
        if name in knows:
            parser.add_argument(f"--{name}", action="store_true")
    return parser


def options():
    """The options, before the command line is understood: they say which of it is known."""
    first = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    first.add_argument("--with", dest="given", type=json.loads, default={})
    first.add_argument("-c", "--config")
    early, _ = first.parse_known_args()
    config = {}
    with contextlib.suppress(OSError, ValueError):
        config = load_json(early.config) or {}
    scenario = config.get("scenario") or early.given.get("scenario") or "basic"
    if scenario not in SCENARIOS:
        sys.exit(f"unknown scenario {scenario!r}; known: {', '.join(SCENARIOS)}")
    preset = SCENARIOS[scenario]
    return {**DEFAULTS, "knows": KNOWS, **preset, **early.given, **config}, config


def main():
    opts, config = options()
    knows = opts["knows"]
    if opts.get("deaf"):
        args, _ = arguments([*knows, "properties"]).parse_known_args()
        args.catalog = args.discover = args.about = None
    else:
        args = arguments(knows).parse_args()
    if opts.get("journal"):
        given = {k: v for k, v in vars(args).items() if k != "given"}
        for name in ("catalog", "properties", "state"):
            given[name] = load_json(given.get(name))
        entry = {**given, "pid": os.getpid(), "config": config}
        with open(opts["journal"], "a", encoding="utf-8") as journal:
            journal.write(json.dumps(entry) + "\n")
    if getattr(args, "about", None):
        print(json.dumps(about(), indent=2))
        return 0
    if opts.get("check") == "FAILED":
        print("CRITICAL the stub's password is wrong", file=sys.stderr)
        return 1
    if getattr(args, "discover", None):
        print(json.dumps(catalog_of(opts), indent=2))
        return 0
    catalog = load_json(getattr(args, "catalog", None) or getattr(args, "properties", None))
    state = load_json(getattr(args, "state", None))
    out = Out()
    code = Tap(opts, config, args.config, catalog, state, out).run()
    out.flush()
    return code


if __name__ == "__main__":
    try:
        sys.exit(main())
    except BrokenPipeError:
        os.close(1)
        sys.exit(1)
