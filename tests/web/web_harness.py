"""Starts ``penstock ui`` as a user does, and asks it over HTTP by hand, as a browser would or an
attacker."""

import http.client
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from urllib.parse import urlencode, urlsplit

import forked_cli

KEPT = ("CI", "PATH", "LANG", "LC_ALL", "JAVA_HOME", "JDK_JAVA_OPTIONS", "XDG_CACHE_HOME", "HOME")

# An Airbyte source as the specification has it: a form with a secret, a choice of forms and a
# number; a check with its own words; two streams.
SOURCE = r"""
import json, sys, time
def say(message): print(json.dumps(message), flush=True)
SPEC = {"documentationUrl": "https://docs.example.com/shop", "connectionSpecification": {
  "$schema": "http://json-schema.org/draft-07/schema#", "title": "Shop", "type": "object",
  "required": ["region", "token", "auth"], "properties": {
    "region": {"type": "string", "title": "Region", "enum": ["eu", "us"], "order": 0,
      "description": "<script>alert(1)</script>Where it is. <a href=\"javascript:alert(2)\">x</a>"},
    "token": {"type": "string", "title": "API token", "airbyte_secret": True, "order": 1},
    "rows": {"type": "integer", "title": "Rows", "default": 10, "order": 2},
    "auth": {"type": "object", "title": "Login", "order": 3, "oneOf": [
      {"title": "By key", "required": ["kind", "key"], "properties": {
        "kind": {"const": "key"},
        "key": {"type": "string", "title": "Key", "airbyte_secret": True}}},
      {"title": "Open", "required": ["kind"], "properties": {"kind": {"const": "open"},
        "note": {"type": "string", "title": "Note"}}}]},
    "since": {"type": "string", "title": "Since", "format": "date-time", "order": 5,
      "pattern": "^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:00:00Z$",
      "pattern_descriptor": "YYYY-MM-DDThh:00:00Z"},
    "tags": {"type": "array", "title": "Tags", "items": {"type": "string"}, "order": 4}}}}
FIELDS = {"type": "object", "properties": {"id": {"type": "integer"}, "name": {"type": "string"}}}
def stream(name, key=[["id"]]):
    return {"name": name, "json_schema": FIELDS, "supported_sync_modes": ["full_refresh",
            "incremental"], "source_defined_primary_key": key, "default_cursor_field": ["id"]}
verb = sys.argv[1]
if verb == "spec":
    say({"type": "SPEC", "spec": SPEC}); sys.exit()
config = json.load(open(sys.argv[sys.argv.index("--config") + 1]))
if verb == "check":
    good = config["token"] == "right-token"
    no = "" if good else "the shop says no to <b>" + config["token"] + "</b>"
    say({"type": "CONNECTION_STATUS", "connectionStatus": {
         "status": "SUCCEEDED" if good else "FAILED", "message": no}})
elif verb == "discover":
    time.sleep(config.get("slow", 0))
    say({"type": "CATALOG", "catalog": {"streams": [stream("orders"), stream("people"),
         *(stream(f"s{n:05}", [["id"]] * (n != 11)) for n in range(config.get("many", 0)))]}})
elif verb == "read":
    catalog = json.load(open(sys.argv[sys.argv.index("--catalog") + 1]))
    for configured in catalog["streams"]:
        name = configured["stream"]["name"]
        def status(word): say({"type": "TRACE", "trace": {"type": "STREAM_STATUS", "emitted_at": 1,
            "stream_status": {"stream_descriptor": {"name": name}, "status": word}}})
        status("STARTED")
        say({"type": "LOG", "log": {"level": "INFO", "message": "reading " + name}})
        for n in range(config.get("rows", 10)):
            data = {"id": None if n == 3 else n, "name": "<i>row</i>"}
            say({"type": "RECORD", "record": {"stream": name, "data": data, "emitted_at": 1}})
            time.sleep(config.get("delay", 0))
        say({"type": "STATE", "state": {"type": "STREAM", "stream": {
            "stream_descriptor": {"name": name}, "stream_state": {"id": config.get("rows", 10)}}}})
        status("COMPLETE")
"""


def chromium_missing() -> str | None:
    if shutil.which("chromium") is None:
        reason = "no Chromium here (Debian: apt-get install chromium)"
        if os.environ.get("PENSTOCK_REQUIRE_ENGINE"):
            raise RuntimeError(reason)
        return reason
    return None


class Answered:
    def __init__(self, response: http.client.HTTPResponse) -> None:
        self.status = response.status
        self.headers = {k.lower(): v for k, v in response.getheaders()}
        self.text = response.read().decode("utf-8", "replace")


class Pages:
    """A running server, and a browser's cookie once :meth:`enter` was called. ``forked``: it is
    forked from a process that has imported it, which most tests do not notice."""

    def __init__(self, place: Path, *options: str, forked: bool = True, **environ: str) -> None:
        self.folder, self.home = place / "pipelines", place / "home"
        self.folder.mkdir(exist_ok=True)
        (place / "source_shop.py").write_text(SOURCE)
        self.source = f"airbyte:{sys.executable} {place / 'source_shop.py'}"
        kept = {
            k: v
            for k, v in os.environ.items()
            if k in KEPT or k.startswith(("PIP_", "UV_", "SSL_"))
        }
        env = kept | {"PENSTOCK_HOME": str(self.home), "PENSTOCK_DAEMON": "0"} | environ
        words = ["ui", str(self.folder), "--no-open", *options, "--json"]
        self.process: subprocess.Popen[str] | forked_cli.Started
        if forked and sys.platform == "linux":
            self.process = forked_cli.Started(words, cwd=place, env=env)
        else:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "penstock", *words],
                cwd=place, env=env, stdout=subprocess.PIPE, text=True,
            )  # fmt: skip
        assert self.process.stdout is not None
        text = ""
        while "}" not in text:
            line = self.process.stdout.readline()
            assert line, "the server did not start"
            text += line
        self.address = json.loads(text)["address"]
        split = urlsplit(self.address)
        self.host, self.port = split.hostname or "", split.port or 0
        self.base = f"http://{split.netloc}"
        self.cookie = ""

    def ask(
        self, path: str, method: str = "GET", form: dict[str, object] | None = None,
        **headers: str,
    ) -> Answered:  # fmt: skip
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        given = {"host": f"{self.host}:{self.port}", "cookie": self.cookie}
        body = None
        if form is not None:
            body = urlencode(form, doseq=True)
            given["content-type"] = "application/x-www-form-urlencoded"
        given |= {k.replace("_", "-"): v for k, v in headers.items()}
        connection.request(method, path, body, given)
        try:
            return Answered(connection.getresponse())
        finally:
            connection.close()

    def enter(self) -> "Pages":
        answered = self.ask(self.address.removeprefix(self.base))
        assert answered.status == 200
        self.cookie = answered.headers["set-cookie"].partition(";")[0]
        return self

    def edit_page(self, file: str = "shop.yaml") -> str:
        """Returns the page with the form: both connectors are asked first."""
        for _ in range(400):
            asked = self.ask(f"/p/{file}/ask", "POST", {}, origin=self.base)
            if (job := asked.headers["location"]).startswith("/p/"):
                return self.ask(f"/p/{file}/edit").text
            while "every 1s" in (said := self.ask(f"{job}/part").text):
                time.sleep(0.05)
            assert "fault" not in said, said
        raise AssertionError("the connector was not asked")

    def write(self, name: str = "shop.yaml", **config: object) -> Path:
        file = self.folder / name
        settings = json.dumps(config)
        file.write_text(
            f"# ours\npipeline: {name.partition('.')[0]}\n"
            f"source:\n  use: {json.dumps(self.source)}\n"
            f"  config: {settings}  # kept\ndestination:\n  use: parquet:{self.folder}/lake\n"
        )
        return file

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(20)

    def stop(self) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            self.process.wait(20)
        assert self.process.stdout is not None
        self.process.stdout.close()
