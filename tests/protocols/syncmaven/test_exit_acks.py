"""The page knows no ``stream-result``: when exit code 0 stands for one, and when it must not (issue
35, A1; L1, L8). Each destination is a process."""

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from test_syncmaven_write import ORDERS, Wrote, mark, rows, stream, write

from penstock.model.events import Error
from penstock.protocols.syncmaven import session
from penstock.protocols.syncmaven.host import Host
from penstock.protocols.writing import END, EXIT_ACK, Acks, Feed, GivesResults, StreamDone
from penstock.runtimes.contract import RunTimeouts
from penstock.runtimes.process import ProcessRuntime

pytestmark = pytest.mark.dear

PAGE = Path(__file__).parents[2] / "stubs" / "page_destination.py"
FEW = [*range(1, 4)]
MANY = [*range(1, 3001)]  # more than a pipe and a reader's buffer hold
ALL = {"received": 3, "skipped": 0, "success": 3, "failed": 0}


class Page:
    """A destination written from the page, and the rows that it has."""

    def __init__(self, folder: Path) -> None:
        self.kept = folder / "kept"
        self._told = folder / "told.json"

    def write(self, *feed: Feed, told: dict[str, Any] | None = None, **request: Any) -> Wrote:
        self._told.write_text(json.dumps({"kept": str(self.kept), **(told or {})}))
        command = [sys.executable, str(PAGE), str(self._told)]
        to = Host(lambda env: ProcessRuntime(command, env=dict(env), role="destination"))
        request.setdefault("streams", (stream(into="contacts"),))
        return write(to, *feed, **request)

    def ids(self) -> list[int]:
        return [int(line) for line in self.kept.read_text().split()] if self.kept.exists() else []


@pytest.fixture
def page(tmp_path: Path) -> Page:
    return Page(tmp_path)


def some(ids: list[int]) -> Feed:
    return rows(*ids, email="x" * 1000 if ids is MANY else "a@x.io")


@pytest.mark.parametrize("ids", [FEW, MANY])
@pytest.mark.parametrize("told", [{}, {"closes": True}])
def test_l1_a_destination_written_from_the_page_acks_by_its_end(
    page: Page, told: dict[str, Any], ids: list[int]
) -> None:
    wrote = page.write(some(ids), mark(1), told=told)
    assert (wrote.acks, wrote.errors, wrote.exit) == ([1, END], [], 0)
    assert wrote.counted == {EXIT_ACK: len(ids)}, "the report says what the ack was"
    assert page.ids() == ids


@pytest.mark.parametrize("specs", [{}, {"streams": ["contacts"]}])
def test_a_page_destination_need_not_describe_its_streams(
    page: Page, specs: dict[str, Any]
) -> None:
    """The page shows that ``streams-spec`` comes, and not what it holds."""
    wrote = page.write(rows(*FEW), mark(1), told={"specs": specs})
    assert (wrote.acks, wrote.errors, page.ids()) == ([1, END], [], FEW)


@pytest.mark.parametrize("options", [{"checkpoint_every": 2}, {"parallelism": 3}])
def test_each_of_its_processes_acks_by_its_end(page: Page, options: dict[str, int]) -> None:
    wrote = page.write(rows(*range(1, 9)), mark(1), StreamDone(ORDERS), options=options)
    assert (wrote.acks, wrote.errors) == ([1, END], [])
    assert sorted(page.ids()) == [*range(1, 9)]


@pytest.mark.parametrize("ids", [FEW, MANY])
@pytest.mark.parametrize("acks", [*Acks])
def test_l1_one_that_ends_with_0_amid_its_rows_acks_nothing(
    page: Page, ids: list[int], acks: Acks
) -> None:
    """All of a small stream is in its reader's buffer by then."""
    wrote = page.write(some(ids), mark(1), told={"quits_at": 2}, acks=acks)
    assert (wrote.acks, len(wrote.errors), wrote.exit, page.ids()) == ([], 1, 1, [])


@pytest.mark.parametrize(
    ("told", "error"),
    [
        ({"code": 3}, "destination.exited"),
        ({"halt": {"status": "error"}}, "destination.halted"),
        ({"halt": {}}, "destination.halted"),
        ({"leaves": 60}, "destination.exited"),
        ({"leaves": 60, "quiet": True}, "destination.exited"),
        ({"result": {"received": 3}}, "destination.no_result"),
        ({"result": {**ALL, "success": 2, "failed": 1}}, "destination.rows_failed"),
    ],
)
@pytest.mark.parametrize("acks", [Acks.echo, Acks.at_end])
def test_l1_an_end_that_is_not_its_own_and_clean_acks_nothing(
    page: Page, told: dict[str, Any], error: str, acks: Acks
) -> None:
    wrote = page.write(rows(*FEW), mark(1), told=told, acks=acks)
    assert (wrote.acks, wrote.errors, wrote.exit) == ([], [error], 1)


def test_a_halt_with_ok_and_exit_code_0_is_a_halt(page: Page) -> None:
    wrote = page.write(rows(*FEW), mark(1), told={"halt": {"status": "ok"}})
    assert (wrote.acks, wrote.errors, len(wrote.halted)) == ([], [], 1)


def test_what_waits_in_the_pipe_at_its_end_acks_nothing() -> None:
    """L1. Its output comes in time, but ``end-stream`` was never read."""
    code = (
        "import sys; r = sys.stdin.readline; t = r();"
        """print('{"type": "streams-spec", "streams": [{"name": "contacts"}]}', flush=True)"""
        """ if 'describe' in t else [r() for _ in range(3)] and __import__('time').sleep(1)"""
    )
    to = Host(lambda env: ProcessRuntime([sys.executable, "-c", code], role="destination"))
    wrote = write(to, rows(*FEW), mark(1), streams=(stream(into="contacts"),))
    assert (wrote.acks, wrote.errors) == ([], ["destination.exited"])
    (error,) = [a for a in wrote.answers if isinstance(a, Error)]
    assert "read all of its input" in (error.hint or "")


# -- who has given a result


def test_l1_once_a_result_was_given_a_missing_one_is_a_failure(page: Page) -> None:
    gave = page.write(rows(*FEW), mark(1), told={"result": ALL})
    assert gave.acks == [1, END] and EXIT_ACK not in gave.counted
    assert len([a for a in gave.answers if isinstance(a, GivesResults)]) == 1
    for acks in Acks:
        lacks = page.write(rows(*FEW), mark(1), gives_results=True, acks=acks)
        assert (lacks.acks, lacks.errors) == ([], ["destination.exited"]), acks
        (error,) = [a for a in lacks.answers if isinstance(a, Error)]
        assert "answer with a stream-result" in (error.hint or "")


@pytest.mark.parametrize("result", [{**ALL, "failed": 9}, {"received": 1}, {}])
def test_a_bad_result_tells_that_it_gives_them(page: Page, result: dict[str, Any]) -> None:
    wrote = page.write(rows(*FEW), mark(1), told={"result": result})
    assert wrote.acks == [] and wrote.errors
    assert [a for a in wrote.answers if isinstance(a, GivesResults)]


def test_l1_one_process_without_the_result_that_another_gave_acks_nothing(tmp_path: Path) -> None:
    """Of several at once, and of those after a checkpoint."""
    (tmp_path / "code.py").write_text(
        "import json, sys\n"
        "mine = 0\n"
        "for line in iter(sys.stdin.readline, ''):\n"
        "    m = json.loads(line)\n"
        "    if m['type'] == 'describe-streams':\n"
        "        streams = [{'name': 'contacts'}]\n"
        "        print(json.dumps({'type': 'streams-spec', 'streams': streams}), flush=True)\n"
        "    if m['type'] == 'row':\n"
        "        mine, first = mine + 1, (mine and first) or m['payload']['row']['id'] == 1\n"
        "    if m['type'] == 'end-stream':\n"
        "        n = {'received': mine, 'skipped': 0, 'success': mine, 'failed': 0}\n"
        "        print(json.dumps({'type': 'stream-result', **n}) if first else '', flush=True)\n"
        "        break\n"
    )
    command = [sys.executable, str(tmp_path / "code.py")]
    to = Host(lambda env: ProcessRuntime(command, role="destination"))
    for options in ({"parallelism": 4}, {"checkpoint_every": 3}):
        wrote = write(
            to, rows(*range(1, 13)), mark(1), streams=(stream(into="contacts"),), options=options
        )
        assert (wrote.acks, len(wrote.errors)) == ([], 1), options


# -- SDK destinations: they end with 0 on SIGTERM, and on an empty line


@pytest.fixture(scope="module")
def sdks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a destination on Penstock's SDK, and one that ends as the node CDK's do."""
    folder = tmp_path_factory.mktemp("sdks")
    (folder / "ours.py").write_text(OURS)
    (folder / "like_node.py").write_text(LIKE_NODE)
    (folder / "between.py").write_text(BETWEEN)
    return folder


@pytest.fixture(scope="module")
def node(sdks: Path) -> Path:
    """The folder with a destination on the real node CDK."""
    npm = shutil.which("npm")
    if npm is None:
        pytest.skip("there is no npm")
    (sdks / "package.json").write_text('{"name": "kept", "private": true}')
    install = [npm, "install", "--no-audit", "--no-fund", "--ignore-scripts", CDK]
    subprocess.run(install, cwd=sdks, check=True, capture_output=True, timeout=300)
    (sdks / "node.js").write_text(NODE)
    return sdks


def between(folder: Path, inner: str, first: str, at: str, **request: Any) -> Wrote:
    """A write into ``inner``, whose stdin passes through a program that reads all of it. Before the
    message ``at`` it gets ``first``: SIGTERM, an empty line or nothing."""
    program = sys.executable if inner.endswith(".py") else "node"
    command = [sys.executable, str(folder / "between.py"), first, at, program, str(folder / inner)]
    to = Host(lambda env: ProcessRuntime(command, env=dict(env), role="destination"))
    return write(to, rows(*FEW), mark(1), streams=(stream(into="contacts"),), **request)


@pytest.mark.parametrize("acks", [Acks.echo, Acks.strict])
@pytest.mark.parametrize("at", ["row", "end-stream"])
@pytest.mark.parametrize(
    ("inner", "first"),
    [("ours.py", "sigterm"), ("like_node.py", "sigterm"), ("like_node.py", "line")],
)
def test_l1_a_destination_of_an_sdk_that_ends_with_0_acks_nothing(
    sdks: Path, inner: str, first: str, at: str, acks: Acks
) -> None:
    """In its first run too, before it has given a result: its dialect has them."""
    wrote = between(sdks, inner, first, at, acks=acks)
    assert (wrote.acks, wrote.errors) == ([], ["destination.exited"])
    (error,) = [a for a in wrote.answers if isinstance(a, Error)]
    assert "exited with code 0" in error.message
    if (at, acks) == ("row", Acks.echo):
        assert between(sdks, inner, "nothing", at).acks == [1, END]


@pytest.mark.network
@pytest.mark.parametrize("at", ["row", "end-stream"])
def test_l1_a_destination_of_the_node_cdk_that_ends_at_an_empty_line_acks_nothing(
    node: Path, at: str
) -> None:
    """(At SIGTERM it reads on for as long as there are lines, and gives its result.)"""
    wrote = between(node, "node.js", "line", at)
    assert (wrote.acks, wrote.errors) == ([], ["destination.exited"])
    (error,) = [a for a in wrote.answers if isinstance(a, Error)]
    assert "exited with code 0" in error.message
    if at == "row":
        assert between(node, "node.js", "nothing", at).acks == [1, END]


CDK = "@syncmaven/node-cdk@0.0.11"
NODE = """
const { stdProtocol } = require("@syncmaven/node-cdk");
const { z } = require("zod");
stdProtocol({
  name: "kept", credentialsType: z.object({}), defaultStream: "contacts",
  streams: [{ name: "contacts", rowType: z.object({}).passthrough(),
    createOutputStream: async () => ({ handleRow: async () => {} }) }],
});
"""
OURS = """
import time
from typing import TypedDict
from penstock.sdk import Connector, StreamWriter, run

class Contact(TypedDict):
    id: int

class Contacts(StreamWriter):
    name, row, batch_size = "contacts", Contact, 100

    def write(self, rows):
        time.sleep(1)

run(Connector(description="kept", streams=[Contacts]))
"""
LIKE_NODE = """
import json, signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
for line in iter(sys.stdin.readline, ""):
    if not line.strip():
        sys.exit(0)
    if json.loads(line)["type"] == "describe-streams":
        print('{"type": "stream-spec", "payload": {"streams": [{"name": "contacts"}]}}', flush=True)
    if json.loads(line)["type"] == "end-stream":
        time.sleep(1)
        n = '{"received": 3, "skipped": 0, "success": 3, "failed": 0}'
        print('{"type": "stream-result", "payload": ' + n + '}', flush=True)
        break
"""
BETWEEN = """
import subprocess, sys, time
inner = subprocess.Popen(sys.argv[3:], stdin=subprocess.PIPE)
done = False
for line in iter(sys.stdin.buffer.readline, b""):
    if not done and b'"' + sys.argv[2].encode() + b'"' in line:
        done = True
        if sys.argv[1] == "line":
            line = b"\\n" + line
        if sys.argv[1] == "sigterm":
            time.sleep(1)  # it starts
            inner.terminate()
    try:
        inner.stdin.write(line)
        inner.stdin.flush()
    except BrokenPipeError:
        pass
    if inner.poll() is not None or b"end-stream" in line:
        break
if sys.argv[1] != "nothing":
    inner.stdin.close()
sys.exit(inner.wait())
"""


# -- acks: at_end, strict


@pytest.mark.parametrize("at", ["streams-spec", "stream-spec"])
def test_at_end_exit_code_0_counts_in_either_dialect(page: Page, at: str) -> None:
    wrote = page.write(rows(*FEW), mark(1), told={"answer": at}, acks=Acks.at_end)
    assert (wrote.acks, wrote.errors, page.ids()) == ([1, END], [], FEW)


def test_at_end_a_result_counts_as_ever(page: Page) -> None:
    wrote = page.write(rows(*FEW), mark(1), told={"result": ALL}, acks=Acks.at_end)
    assert (wrote.acks, wrote.counted) == ([1, END], {})


def test_one_that_waits_for_the_end_of_its_input_is_served_at_end(
    page: Page, monkeypatch: pytest.MonkeyPatch
) -> None:
    """L11: else it is ended, and the log names the way."""
    monkeypatch.setattr(session, "_GRACE", 0.3)
    monkeypatch.setattr(session, "_PATIENCE", 0.3)
    wrote = page.write(rows(*FEW), mark(1), told={"loops": True}, acks=Acks.at_end)
    assert (wrote.acks, wrote.errors, page.ids()) == ([1, END], [], FEW)
    bounds = RunTimeouts(start=20, heartbeat=1, stop=2)
    wrote = page.write(rows(*FEW), mark(1), told={"loops": True}, timeouts=bounds)
    assert (wrote.acks, wrote.errors) == ([], ["destination.no_result"])
    assert "`acks: at_end`" in wrote.logged


def test_strict_takes_results_only(page: Page) -> None:
    wrote = page.write(rows(*FEW), mark(1), acks=Acks.strict)
    assert (wrote.acks, wrote.errors) == ([], ["destination.exited"])
    assert page.write(rows(*FEW), mark(1), told={"result": ALL}, acks=Acks.strict).acks == [1, END]
