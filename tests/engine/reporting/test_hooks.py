"""Hooks: real programs and a real server on loopback are told how runs of a real source ended."""

import json
import os
import socket
import stat
import sys
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from quick_runs import Bench, Silent

from penstock.config.load import load_pipeline, parse_pipeline
from penstock.config.pipeline import Pipeline
from penstock.engine.reporting import hooks as module
from penstock.engine.reporting.hooks import Hooks
from penstock.engine.run.run import Run
from penstock.engine.run.start import run_pipeline
from penstock.errors import Cancelled, ConfigError, SourceError
from penstock.model.report import Report

pytestmark = pytest.mark.dear

SOURCE = """
schema = {"type": "object", "properties": {"n": {"type": "integer"}}}
if "--discover" in sys.argv:
    say({"streams": [{"tap_stream_id": "s", "stream": "s", "schema": schema,
                      "key_properties": ["n"]}]}); sys.exit(0)
if "--catalog" not in sys.argv: sys.exit(2)
say({"type": "SCHEMA", "stream": "s", "schema": schema, "key_properties": ["n"]})
for n in range(3): say({"type": "RECORD", "stream": "s", "record": {"n": n}})
say({"type": "STATE", "value": {"at": 2}})
sys.exit(WORLD.get("exit", 0))
"""
SECRET = "T0/B1/quite-secret-path"


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    return Bench(tmp_path, monkeypatch)


def program(folder: Path, body: str, name: str = "notify") -> list[str]:
    path = folder / name
    path.write_text(f"#!{sys.executable}\nimport os, sys, time\n{body}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return [str(path)]


def keeping(folder: Path, name: str) -> list[str]:
    """A program that keeps what it is told, line after line."""
    return program(
        folder, f"open({str(folder / name)!r}, 'a').write(sys.stdin.read() + '\\n')", name + ".py"
    )


def told(folder: Path, name: str) -> list[dict[str, Any]]:
    path = folder / name
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def run(bench: Bench, use: str, **parts: Any) -> tuple[Report, list[str]]:
    observer = Silent()
    pipeline = load_pipeline(bench.file(use, **parts), env=dict(os.environ))
    return run_pipeline(pipeline, bench.home, observer=observer), observer.heard


def test_each_hook_gets_the_report_of_its_runs(bench: Bench, tmp_path: Path) -> None:
    use = bench.connector(SOURCE)
    hooks = {"on_success": keeping(tmp_path, "good"), "on_failure": keeping(tmp_path, "bad")}
    bench.set()
    report, _ = run(bench, use, hooks=hooks)
    assert (report.exit_code, report.notes) == (0, [])
    assert told(tmp_path, "good") == [
        json.loads((bench.home.runs / report.run / "report.json").read_text())
    ]
    bench.set(exit=1)
    failed, _ = run(bench, use, hooks=hooks)
    assert failed.exit_code == 4
    (document,) = told(tmp_path, "bad")
    assert (document["run"], document["status"], document["exit_code"]) == (failed.run, "failed", 4)
    assert len(told(tmp_path, "good")) == 1


def test_a_run_that_did_not_begin_tells_on_failure(bench: Bench, tmp_path: Path) -> None:
    bench.set()
    with pytest.raises(SourceError):
        run(bench, "singer:./no-such-tap", hooks={"on_failure": keeping(tmp_path, "bad")})
    (document,) = told(tmp_path, "bad")
    assert {k: document[k] for k in ("run", "pipeline", "status", "exit_code")} == {
        "run": None, "pipeline": "quick", "status": "failed", "exit_code": 4,
    }  # fmt: skip
    assert "no-such-tap" in document["error"]["message"]


def test_a_cancelled_run_tells_on_failure(tmp_path: Path) -> None:
    hooks = Hooks(_pipeline(on_failure=keeping(tmp_path, "bad")), Silent())
    hooks.failed(Cancelled("stopped by SIGTERM"))
    assert [(t["status"], t["exit_code"]) for t in told(tmp_path, "bad")] == [("cancelled", 7)]


def test_a_dry_run_tells_nobody(bench: Bench, tmp_path: Path) -> None:
    bench.set()
    use = bench.connector(SOURCE)
    pipeline = load_pipeline(
        bench.file(use, hooks={"on_success": keeping(tmp_path, "good")}), env={}
    )
    run_pipeline(pipeline, bench.home, observer=Silent(), dry_run=True)
    assert told(tmp_path, "good") == []


def test_a_hook_that_fails_is_a_note_and_the_run_is_what_it_was(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.set()
    monkeypatch.setenv("SHOP_KEY", SECRET)
    use = bench.connector(SOURCE)
    command = program(tmp_path, f"print('no route, {SECRET}', file=sys.stderr); sys.exit(3)")
    report, heard = run(
        bench, use, source={"config": {"key": "${SHOP_KEY}"}}, hooks={"on_success": command}
    )
    assert (report.exit_code, report.status) == (0, "succeeded")
    (note,) = report.notes
    assert note.startswith(
        f"hooks.on_success failed, which does not affect the run: {command[0]} ended with 3: "
    )
    assert note in heard and "no route" in note
    kept = json.loads((bench.home.runs / report.run / "report.json").read_text())
    assert kept["notes"] == [note]
    assert not [line for line in (note, *heard) if SECRET in line]  # L10


def test_a_missing_program_is_refused_before_the_run(bench: Bench, tmp_path: Path) -> None:
    bench.set()
    with pytest.raises(ConfigError) as refused:
        run(bench, bench.connector(SOURCE), hooks={"on_failure": [str(tmp_path / "no-such")]})
    assert refused.value.code == "config.hook" and "on_failure" in str(refused.value)
    assert list(bench.home.runs.iterdir()) == []


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("time.sleep(60)", "was still running after 1 s"),
        ("os.close(0); os.close(1); time.sleep(60)", "was still running after 1 s"),
        ("sys.stdin.read(); sys.exit(1)", "ended with 1"),
    ],
)
def test_a_command_has_its_time(tmp_path: Path, body: str, said: str) -> None:
    pid = tmp_path / "pid"
    command = program(tmp_path, f"open({str(pid)!r}, 'w').write(str(os.getpid()))\n{body}")
    observer = Silent()
    before = time.monotonic()
    Hooks(_pipeline(on_failure=command, timeout="1s"), observer).failed(SourceError("x" * 200_000))
    assert time.monotonic() - before < 10
    assert said in observer.heard[-1]
    assert not Path(f"/proc/{pid.read_text()}").exists()


def test_a_command_may_answer_much_and_read_nothing(tmp_path: Path) -> None:
    command = program(tmp_path, "print('x' * 3_000_000)")
    observer = Silent()
    Hooks(_pipeline(on_failure=command), observer).failed(SourceError("x" * 200_000))
    assert observer.heard == []


# ---------------------------------------------------------------------------------------- URLs

Answer = Callable[[BaseHTTPRequestHandler], None]


class Server:
    """Answers each POST with the next of ``answers``, keeps what came."""

    def __init__(self) -> None:
        self.answers: list[Answer] = []
        self.came: list[tuple[str, str, bytes]] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                outer.came.append((self.path, self.headers["Content-Type"], body))
                outer.answers.pop(0)(self)

            def log_message(self, *args: Any) -> None: ...

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}/{SECRET}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


def code(number: int, **headers: str) -> Answer:
    def answer(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(number)
        for name, value in {"Content-Length": "0", **headers}.items():
            handler.send_header(name, value)
        handler.end_headers()

    return answer


def drip(handler: BaseHTTPRequestHandler) -> None:
    """A byte every 0.2 s: no single wait of a socket is ever long."""
    try:
        for byte in b"HTTP/1.1 200 OK\r\nX-Slow: " + b"a" * 100:
            handler.wfile.write(bytes([byte]))
            time.sleep(0.2)
    except OSError:  # the client has gone
        return


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setattr(module, "_PAUSE", 0.01)
    found = Server()
    yield found
    found.close()


def post(server: Server, *answers: Answer, timeout: str = "5s") -> tuple[int, str | None]:
    """How many requests came, and what the hook said."""
    server.answers.extend(answers)
    observer = Silent()
    Hooks(_pipeline(on_failure=server.url, timeout=timeout), observer).failed(SourceError("gone"))
    return len(server.came), next(iter(observer.heard), None)


def test_a_url_gets_the_report(bench: Bench, server: Server) -> None:
    bench.set()
    server.answers.append(code(204))
    report, heard = run(bench, bench.connector(SOURCE), hooks={"on_success": server.url})
    ((path, kind, body),) = server.came
    assert (path, kind, json.loads(body)["run"]) == (f"/{SECRET}", "application/json", report.run)
    assert report.notes == [] and not [line for line in heard if SECRET in line]


def test_a_server_that_is_busy_is_asked_again(server: Server) -> None:
    assert post(server, code(503), code(429), code(200)) == (3, None)


def test_a_server_is_asked_three_times_at_most(server: Server) -> None:
    came, said = post(server, *[code(500)] * 4)
    assert came == 3 and said is not None and said.endswith("http://127.0.0.1 answered 500")


@pytest.mark.parametrize("number", [400, 404])
def test_a_refusal_is_final(server: Server, number: int) -> None:
    came, said = post(server, code(number), code(200))
    assert came == 1 and said is not None and said.endswith(f"answered {number}")
    assert SECRET not in said  # L10: the path of such an address is its secret


def test_no_redirect_is_followed(server: Server) -> None:
    came, said = post(server, code(307, Location=server.url + "/elsewhere"), code(200))
    assert came == 1 and said is not None and said.endswith("answered 307")


def test_a_server_that_answers_by_bytes_has_its_time(server: Server) -> None:
    before = time.monotonic()
    _, said = post(server, drip, timeout="1s")
    assert said is not None and said.endswith("http://127.0.0.1 did not answer in time")
    assert time.monotonic() - before < 5


def test_a_port_where_nobody_listens(server: Server) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}/{SECRET}"
        observer = Silent()
        Hooks(_pipeline(on_failure=url), observer).failed(SourceError("gone"))
    (said,) = observer.heard
    assert "http://127.0.0.1 cannot be reached: " in said and SECRET not in said


@pytest.mark.parametrize("words", [b"SSH-2.0-OpenSSH_9.2\r\n", b"", b"HTTP/1.1 abc\r\n\r\n"])
def test_a_server_that_speaks_something_else(
    words: bytes, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(module, "_PAUSE", 0.01)
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def answer() -> None:
            for _ in range(3):
                there, _address = listening.accept()
                with there:
                    there.recv(100)
                    there.sendall(words)

        threading.Thread(target=answer, daemon=True).start()
        observer = Silent()
        url = f"http://127.0.0.1:{listening.getsockname()[1]}/{SECRET}"
        Hooks(_pipeline(on_failure=url), observer).failed(SourceError("gone"))
    (said,) = observer.heard
    assert "in time" not in said and SECRET not in said
    assert "Traceback" not in capfd.readouterr().err


def test_a_password_in_an_address_is_not_said() -> None:
    observer = Silent()
    url = "http://user:hush-hush@127.0.0.1/x"
    Hooks(_pipeline(on_failure=url, timeout="2s"), observer).failed(SourceError("gone"))
    assert "hush" not in "".join(observer.heard) and observer.heard


def test_a_full_disk_after_a_hook_costs_no_run(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.set()
    command = program(tmp_path, "sys.exit(1)")
    whole, calls = Run.write_report, list[int]()

    def full(self: Run, report: Report) -> None:
        calls.append(1)
        if len(calls) > 1:
            raise OSError(28, "No space left on device")
        whole(self, report)

    monkeypatch.setattr(Run, "write_report", full)
    report, heard = run(bench, bench.connector(SOURCE), hooks={"on_success": command})
    assert report.exit_code == 0 and len(calls) == 2
    assert any("No space left" in line for line in heard)


# ------------------------------------------------------------------------------------- the file


def _pipeline(**hooks: Any) -> Pipeline:
    return parse_pipeline(json.dumps(_document(hooks)), {})


def _document(hooks: Any) -> dict[str, Any]:
    return {
        "pipeline": "p", "source": {"use": "singer:./tap"},
        "destination": {"use": "parquet:./lake"}, "hooks": hooks,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("hooks", "said"),
    [
        ({"on_success": "notify.sh"}, "hooks.on_success must be a URL"),
        ({"on_success": "ftp://host/x"}, "hooks.on_success must be a URL"),
        ({"on_success": "https://[::1"}, "hooks.on_success must be a URL"),
        ({"on_success": []}, "hooks.on_success"),
        ({"on_success": ["a", ""]}, "hooks.on_success[1] is blank"),
        ({"on_failure": ["./a", "--token", "${TOKEN}"]}, "other users see the arguments"),
        ({"on_failur": "https://h"}, "unknown key 'on_failur'"),
        ({"timeout": 0}, "hooks.timeout"),
    ],
)
def test_what_is_no_hook_is_refused(hooks: Any, said: str) -> None:
    with pytest.raises(ConfigError) as refused:
        parse_pipeline(json.dumps(_document(hooks)), {"TOKEN": SECRET})
    text = f"{refused.value} {getattr(refused.value, 'problems', '')}"
    assert said in text and SECRET not in text


def test_a_url_may_come_from_a_variable() -> None:
    text = json.dumps(_document({"on_failure": "${HOOK}"}))
    pipeline = parse_pipeline(text, {"HOOK": f"https://h/{SECRET}"})
    assert pipeline.hooks.on_failure == f"https://h/{SECRET}"
    assert f"https://h/{SECRET}" in pipeline.secret_values
