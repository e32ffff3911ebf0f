#!/usr/bin/env python3
"""A scriptable Airbyte destination: one file, standard library only, for every answer that no real
destination gives on demand. Not a mock: it is a process that obeys spec, check and write.

    stub_destination.py [--with JSON] spec
    stub_destination.py [--with JSON] check --config F
    stub_destination.py [--with JSON] write --config F --catalog F   < messages

``--with`` gives options that hold for every command; the config's own keys win over it.

OPTIONS
    sink            path: every line of stdin is appended to it as it came; the first line of each
                    run is {"run": {"pid", "catalog", "config"}}
    modes           supported_destination_sync_modes (default all three); null: not said
    check           "FAILED": check answers so
    acks            how states come back:
                      echo (default)  as they came, at once
                      late            all of them, in order, after the end of input
                      none            never
                      bare            the state object without its envelope
                      nulls           the state object, with nulls added and our id taken away
                      mangled         bare, ``global`` called ``global_``, nulls added, no id
                      changed         a whole STATE message with another content, and no id
                      reversed        all, in reverse order, after the end of input
                      newest          the last one of each stream only, after the end of input
                      final           the last one of all only, after the end of input
                      every_third     the newest at every third state, and the last one
                      with_rows       at once, if a record came since the last state; else never
                      skip_first      all but the first of the run, at once
                      wrong_stream    under another stream's name
                      unasked         a state that was never sent, before each echo
                      twice           each echo two times
    form            what else is done to a state that comes back, some of: no_id, reordered (keys),
                    destination_stats (added), no_source_stats, empty_namespace, additions
    rejects         rows of each state that its destinationStats say were rejected
    ack_every       rows: an echo is given only once so many records were written (default 0)
    exit_at         exit once so many records came; exit_code (default 1)
    kill_at         SIGKILL itself once so many records came
    exit_now        exits at once, with exit_code (default 0), reading nothing
    close_at        closes stdin once so many records came; then sleeps ``close_sleep`` seconds and
                    exits with exit_code
    hang_at         neither reads nor answers once so many records came; hang_stubborn: ignores
                    SIGTERM too; hang_at_end: after the end of input
    delay           seconds before each record
    exit_code       at the end
    statuses        true: as the bulk kit's destinations: states are held until the end of input;
                    a stream without a status there: TRACE ERROR and exit 1, nothing is given back;
                    an INCOMPLETE one: all is given back, then TRACE ERROR and exit 1
    trace           text of a TRACE ERROR that comes before an exit with a code that is not 0, or
                    always where ``trace_always``; trace_type: its failure_type (system_error)
    say             text on stderr at the start; log: text of a LOG message at the start
    control         a new config, sent as CONTROL at the start, before anything else
    noise           text lines, JSON that is no message, a RECORD, an unknown type
    huge_logs       this many LOG messages of 1 KB before anything is read
"""

import json
import os
import signal
import sys
import time


def say(message):
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


def log(text):
    say({"type": "LOG", "log": {"level": "INFO", "message": text}})


def formed(state, form):
    """As real destinations give states back: typed models drop what they do not know and add what
    they do."""
    if "no_id" in form:
        state.pop("id", None)
    if "no_source_stats" in form:
        state.pop("sourceStats", None)
    if "destination_stats" in form:
        state["destinationStats"] = {"recordCount": 3.0, "rejectedRecordCount": 0.0}
    if "additions" in form:
        state["checkpoint_index"] = 7
    if "empty_namespace" in form and "stream" in state:
        state["stream"]["stream_descriptor"].setdefault("namespace", "")
    if "empty_namespace" in form and "global" in state:
        for entry in state["global"]["stream_states"]:
            entry["stream_descriptor"].setdefault("namespace", "")
        state["global"]["stream_states"].reverse()
    if "reordered" in form:
        state = backwards(state)
    return state


def backwards(value):
    if isinstance(value, dict):
        return {k: backwards(v) for k, v in reversed(value.items())}
    return value


class Write:
    def __init__(self, options, config, catalog):
        self.o, self.rows, self.held = options, 0, []
        self.sink = None
        if "sink" in options:
            self.sink = open(options["sink"], "ab", buffering=1 << 16)  # noqa: SIM115
        if self.sink:
            head = {"run": {"pid": os.getpid(), "catalog": catalog, "config": config}}
            self.sink.write(json.dumps(head).encode() + b"\n")
            self.sink.flush()
        self.names = [
            (s["stream"]["name"], s["stream"].get("namespace")) for s in catalog["streams"]
        ]
        self.first, self.seen = True, 0
        self.newest = {}
        self.statuses = {}
        self.owed = []
        self.next_ack = options.get("ack_every", 0)

    def leave(self, code):
        if self.sink:
            self.sink.flush()
        if self.o.get("trace") and (code or self.o.get("trace_always")):
            kind = self.o.get("trace_type", "system_error")
            error = {"message": self.o["trace"], "failure_type": kind}
            say({"type": "TRACE", "trace": {"type": "ERROR", "emitted_at": 1.5, "error": error}})
        sys.stdout.flush()
        os._exit(code)

    def run(self):
        for line in sys.stdin.buffer:
            if self.sink:
                self.sink.write(line)
            if line.startswith((b'{"type": "RECORD"', b'{"type":"RECORD"')):
                self.record()
                continue
            message = json.loads(line)
            if message["type"] == "STATE":
                if self.sink:
                    self.sink.flush()
                self.state(message["state"])
            elif message["type"] == "TRACE":
                told = message["trace"]["stream_status"]
                name = told["stream_descriptor"]
                self.statuses[name["name"], name.get("namespace")] = told["status"]
        self.end()

    def record(self):
        self.rows += 1
        if self.o.get("delay"):
            time.sleep(self.o["delay"])
        if self.rows == self.o.get("exit_at"):
            self.leave(self.o.get("exit_code", 1))
        if self.rows == self.o.get("kill_at"):
            self.sink and self.sink.flush()
            os.kill(os.getpid(), signal.SIGKILL)
        if self.rows == self.o.get("close_at"):
            self.sink and self.sink.flush()
            os.close(0)
            time.sleep(self.o.get("close_sleep", 0))
            self.leave(self.o.get("exit_code", 0))
        if self.rows == self.o.get("hang_at"):
            self.hang()
        while self.owed and self.rows >= self.next_ack:
            self.answer(self.owed.pop(0))
            self.next_ack += self.o["ack_every"]

    def hang(self):
        self.sink and self.sink.flush()
        if self.o.get("hang_stubborn"):
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
        time.sleep(3600)

    def state(self, state):
        how = self.o.get("acks", "echo")
        if how in ("late", "reversed") or self.o.get("statuses"):
            self.held.append(state)
        elif how == "final":
            self.held = [state]
        elif how == "every_third":
            self.seen += 1
            self.held = [state]
            if self.seen % 3 == 0:
                self.answer(self.held.pop())
        elif how == "with_rows":
            if self.rows > self.seen:
                self.answer(state)
            self.seen = self.rows
        elif how == "newest":
            self.newest[json.dumps(state.get("stream", {}).get("stream_descriptor"))] = state
        elif self.o.get("ack_every") and self.rows < self.next_ack:
            self.owed.append(state)
        else:
            self.answer(state)

    def formed(self, state):
        if (rejects := self.o.get("rejects")) is not None:
            rows = state["sourceStats"]["recordCount"]
            aside = float(min(rejects, rows))
            stats = {"recordCount": rows - aside, "rejectedRecordCount": aside}
            state["destinationStats"] = stats
        return formed(state, self.o.get("form", ()))

    def answer(self, state):
        how = self.o.get("acks", "echo")
        state = self.formed(state)
        whole = {"type": "STATE", "state": state}
        if how == "bare":
            say(state)
        elif how == "nulls":
            state.pop("id")
            say({"type": "STATE", "state": {**state, "data": None, "partition_id": None}})
        elif how == "mangled":
            state = {"data": None, **state, "destinationStats": None}
            state.pop("id")
            if "global" in state:
                state["global_"] = state.pop("global")
            say(state)
        elif how == "changed":
            state.pop("id")
            if "stream" in state:
                state["stream"]["stream_state"] = {"other": 1}
            else:
                state = {
                    "type": "GLOBAL",
                    "global": {"stream_states": [], "shared_state": {"a": 1}},
                }
            say({"type": "STATE", "state": state})
        elif how == "skip_first":
            if not self.first:
                say(whole)
        elif how == "wrong_stream":
            name = state["stream"]["stream_descriptor"]["name"]
            other = [n for n, _ in self.names if n != name]
            state["stream"]["stream_descriptor"]["name"] = other[0] if other else "other"
            say(whole)
        elif how == "unasked":
            body = {"stream_descriptor": {"name": "never"}, "stream_state": {"x": 1}}
            say({"type": "STATE", "state": {"type": "STREAM", "stream": body}})
            say(whole)
        elif how == "twice":
            say(whole)
            say(whole)
        elif how != "none":
            say(whole)
        self.first = False

    def end(self):
        if self.o.get("hang_at_end"):
            self.hang()
        for state in self.owed:
            self.answer(state)
        told = [self.statuses.get(n) for n in self.names]
        if self.o.get("statuses") and None in told:
            self.o["trace"] = "Input was fully read, but some streams have no status"
            self.leave(1)
        held = self.held[::-1] if self.o.get("acks") == "reversed" else self.held
        for state in [*held, *self.newest.values()]:
            say({"type": "STATE", "state": self.formed(state)})
        if self.o.get("statuses") and "INCOMPLETE" in told:
            self.o["trace"] = "some streams are incomplete"
            self.leave(1)
        self.leave(self.o.get("exit_code", 0))


def start(options):
    if options.get("say"):
        sys.stderr.write(options["say"] + "\n")
        sys.stderr.flush()
    if options.get("control"):
        body = {"type": "CONNECTOR_CONFIG", "emitted_at": 1.0}
        body["connectorConfig"] = {"config": options["control"]}
        say({"type": "CONTROL", "control": body})
    if options.get("log"):
        log(options["log"])
    if options.get("noise"):
        print("plain words", flush=True)
        print("", flush=True)
        say({"not": "a message"})
        say([1, 2])
        say({"type": "RECORD", "record": {"stream": "s", "data": {}, "emitted_at": 1}})
        say({"type": "NEW_THING"})
        say({"type": "STATE"})
    for _ in range(options.get("huge_logs", 0)):
        log("x" * 1000)


def arguments():
    """The command, and what comes after each option, in any order; argparse would double the time
    of a start, of which tests make thousands."""
    command, given = None, {}
    words = iter(sys.argv[1:])
    for word in words:
        if word in ("--with", "--config", "--catalog"):
            given[word] = next(words, None) or sys.exit(f"{word}: expected one argument")
        elif command is None and word in ("spec", "check", "write"):
            command = word
        else:
            sys.exit(f"unrecognized argument: {word}")
    return command or sys.exit("a command is required"), given


def main():
    command, given = arguments()
    config = {}
    if "--config" in given:
        with open(given["--config"]) as file:
            config = json.load(file)
    options = {**json.loads(given.get("--with", "{}")), **config}
    if command == "spec":
        properties = {"api_key": {"type": "string", "airbyte_secret": True}}
        spec = {
            "protocol_version": "0.18.0",
            "documentationUrl": "https://example.org/stub",
            "connectionSpecification": {
                "$schema": "http://json-schema.org/draft-07/schema#",
                "type": "object",
                "additionalProperties": True,
                "properties": properties,
            },
        }
        modes = options.get("modes", ["append", "overwrite", "append_dedup"])
        if modes is not None:
            spec["supported_destination_sync_modes"] = modes
        say({"type": "SPEC", "spec": spec})
    elif command == "check":
        failed = options.get("check") == "FAILED"
        status = {"status": "FAILED" if failed else "SUCCEEDED"}
        if failed:
            status["message"] = f"no such place, and {options.get('api_key')} is wrong"
        say({"type": "CONNECTION_STATUS", "connectionStatus": status})
    elif options.get("exit_now"):
        os._exit(options.get("exit_code", 0))
    else:
        start(options)
        with open(given["--catalog"]) as file:
            Write(options, config, json.load(file)).run()


if __name__ == "__main__":
    main()
