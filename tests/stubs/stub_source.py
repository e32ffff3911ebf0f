#!/usr/bin/env python3
"""A scriptable Airbyte source: one file, standard library only, for everything that no real source
emits on demand. Not a mock: it is a process that obeys spec, check, discover and read.

    stub_source.py [--with JSON] spec
    stub_source.py [--with JSON] check    --config F
    stub_source.py [--with JSON] discover --config F
    stub_source.py [--with JSON] read     --config F --catalog F [--state F]

``--with`` gives options that hold for every command (``spec`` has no config); the config's own keys
win over it, and both win over the scenario's presets.

SCENARIOS (``{"scenario": NAME}``; each is only a preset of the options below)
    basic               2 streams (s0, s1) of 100 records, a STREAM state every 25, statuses
    global, legacy      the same with GLOBAL or LEGACY states
    control             a CONTROL message with a new config (``refresh_token`` rotated) mid-way
    changes             every 10th record has meta.changes
    late_crash          TRACE ERROR and exit 1 after 60 records; late_crash_silent: no TRACE
    hang                sleeps for ever after 30 records; hang_stubborn: ignores SIGTERM as well;
                        hang_grandchildren: leaves grandchildren that hold stdout and ignore SIGTERM
    half_line           ends in the middle of a RECORD line, exit 0
    big_line            a record of 50 MB (``big_bytes``) in the middle
    nan                 NaN, Infinity and -Infinity as numbers in a record
    duplicate_keys      a record in which ``name`` comes twice
    empty               no records; one empty state a stream
    trailing            10 records after the last state
    complete_then_exit_1  every stream COMPLETE, then exit 1 with a TRACE ERROR
    sparse_1000         1,000 streams, 50 of them with 100 rows
    wide_10000          10,000 streams of one row each
    noise               text, blank lines, JSON that is no message, LOG, TRACE, ESTIMATE, ANALYTICS
    leak                prints the config's ``api_key`` on stdout (LOG and text) and on stderr
    nothing             prints nothing, exit 0
    exit_3              prints nothing on stdout, one line on stderr, exit 3
    check_failed        check: exit 0 with FAILED; read: TRACE ERROR config_error, exit 1
    bad_stream          s0 COMPLETE with its state, s1 INCOMPLETE half way with an error, exit 1
    removed             s1 is no longer discovered nor read
    schema_2            the next schema: ``email`` new, ``amount`` integer -> number, ``note`` gone
    deletes             every 7th record has ``_ab_cdc_deleted_at``
    file                copies the file ``file`` to stdout as fast as the system can
    stateless           no states and no statuses

OPTIONS
    streams             int (s0, s1, ...) or a list of AirbyteStream objects ("records" beside them)
    namespace           of generated streams; absent: none
    records, rows_in    records a stream; only this many streams have any (evenly spread)
    state_every         states every K records of a stream and one at the end; 0: at the end only;
                        null: none. state_type STREAM|GLOBAL|LEGACY. state_field "type"|"state_type"
    trailing            records of each stream that come after its last state
    interleave          round robin over streams instead of one after the other
    key_space           ids are seq % key_space: the same key again with a later cursor
    pad                 bytes of text added to every record, random by ``seed``
    statuses            STARTED, RUNNING, COMPLETE for every stream (default true)
    delay               seconds before each record
    schema              1 or 2 (see schema_2); remove: names not offered any more
    changes_every, delete_every, noise, leak, control    see the scenarios
    crash_after, crash_trace, crash_code; hang_after, hang; half_line
                        faults by the count of records emitted in this run
    once                path: faults happen only when this file does not exist; it is then created.
                        times: so often (default 1), a byte of the file each
    failure_type        of what ``crash_trace`` says (default system_error)
    exit_code           at the end; ``fail_streams``: names that end INCOMPLETE
    journal             path: every call appends {command, pid, config, catalog, state} to it
    mute                commands that print nothing; exit_3: commands that exit 3
    spec                a ConnectorSpecification to answer with
    resumes             a full_refresh read goes on from the state it is given
    steps               read does these and nothing else, see STEPS

STEPS (a list of one-key objects, done in order)
    {"message": {..}} {"line": "text"} {"partial": "no newline"} {"base64": ".."} {"stderr": "text"}
    {"record": {"stream", "data", "namespace"?, ...}}
    {"records": {"stream", "namespace"?, "from": 1, "to": 100}}        generated records, by seq
    {"state": {"stream", "namespace"?, "state": any}} {"status": {"stream", "namespace"?, "status"}}
    {"cat": path} {"big": {"stream", "bytes"}} {"sleep": seconds} {"touch": path}
    {"wait_for": path} (at most 60 s) {"hang": "sleep|stubborn|grandchildren"} {"exit": code}
    {"kill": signal} {"repeat": {"times": n, "steps": [..]}} {"once": {"path", "steps"}}

RECORDS are {"id", "seq", "name", "amount", "active", "updated_at", "note"}: primary key ``id``,
cursor ``seq`` (1, 2, ...); values depend on (seed, stream, seq) only. A read under ``incremental``
emits only records whose seq is greater than the state's; full_refresh ignores the state, although
the streams say that they are resumable, unless ``resumes`` is given.
"""

import json
import os
import signal
import sys
import time

# What few scenarios need is imported where it is: tests start this file thousands of times.

EPOCH_MS = 1_700_000_000_000

SCENARIOS = {
    "basic": {},
    "global": {"state_type": "GLOBAL"},
    "legacy": {"state_type": "LEGACY"},
    "control": {"control": True},
    "changes": {"changes_every": 10},
    "late_crash": {"crash_after": 60, "crash_trace": True},
    "late_crash_silent": {"crash_after": 60},
    "hang": {"hang_after": 30, "hang": "sleep"},
    "hang_stubborn": {"hang_after": 30, "hang": "stubborn"},
    "hang_grandchildren": {"hang_after": 30, "hang": "grandchildren"},
    "half_line": {"half_line": True},
    "big_line": {"streams": 1, "big_bytes": 50_000_000},
    "nan": {"special": "nan"},
    "duplicate_keys": {"special": "duplicate_keys"},
    "empty": {"records": 0},
    "trailing": {"trailing": 10},
    "complete_then_exit_1": {"exit_code": 1},
    "sparse_1000": {"streams": 1000, "rows_in": 50, "state_every": 0},
    "wide_10000": {"streams": 10_000, "records": 1, "state_every": 0},
    "noise": {"noise": True},
    "leak": {"leak": True},
    "nothing": {"mute": ["spec", "check", "discover", "read"]},
    "exit_3": {"exit_3": ["spec", "check", "discover", "read"]},
    "check_failed": {"check": "FAILED"},
    "bad_stream": {"fail_streams": ["s1"], "exit_code": 1},
    "removed": {"remove": ["s1"]},
    "schema_2": {"schema": 2},
    "deletes": {"delete_every": 7, "cdc": True},
    "file": {},
    "stateless": {"state_every": None, "statuses": False},
}
DEFAULTS = {
    "streams": 2,
    "records": 100,
    "state_every": 25,
    "state_type": "STREAM",
    "state_field": "type",
    "statuses": True,
    "seed": 0,
    "schema": 1,
    "crash_code": 1,
}


class Out:
    """Stdout as bytes; one write a line, flushed when 64 KB are there and whenever asked."""

    def __init__(self):
        self.parts = []
        self.size = 0

    def raw(self, data):
        self.parts.append(data)
        self.size += len(data)
        if self.size > 65536:
            self.flush()

    def line(self, text):
        self.raw(text.encode() + b"\n")

    def message(self, kind, **fields):
        self.line(json.dumps({"type": kind, **fields}, ensure_ascii=False))

    def flush(self):
        view = memoryview(b"".join(self.parts))
        self.parts, self.size = [], 0
        while view:
            view = view[os.write(1, view) :]

    def log(self, level, text):
        self.message("LOG", log={"level": level, "message": text})

    def error(self, text, failure_type="system_error", **more):
        error = {"message": text, "internal_message": f"stub: {text}", "failure_type": failure_type}
        self.message(
            "TRACE",
            trace={"type": "ERROR", "emitted_at": EPOCH_MS + 0.25, "error": {**error, **more}},
        )


def descriptor(stream):
    return {k: stream[k] for k in ("name", "namespace") if stream.get(k) is not None}


def key(stream):
    return (stream.get("namespace") or None, stream["name"])


def json_schema(opts):
    nullable = {
        "id": {"type": ["null", "integer"]},
        "seq": {"type": ["null", "integer"]},
        "name": {"type": ["null", "string"]},
        "amount": {"type": ["null", "integer"]},
        "active": {"type": ["null", "boolean"]},
        "updated_at": {
            "type": ["null", "string"],
            "format": "date-time",
            "airbyte_type": "timestamp_with_timezone",
        },
        "note": {"type": ["null", "string"]},
    }
    if opts["schema"] == 2:
        del nullable["note"]
        nullable["email"] = {"type": ["null", "string"]}
        nullable["amount"] = {"type": ["null", "number"]}
    if opts.get("cdc"):
        nullable["_ab_cdc_deleted_at"] = {"type": ["null", "string"]}
    return {"type": "object", "additionalProperties": True, "properties": nullable}


def streams_of(opts):
    given = opts["streams"]
    if isinstance(given, int):
        given = [{"name": f"s{i}"} for i in range(given)]
    schema = json_schema(opts)
    found = []
    for item in given:
        if item["name"] in opts.get("remove", []):
            continue
        stream = {
            "name": item["name"],
            "json_schema": schema,
            "supported_sync_modes": ["full_refresh", "incremental"],
            "source_defined_cursor": True,
            "default_cursor_field": ["seq"],
            "source_defined_primary_key": [["id"]],
            "is_resumable": True,
        }
        if opts.get("namespace") is not None:
            stream["namespace"] = opts["namespace"]
        stream.update(item)
        found.append(stream)
    return found


def text_of(opts, stream, seq, size):
    """``size`` letters that depend on (seed, stream, seq) only."""
    import hashlib

    seed = f"{opts['seed']}/{stream}/{seq}".encode()
    return hashlib.shake_128(seed).hexdigest((size + 1) // 2)[:size]


def record_data(opts, stream, seq):
    stamp = time.gmtime(EPOCH_MS // 1000 + seq)
    data = {
        "id": seq % opts["key_space"] if opts.get("key_space") else seq,
        "seq": seq,
        "name": f"{stream}-{text_of(opts, stream, seq, 8)}",
        "amount": seq * 7 % 1000,
        "active": seq % 2 == 0,
        "updated_at": time.strftime("%Y-%m-%dT%H:%M:%SZ", stamp),
        "note": None if seq % 3 else f"note {seq}",
    }
    if opts["schema"] == 2:
        del data["note"]
        data["email"] = f"u{seq}@example.org"
        data["amount"] += 0.5
    if opts.get("pad"):
        data["pad"] = text_of(opts, stream, seq, opts["pad"])
    if opts.get("cdc"):
        gone = opts.get("delete_every") and seq % opts["delete_every"] == 0
        data["_ab_cdc_deleted_at"] = data["updated_at"] if gone else None
    return data


def record_message(opts, stream, seq, data=None):
    record = {
        "stream": stream["name"],
        "data": record_data(opts, stream["name"], seq) if data is None else data,
        "emitted_at": EPOCH_MS + seq,
    }
    if stream.get("namespace") is not None:
        record["namespace"] = stream["namespace"]
    every = opts.get("changes_every")
    if every and seq % every == 0:
        change = {"field": "note", "change": "NULLED", "reason": "SOURCE_RETRIEVAL_ERROR"}
        record["meta"] = {"changes": [change]}
    return record


def hang(how):
    if how in ("stubborn", "grandchildren"):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if how == "grandchildren":
        import subprocess

        code = (
            "import signal,time,subprocess,sys\n"
            "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
            "if len(sys.argv) > 1: subprocess.Popen([sys.executable, '-c', "
            "'import signal,time; signal.signal(15, signal.SIG_IGN); time.sleep(3600)'])\n"
            "time.sleep(3600)"
        )
        subprocess.Popen([sys.executable, "-c", code, "parent"])
    deadline = time.monotonic() + 3600
    while time.monotonic() < deadline:
        time.sleep(1)
    sys.exit(99)


def cat(path):
    """A file to stdout, by the kernel where it can."""
    with open(path, "rb") as source:
        try:
            left = os.fstat(source.fileno()).st_size
            offset = 0
            while left > 0:
                sent = os.sendfile(1, source.fileno(), offset, min(left, 1 << 20))
                if sent == 0:
                    break
                offset += sent
                left -= sent
        except OSError:
            import shutil

            source.seek(offset)
            with os.fdopen(os.dup(1), "wb") as sink:
                shutil.copyfileobj(source, sink, 1 << 20)


class Reader:
    """The read command: streams x records with states between them, and the faults asked for."""

    def __init__(self, opts, config, catalog, state, out):
        self.opts, self.config, self.out = opts, config, out
        self.configured = {key(c["stream"]): c for c in catalog["streams"]}
        self.emitted = 0
        self.position = {}
        once = opts.get("once")
        happened = max(os.path.getsize(once), 1) if once and os.path.exists(once) else 0
        self.fault_allowed = happened < opts.get("times", 1)
        self.given = self._positions(state)

    def _positions(self, state):
        """(namespace, name) -> seq, from any form of state."""
        if not state:
            return {}
        if isinstance(state, dict) and "type" not in state and "state_type" not in state:
            return {tuple(json.loads(k)): v for k, v in state.get("positions", {}).items()}
        found = {}
        for message in state if isinstance(state, list) else [state]:
            kind = message.get("type") or message.get("state_type")
            if kind == "STREAM":
                entries = [message["stream"]]
            elif kind == "GLOBAL":
                entries = message["global"]["stream_states"]
            else:
                found.update(self._positions(message.get("data")))
                continue
            for entry in entries:
                if entry.get("stream_state"):
                    where = key(entry["stream_descriptor"])
                    found[where] = entry["stream_state"].get("seq", 0)
        return found

    # -- messages
    def status(self, stream, status, **more):
        if self.opts["statuses"]:
            body = {"stream_descriptor": descriptor(stream), "status": status, **more}
            trace = {"type": "STREAM_STATUS", "emitted_at": EPOCH_MS + 0.5, "stream_status": body}
            self.out.message("TRACE", trace=trace)

    def state(self, stream, count):
        kind, field = self.opts["state_type"], self.opts["state_field"]
        stats = {"sourceStats": {"recordCount": float(count)}}
        if kind == "LEGACY":
            positions = {json.dumps(k): v for k, v in self.position.items()}
            message = {"data": {"positions": positions}}
        elif kind == "GLOBAL":
            states = [
                {"stream_descriptor": descriptor(c["stream"]), "stream_state": {"seq": seq}}
                for k, c in self.configured.items()
                if (seq := self.position.get(k)) is not None
            ]
            body = {"shared_state": {"lsn": self.emitted}, "stream_states": states}
            message = {field: kind, "global": body, **stats}
        else:
            seq = self.position.get(key(stream))
            blob = {"seq": seq} if seq is not None else {}
            entry = {"stream_descriptor": descriptor(stream), "stream_state": blob}
            message = {field: kind, "stream": entry, **stats}
        self.out.message("STATE", state=message)
        self.out.flush()

    def record(self, stream, seq):
        self._faults()
        if self.opts.get("delay"):
            self.out.flush()
            time.sleep(self.opts["delay"])
        if self.opts.get("noise") and self.emitted % 10 == 3:
            self._noise(stream)
        message = record_message(self.opts, stream, seq)
        special = self.opts.get("special") if seq == 5 else None
        if special == "nan":
            message["data"].update(
                amount=float("nan"), big=float("inf"), small=float("-inf"), note="not a number"
            )
        if self.opts.get("big_bytes") and seq == 5:
            message["data"]["note"] = "x" * self.opts["big_bytes"]
        line = json.dumps({"type": "RECORD", "record": message}, ensure_ascii=False)
        if special == "duplicate_keys":
            line = line.replace('"name": ', '"name": null, "name": ', 1)
        self.out.line(line)
        self.emitted += 1
        self.position[key(stream)] = seq
        if self.opts.get("control") and self.emitted == 10:
            config = {**self.config, "refresh_token": f"rotated-{self.opts['seed']}"}
            self.out.message(
                "CONTROL",
                control={
                    "type": "CONNECTOR_CONFIG",
                    "emitted_at": EPOCH_MS + 0.75,
                    "connectorConfig": {"config": config},
                },
            )
            self.out.flush()

    def _noise(self, stream):
        out = self.out
        out.line("")
        out.line("a line of plain text")
        out.line('{"not": "a message"}')
        out.line('{"type": "FUTURE", "future": {"a": 1}}')
        out.line("[1, 2, 3]")
        out.log("DEBUG", "noise")
        out.message("CATALOG", catalog={"streams": []})
        estimate = {"name": stream["name"], "type": "STREAM", "row_estimate": 100}
        for kind, body in (
            ("ESTIMATE", {"estimate": estimate}),
            ("ANALYTICS", {"analytics": {"type": "stub", "value": "1"}}),
        ):
            out.message("TRACE", trace={"type": kind, "emitted_at": EPOCH_MS, **body})
        print("noise on stderr", file=sys.stderr, flush=True)

    def _fault(self):
        """True when a fault may happen now; leaves the marker of ``once``."""
        if self.fault_allowed and self.opts.get("once"):
            with open(self.opts["once"], "a") as marker:
                marker.write("x")
        return self.fault_allowed

    def _faults(self):
        if self.emitted == self.opts.get("crash_after") and self._fault():
            if self.opts.get("crash_trace"):
                kind = self.opts.get("failure_type", "system_error")
                self.out.error("the stub crashed as asked", kind)
            self.out.flush()
            print("Traceback: the stub crashed as asked", file=sys.stderr, flush=True)
            os._exit(self.opts["crash_code"])
        if self.emitted == self.opts.get("hang_after") and self._fault():
            self.out.flush()
            hang(self.opts.get("hang", "sleep"))

    # -- the conversation
    def run(self):
        if "steps" in self.opts:
            self.steps(self.opts["steps"])
            self.out.flush()
            return 0
        if self.opts.get("file"):
            cat(self.opts["file"])
            return 0
        self.out.log("INFO", "Starting the stub")
        if self.opts.get("leak"):
            self._leak()
        offered = streams_of(self.opts)
        rows_in = self.opts.get("rows_in") or len(offered)
        step = max(1, len(offered) // max(1, rows_in))
        work = []
        for index, stream in enumerate(offered):
            configured = self.configured.get(key(stream))
            if configured is None:
                continue
            total = stream.get("records", self.opts["records"])
            if index % step or index // step >= rows_in:
                total = 0
            start = 0
            if configured["sync_mode"] == "incremental" or self.opts.get("resumes"):
                start = self.given.get(key(stream), 0)
                if start:
                    self.position[key(stream)] = start
            work.append(self._stream(stream, start, total))
        if self.opts.get("interleave"):
            while work:
                work = [w for w in work if next(w, None) is not None]
        else:
            for one in work:
                for _ in one:
                    pass
        return self._finish()

    def _stream(self, stream, start, total):
        """Emits one stream, yielding after each record."""
        every, trailing = self.opts["state_every"], self.opts.get("trailing", 0)
        failing = stream["name"] in self.opts.get("fail_streams", [])
        self.status(stream, "STARTED")
        since, covered = 0, False
        for seq in range(start + 1, total + 1):
            if failing and seq > start + (total - start) // 2:
                covered = True
                break
            if since == 0 and not covered:
                self.status(stream, "RUNNING")
            self.record(stream, seq)
            since += 1
            left = total - seq
            if every is not None and (left == trailing or (every and since == every > 0)):
                covered = True
                if left >= trailing:
                    self.state(stream, since)
                    since = 0
            yield seq
        if every is not None and not covered:
            self.state(stream, since)
        if failing:
            text = f"stream {stream['name']} failed as asked"
            self.out.error(text, stream_descriptor=descriptor(stream))
        self.status(stream, "INCOMPLETE" if failing else "COMPLETE")

    def _leak(self):
        secret = str(self.config.get("api_key", ""))
        self.out.log("INFO", f"connecting with {secret}")
        self.out.line(f"plain text {secret}")
        self.out.flush()
        print(f"stderr {secret}", file=sys.stderr, flush=True)

    def _finish(self):
        if self.opts.get("half_line") and self._fault():
            stream = next(iter(self.configured.values()))["stream"]
            record = record_message(self.opts, stream, self.emitted + 1)
            line = json.dumps({"type": "RECORD", "record": record})
            self.out.raw(line[: len(line) // 2].encode())
        code = self.opts.get("exit_code", 0)
        if code and self._fault():
            self.out.error("the stub ends badly as asked")
        else:
            code = 0
        self.out.flush()
        return code

    # -- scripted steps
    def steps(self, steps):
        for step in steps:
            ((name, value),) = step.items()
            getattr(self, f"_step_{name}")(value)

    def _step_message(self, value):
        self.out.line(json.dumps(value, ensure_ascii=False))

    def _step_line(self, value):
        self.out.line(value)

    def _step_partial(self, value):
        self.out.raw(value.encode())

    def _step_base64(self, value):
        import base64

        self.out.raw(base64.b64decode(value))

    def _step_stderr(self, value):
        print(value, file=sys.stderr, flush=True)

    def _step_record(self, value):
        self.out.message("RECORD", record={"emitted_at": EPOCH_MS, **value})

    def _step_records(self, value):
        stream = {"name": value["stream"], "namespace": value.get("namespace")}
        for seq in range(value.get("from", 1), value["to"] + 1):
            self.record(stream, seq)

    def _step_state(self, value):
        stream = {"name": value["stream"], "namespace": value.get("namespace")}
        body = {"stream_descriptor": descriptor(stream), "stream_state": value["state"]}
        self.out.message("STATE", state={self.opts["state_field"]: "STREAM", "stream": body})
        self.out.flush()

    def _step_status(self, value):
        stream = {"name": value["stream"], "namespace": value.get("namespace")}
        self.status(stream, value["status"])

    def _step_cat(self, value):
        self.out.flush()
        cat(value)

    def _step_big(self, value):
        stream = {"name": value["stream"], "namespace": value.get("namespace")}
        data = {**record_data(self.opts, value["stream"], 1), "note": "x" * value["bytes"]}
        self.out.message("RECORD", record=record_message(self.opts, stream, 1, data))

    def _step_sleep(self, value):
        self.out.flush()
        time.sleep(value)

    def _step_touch(self, value):
        self.out.flush()
        with open(value, "w"):
            pass

    def _step_wait_for(self, value):
        self.out.flush()
        deadline = time.monotonic() + 60
        while not os.path.exists(value) and time.monotonic() < deadline:
            time.sleep(0.02)

    def _step_hang(self, value):
        self.out.flush()
        hang(value)

    def _step_exit(self, value):
        self.out.flush()
        sys.stderr.flush()
        os._exit(value)

    def _step_kill(self, value):
        self.out.flush()
        os.kill(os.getpid(), value)
        time.sleep(60)

    def _step_repeat(self, value):
        for _ in range(value["times"]):
            self.steps(value["steps"])

    def _step_once(self, value):
        if not os.path.exists(value["path"]):
            self._step_touch(value["path"])
            self.steps(value["steps"])


def specification(opts):
    if opts.get("spec"):
        return opts["spec"]
    credentials = [
        {
            "type": "object",
            "title": "Password",
            "required": ["auth_type", "password"],
            "properties": {
                "auth_type": {"type": "string", "const": "password"},
                "password": {"type": "string", "airbyte_secret": True},
            },
        },
        {
            "type": "object",
            "title": "Key file",
            "required": ["auth_type", "port"],
            "properties": {
                "auth_type": {"type": "string", "const": "key"},
                "port": {"type": "integer", "minimum": 1},
            },
        },
    ]
    properties = {
        "scenario": {"type": "string", "enum": sorted(SCENARIOS), "default": "basic"},
        "records": {"type": "integer", "minimum": 0},
        "api_key": {"type": "string", "airbyte_secret": True},
        "refresh_token": {"type": "string", "airbyte_secret": True},
        "credentials": {"type": "object", "oneOf": credentials},
    }
    return {
        "protocol_version": "0.18.0",
        "documentationUrl": "https://example.org/stub",
        "connectionSpecification": {
            "$schema": "http://json-schema.org/draft-07/schema#",
            "title": "Stub source",
            "type": "object",
            "additionalProperties": True,
            "properties": properties,
        },
    }


def load_json(path):
    if path is None:
        return None
    with open(path, encoding="utf-8") as file:
        return json.load(file)


OPTIONS = {
    "spec": (),
    "check": ("--config",),
    "discover": ("--config",),
    "read": ("--config", "--catalog", "--state"),
}


def arguments():
    """The command, and what comes after each option; refuses all else with exit code 2."""
    command, given = None, {}
    words = iter(sys.argv[1:])
    for word in words:
        name, equals, value = word.partition("=")
        known = OPTIONS[command] if command else ("--with",)
        if name in known:
            value = value if equals else next(words, None)
            if value is None:
                refuse(f"argument {name}: expected one argument")
            given[name] = value
        elif command is None and word in OPTIONS:
            command = word
        else:
            refuse(f"unrecognized argument: {word}")
    needed = [n for n in OPTIONS.get(command, ()) if n != "--state" and n not in given]
    if command is None or needed:
        refuse(f"required: {', '.join(needed) or 'command'}")
    return command, given


def refuse(why):
    print(f"stub_source.py: error: {why}", file=sys.stderr)
    sys.exit(2)


def main():
    command, files = arguments()
    given = json.loads(files.get("--with", "{}"))
    config = load_json(files.get("--config")) or {}
    catalog = load_json(files.get("--catalog"))
    state = load_json(files.get("--state"))
    scenario = config.get("scenario") or given.get("scenario") or "basic"
    if scenario not in SCENARIOS:
        sys.exit(f"unknown scenario {scenario!r}; known: {', '.join(SCENARIOS)}")
    opts = {**DEFAULTS, **SCENARIOS[scenario], **given, **config}
    out = Out()
    if opts.get("journal"):
        entry = {
            "command": command,
            "pid": os.getpid(),
            "config": config,
            "catalog": catalog,
            "state": state,
        }
        with open(opts["journal"], "a", encoding="utf-8") as journal:
            journal.write(json.dumps(entry) + "\n")
    if command in opts.get("exit_3", []):
        print("the stub exits 3 as asked", file=sys.stderr)
        return 3
    if command in opts.get("mute", []):
        return 0
    code = 0
    if command == "spec":
        out.message("SPEC", spec=specification(opts))
    elif command == "check":
        out.log("INFO", "checking")
        status = {"status": opts.get("check", "SUCCEEDED")}
        if status["status"] == "FAILED":
            status["message"] = "the stub's password is wrong"
        out.message("CONNECTION_STATUS", connectionStatus=status)
    elif command == "discover":
        out.log("INFO", "discovering")
        streams = [{k: v for k, v in s.items() if k != "records"} for s in streams_of(opts)]
        out.message("CATALOG", catalog={"streams": streams})
    elif opts.get("check") == "FAILED":
        out.error("the stub's password is wrong", "config_error")
        code = 1
    else:
        code = Reader(opts, config, catalog, state, out).run()
    out.flush()
    return code


if __name__ == "__main__":
    try:
        sys.exit(main())
    except BrokenPipeError:
        os.close(1)
        sys.exit(141)
