"""Connectors as containers of a real engine: bytes, exit codes, files and ends, then whole runs.

One file, so that one worker starts one engine.
"""

import importlib.util
import json
import os
import platform
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import deltalake
import msgspec
import pyarrow as pa
import pytest
from container_images import ENGINE, engine_with_images
from container_kills import CONTAINER, DESTINATION, EVERYTHING, SOURCE, run_container_cell
from e2e_harness import end_all
from engine_daemon import missing
from pipelines import Heard, Site

from forked_cli import SCRIPT
from held_folders import held_by
from penstock.config.load import load_pipeline
from penstock.config.sections import (
    ContainerSettings,
    EnvironmentPermissions,
    FilesystemPermissions,
    Limits,
    NetworkPermissions,
    Permissions,
)
from penstock.engine.inspect.plan_check import plan_pipeline
from penstock.errors import ConfigError, PenstockError, SourceError
from penstock.model.catalog import Stream, StreamId, SyncMode
from penstock.model.events import Batch, ConnectorExited, Control, Error
from penstock.protocols.airbyte.package import PACKAGE as AIRBYTE
from penstock.protocols.reading import ReadRequest, StreamOverrides
from penstock.protocols.singer.package import PACKAGE as SINGER
from penstock.protocols.syncmaven.stream_keys import StreamKeys
from penstock.runtimes.container import orphans
from penstock.runtimes.container.engine import VARIABLE, find_engine
from penstock.runtimes.container.host_address import host_address
from penstock.runtimes.container.image import known_image
from penstock.runtimes.container.runtime import ContainerChannel, ContainerRuntime
from penstock.runtimes.contract import Argument, Image, PrivateFile, RunTimeouts, Start
from penstock.runtimes.masking import Masker
from penstock.sdk.testing import ScriptedHost
from penstock.store.keys import MemoryKeys
from penstock.tasks import spark_job
from penstock.tasks.child_process import packed

pytestmark = [pytest.mark.network, pytest.mark.usefixtures("engine"), pytest.mark.timeout(900)]

ROOT = Path(__file__).parents[2]
sys.path.append(str(ROOT / "tests" / "docs"))

from doc_follow import Folder  # noqa: E402

BINARY = "test/source-faker:7.2.1"
SHELL, PLAIN, BARE = "test/shell:1", "test/plain:1", "test/no-shell:1"


def image(name: str, **changes: Any) -> Image:
    return msgspec.structs.replace(known_image(find_engine(), name, "never"), **changes)


def runtime(name: str, *, shell: bool = True, **start: Any) -> ContainerRuntime:
    """``shell``: the image's is used, where it has one; else all goes through the engine."""
    found = image(name)
    found = msgspec.structs.replace(found, shell=found.shell and shell)
    return ContainerRuntime.of(Start(image=found, **start), found, Masker())


def everything(channel: ContainerChannel) -> bytes:
    out = bytearray()
    while data := channel.read(30):
        out += data
    return bytes(out)


def ran(name: str, *arguments: Argument, **options: Any) -> tuple[bytes, int | None, str]:
    """(stdout, exit code, stderr)."""
    with runtime(name, **options).open(arguments, RunTimeouts(stop=1)) as channel:
        out = everything(channel)
        return out, channel.wait(10), channel.stderr_tail()


def containers() -> list[str]:
    listed = subprocess.run(
        [ENGINE, "ps", "-a", "--filter", f"label={orphans.LABEL}", "--format", "{{.Names}}"],
        capture_output=True,
        text=True,
        check=True,
    )
    return listed.stdout.split()


@pytest.fixture(scope="module")
def engine() -> Iterator[str]:
    given = ENGINE == "podman" or os.environ.get("PENSTOCK_TEST_ENGINE")
    reason = None if given else missing()
    if reason is not None:
        if os.environ.get("PENSTOCK_REQUIRE_ENGINE") == "1":
            pytest.fail(f"PENSTOCK_REQUIRE_ENGINE=1, yet {reason}")
        pytest.skip(reason)
    with engine_with_images() as host:
        yield host


@pytest.fixture(autouse=True)
def nothing_is_left() -> Any:
    """L11: whatever a test does, no container of it is there afterwards."""
    yield
    assert containers() == []


# -- one run


@pytest.mark.parametrize("shell", [True, False])
def test_stdout_stderr_and_the_exit_code_come_apart(shell: bool) -> None:
    said = "echo out; echo err >&2; exit 3"
    assert ran(SHELL, said, shell=shell) == (b"out\n", 3, "err")


@pytest.mark.parametrize(
    ("command", "code"),
    [("exit 0", 0), ("exit 125", 125), ("exit 137", -9), ("exit 255", 255), ("kill -9 $$", -9)],
)
def test_exit_codes_and_signals_come_through(command: str, code: int) -> None:
    assert ran(SHELL, command)[1] == code


@pytest.mark.parametrize("shell", [True, False])
def test_what_is_fed_is_read_and_an_unfed_stdin_is_at_its_end(shell: bool) -> None:
    with runtime(SHELL, shell=shell).open(["cat"], RunTimeouts(), feed=True) as channel:
        data = os.urandom(3_000_000)
        feeding = threading.Thread(target=feed, args=(channel, data))
        feeding.start()
        assert everything(channel) == data
        feeding.join()
        assert channel.wait(10) == 0
    assert ran(SHELL, "cat; echo end", shell=shell)[0] == b"end\n"


def feed(channel: ContainerChannel, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[channel.write(view, 5) :]
    channel.end_input()


def test_an_input_that_ends_before_the_container_begins_is_an_empty_one() -> None:
    with runtime(SHELL).open(["cat; echo end"], RunTimeouts(), feed=True) as channel:
        channel.end_input()
        assert everything(channel) == b"end\n"


def test_drained_means_read_by_the_connector_itself() -> None:
    """Not by the engine: a destination must have taken all before its input is ended."""
    command = "head -c 3 >/dev/null; echo ready; sleep 2; cat >/dev/null; echo all"
    with runtime(SHELL).open([command], RunTimeouts(), feed=True) as channel:
        channel.write(b"x" * 100_000, 5)
        assert channel.read(20) == b"ready\n"
        assert not channel.drained(0.3)
        assert channel.drained(20)
        channel.end_input()
        assert everything(channel) == b"all\n"


@pytest.mark.parametrize("shell", [True, False])
@pytest.mark.parametrize("reads", [True, False])
def test_l1_a_clean_end_is_known_where_its_input_is_a_pipe_of_ours(
    shell: bool, reads: bool
) -> None:
    command = "head -c 3 >/dev/null; exit 0" if reads else "sleep 1; exit 0"
    with runtime(SHELL, shell=shell).open([command], RunTimeouts(), feed=True) as channel:
        channel.write(b"abc", 5)
        assert (everything(channel), channel.wait(20)) == (b"", 0)
        assert channel.ended_well() is (shell and reads)


@pytest.mark.parametrize("shell", [True, False])
def test_large_output_arrives_whole_and_who_does_not_read_holds_it_back(shell: bool) -> None:
    code = "head -c 60000000 /dev/zero; echo done >&2"
    with runtime(SHELL, shell=shell).open([code], RunTimeouts()) as channel:
        time.sleep(2)
        assert channel.stderr_tail() == ""  # it is not through with writing
        assert len(everything(channel)) == 60_000_000
        assert (channel.wait(10), channel.stderr_tail()) == (0, "done")


def test_nothing_said_is_none_and_not_the_end() -> None:
    with runtime(SHELL).open(["sleep 30"], RunTimeouts(stop=1)) as channel:
        assert channel.read(3) is None
        assert channel.wait(0.1) is None


def test_a_program_deaf_to_sigterm_is_killed_after_its_time() -> None:
    deaf = "trap '' TERM; echo ready; while :; do sleep 1; done"
    channel = runtime(SHELL).open([deaf], RunTimeouts(stop=1))
    assert channel.read(20) == b"ready\n"
    began = time.monotonic()
    channel.close()
    assert 1 <= time.monotonic() - began < 15
    assert containers() == []


def test_a_program_that_hears_sigterm_ends_by_itself() -> None:
    polite = "trap 'echo bye >&2; exit 42' TERM; echo ready; while :; do sleep 0.1; done"
    with runtime(SHELL).open([polite], RunTimeouts(stop=20)) as channel:
        assert channel.read(20) == b"ready\n"
        channel.stop()
        assert channel.wait(0) == 42
        assert channel.stderr_tail() == "bye"


# -- files (L10)


@pytest.mark.parametrize("user", ["test/shell:1", "test/user-shell:1"])
def test_l10_arguments_are_files_that_the_images_user_alone_can_read(user: str) -> None:
    """Also where the image's user is nobody of this machine's; nothing is left afterwards."""
    argument = PrivateFile("config.json", b"SECRET")
    with runtime(user).open(['cat "$1"; ls -l "$1"', "sh", argument], RunTimeouts()) as channel:
        (folder,) = held_by(os.getpid())
        assert folder.stat().st_mode & 0o077 == 0
        inside = image(user).user
        for path in folder.rglob("*"):
            assert (path.stat().st_uid, path.stat().st_mode & 0o077) == (inside, 0), path
        out = everything(channel).decode()
        asked = subprocess.run([ENGINE, "inspect", channel.name], capture_output=True, text=True)
        assert "SECRET" not in asked.stdout
        assert channel.private("config.json") == b"SECRET"
    assert out.startswith("SECRET-rw-------")
    assert not folder.exists()


def test_l10_only_what_the_connector_may_change_can_be_changed() -> None:
    kept = PrivateFile("kept.json", b"old", writable=True)
    command = 'echo x > "$1"; echo new > "$2"'
    arguments: list[Argument] = [command, "sh", PrivateFile("fixed.json", b"old"), kept]
    with runtime("test/user-shell:1").open(arguments, RunTimeouts()) as channel:
        everything(channel)
        channel.wait(10)
        assert channel.private("fixed.json") == b"old"
        assert channel.private("kept.json") == b"new\n"
        assert "Read-only file system" in channel.stderr_tail()


# -- what cannot run


@pytest.mark.parametrize(
    ("name", "code", "words"),
    [
        ("test/wrong:1", "source.not_found", "/no/such/program"),
        ("test/not-executable:1", "source.not_executable", "/etc/passwd"),
    ],
)
def test_an_image_without_its_command_says_what_is_missing(
    name: str, code: str, words: str
) -> None:
    with pytest.raises(SourceError) as caught:
        ran(name, "spec")
    assert caught.value.code in (code, code.replace("source.", "connector."))
    assert words in caught.value.message


def test_an_image_that_writes_to_stderr_only_is_quoted() -> None:
    """It is no connector, or one that cannot start: what it says is all that there is."""
    out, code, told = ran("test/stderr-only:1", "spec")
    assert (out, code, told) == (b"", 0, "only words")
    with pytest.raises(SourceError, match="only words"):
        AIRBYTE.source.spec(runtime("test/stderr-only:1"), RunTimeouts(), lambda _: None)


@pytest.mark.parametrize("name", ["test/shell:1", "test/user-shell:1"])
def test_a_file_that_the_images_user_may_not_open_is_its_own_error(
    name: str, tmp_path: Path
) -> None:
    """Also root's: inside it has no capabilities."""
    file = tmp_path / "file"
    file.write_text("x")
    file.chmod(0o600)
    os.chown(file, 4321, 4321)
    folder = Permissions(fs=FilesystemPermissions(allowed_preopens=(str(tmp_path),)))
    tmp_path.chmod(0o755)
    out, code, told = ran(name, f"cat {file}", permissions=folder)
    assert (out, code) == (b"", 1)
    assert f"'{file}': Permission denied" in told


def test_an_image_that_starts_nothing_is_refused_before_anything_is_made() -> None:
    with pytest.raises(SourceError, match="no entry point"):
        ran(PLAIN)


def test_an_image_that_is_not_there_says_how_to_get_it() -> None:
    with pytest.raises(PenstockError) as caught:
        known_image(find_engine(), "test/none:1", "never")
    assert caught.value.code == "connector.image_missing"
    assert f"{ENGINE} pull test/none:1" in str(caught.value.hint)


# -- ends (L11)

_OWNER = """
import sys
from penstock.runtimes.container.engine import VARIABLE, find_engine
from penstock.runtimes.container.image import known_image
from penstock.runtimes.container.runtime import ContainerRuntime
from penstock.runtimes.contract import PrivateFile, Start, RunTimeouts
from penstock.runtimes.masking import Masker
image = known_image(find_engine(), "test/shell:1", "never")
runtime = ContainerRuntime.of(Start(image=image), image, Masker())
channel = runtime.open([sys.argv[1], "sh", PrivateFile("c", b"x")], RunTimeouts())
print(channel.read(60).decode()[:5], flush=True)
sys.stdin.read()
"""


def owner(command: str) -> "subprocess.Popen[bytes]":
    """A process that holds a container which has begun."""
    process = subprocess.Popen(
        [sys.executable, "-c", _OWNER, command], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"
    return process


def gone_within(seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if containers() == []:
            return True
        time.sleep(0.1)
    return False


@pytest.mark.parametrize("command", ["echo ready; sleep 300", "echo ready; yes"])
def test_l11_the_container_of_a_killed_owner_goes_with_it(command: str) -> None:
    """Whether it sleeps or writes; its private files go too."""
    process = owner(command)
    (folder,) = held_by(process.pid)
    assert len(containers()) == 1
    process.kill()
    process.wait()
    assert gone_within(40)
    time.sleep(1)
    assert not folder.exists()


def test_l11_what_outlived_owner_and_supervisor_is_removed_by_the_next_start() -> None:
    process = owner("trap '' TERM; echo ready; sleep 300")
    (name,) = containers()
    below = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    for pid in [process.pid, *map(int, below)]:
        os.kill(pid, signal.SIGKILL)
    process.wait()
    time.sleep(1)
    assert containers() == [name]
    assert orphans.remove_orphans(find_engine()) == [name]


def test_l11_the_containers_of_a_living_owner_stay() -> None:
    process = owner("echo ready; sleep 300")
    (name,) = containers()
    assert orphans.remove_orphans(find_engine()) == []
    assert containers() == [name]
    process.kill()
    process.wait()
    assert gone_within(40)


# -- what it is held to (L10)


def held(command: str, **start: Any) -> tuple[bytes, int | None, str]:
    return ran(SHELL, command, **start)


def test_l10_nothing_is_granted_by_itself() -> None:
    """No capabilities and none to gain, no variable of ours, a bound on processes."""
    os.environ["NOT_FOR_IT"] = "leak"
    command = (
        "grep -E 'CapEff|CapBnd|NoNewPrivs' /proc/self/status; env;"
        " cat /sys/fs/cgroup/pids/pids.max /sys/fs/cgroup/pids.max 2>/dev/null"
    )
    out = held(command)[0].decode()
    del os.environ["NOT_FOR_IT"]
    lines = out.replace("\t", " ").splitlines()
    assert {"CapEff: 0000000000000000", "CapBnd: 0000000000000000", "NoNewPrivs: 1"} <= {*lines}
    assert "4096" in lines
    assert "leak" not in out


def test_l10_no_hosts_are_no_network() -> None:
    nowhere = Permissions(network=NetworkPermissions(allowed_hosts=()))
    assert held("ls /sys/class/net", permissions=nowhere)[0] == b"lo\n"
    assert b"eth0" in held("ls /sys/class/net")[0]


def test_l10_a_variable_that_is_allowed_comes_and_the_engine_does_not_tell_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("MY_TOKEN", "it's a 'secret'")
    monkeypatch.setenv("OTHER", "leak")
    named = Permissions(env=EnvironmentPermissions(allowed_vars=("MY_TOKEN", "UNSET")))
    command = 'echo "$MY_TOKEN" >&2; echo "$MY_TOKEN"; echo "$OTHER"; sleep 1'
    with runtime(SHELL, permissions=named).open([command], RunTimeouts()) as channel:
        asked = subprocess.run([ENGINE, "inspect", channel.name], capture_output=True, text=True)
        assert "MY_TOKEN" not in asked.stdout.replace(json.dumps(command)[1:-1], "")
        assert "secret" not in asked.stdout
        assert everything(channel) == b"it's a 'secret'\n\n"
        assert channel.stderr_tail() == "****"
    with pytest.raises(ConfigError, match="no shell"):
        runtime(BARE, permissions=named)


def test_l10_only_the_folders_that_are_named_are_there(tmp_path: Path) -> None:
    for name in ("open", "read", "shut"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").write_text(name)
    named = (f"{tmp_path}/open", f"{tmp_path}/read:ro")
    permissions = Permissions(fs=FilesystemPermissions(allowed_preopens=named))
    command = f"cd {tmp_path}; cat */file; echo new > open/new; echo new > read/new"
    out, _, err = held(command, permissions=permissions)
    assert out == b"openread"
    assert (tmp_path / "open" / "new").read_text() == "new\n"
    assert "Read-only file system" in err


def test_l10_more_memory_than_its_limit_ends_it_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The memory of all that runs inside, also where its first process lives on; the engine leaves
    nothing in the user's folder."""
    monkeypatch.chdir(tmp_path)
    for command in ("tail -c 300m /dev/zero", "(tail -c 300m /dev/zero); exit 3"):
        with pytest.raises(SourceError) as caught:
            held(command, limits=Limits(max_memory=64 << 20))
        assert caught.value.code == "source.memory"
        assert "64.0 MB" in caught.value.message
    assert held("exit 3", limits=Limits(max_memory=64 << 20))[1] == 3
    assert not list(tmp_path.iterdir())


def test_l10_what_is_asked_for_a_container_is_done() -> None:
    """Capabilities that are granted, files that cannot be changed, a bound on processes."""
    asked = ContainerSettings(read_only=True, capabilities=("CHOWN",), max_processes=40)
    command = (
        "grep CapEff /proc/self/status; touch /x; touch /tmp/x && ls /tmp;"
        " cat /sys/fs/cgroup/pids/pids.max /sys/fs/cgroup/pids.max 2>/dev/null"
    )
    out, _, err = held(command, container=asked)
    assert out.decode().replace("\t", " ").splitlines() == ["CapEff: 0000000000000001", "x", "40"]
    assert "Read-only file system" in err
    nowhere = Permissions(network=NetworkPermissions(allowed_hosts=()))
    with pytest.raises(ConfigError) as caught:
        held("true", container=ContainerSettings(network="host"), permissions=nowhere)
    assert "remove one of the two" in caught.value.problems[0]


def test_l10_what_cannot_be_held_is_refused() -> None:
    said = Permissions(
        network=NetworkPermissions(allow_private=False),
        fs=FilesystemPermissions(allowed_preopens=("data",)),
    )
    with pytest.raises(ConfigError) as caught:
        runtime(SHELL, permissions=said, limits=Limits(max_keys=1))
    keys = [p.split(" cannot be enforced")[0] for p in caught.value.problems]
    assert keys == [
        "permissions.network.allow_private",
        "permissions.fs.allowed_preopens",
        "limits.max_keys",
    ]


# -- the hosts of a list (L10)


class Echo:
    """A server of this machine that says which connection it has, in HTTP and in bytes."""

    def __init__(self, host: str) -> None:
        self.listener = socket.create_server((host, 0))
        self.heard: list[bytes] = []
        self.port: int = self.listener.getsockname()[1]
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            with client:
                asked = client.recv(65536)
                if asked.startswith(b"POST ") and b"{" not in asked:
                    asked += client.recv(65536)
                self.heard.append(asked)
                http = asked.startswith((b"GET ", b"POST "))
                head = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n" if http else b""
                client.sendall(head + (b"hello" if http else asked[::-1]))


def allowed(*hosts: str, private: bool | None = None) -> Permissions:
    return Permissions(network=NetworkPermissions(allowed_hosts=hosts, allow_private=private))


def asked_by_proxy(url: str) -> str:
    return (
        "import urllib.request as u, urllib.error as e\n"
        f"try: print(u.urlopen('{url}', timeout=20).read().decode())\n"
        "except e.HTTPError as x: print(x.code, x.read().decode())\n"
    )


def through(host: str, port: int) -> str:
    return (
        "import socket\n"
        f"s = socket.create_connection(('{host}', {port}), 20); s.sendall(b'abc')\n"
        "print(s.recv(9).decode())\n"
    )


@pytest.fixture
def server() -> Iterator[Echo]:
    """On an address that a container of an ordinary network reaches."""
    address = host_address(find_engine(), None)
    made = Echo(address or "")
    yield made
    made.listener.close()


def python(code: str, permissions: Permissions | None) -> tuple[str, str]:
    """(stdout, stderr) of a program in a container."""
    out, _, err = ran("test/plain:1", "python3", "-c", code, permissions=permissions)
    return out.decode().strip(), err


def test_l10_an_allowed_host_is_reached_by_its_name_and_by_the_proxy(
    server: Echo, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Any protocol over TCP, where the list has the port; HTTP, with ``CONNECT`` or without."""
    name = "db.corp.test"
    known = socket.getaddrinfo
    address = server.listener.getsockname()[0]

    def lookup(host: str, *a: Any, **kw: Any) -> Any:
        return known(address if host == name else host, *a, **kw)

    monkeypatch.setattr(socket, "getaddrinfo", lookup)
    listed = allowed(f"{name}:{server.port}")
    assert python(through(name, server.port), listed)[0] == "cba"
    assert python(asked_by_proxy(f"http://{name}:{server.port}/x?y=1"), listed)[0] == "hello"
    tunnel = (
        "import http.client as h\n"
        "c = h.HTTPConnection('127.0.0.1', 3128, timeout=20)\n"
        f"c.set_tunnel('{address}', {server.port}); c.request('GET', '/')\n"
        "print(c.getresponse().read().decode())\n"
    )
    assert python(tunnel, allowed(address))[0] == "hello"


def test_l10_beside_the_list_there_is_no_way_out(server: Echo) -> None:
    """Not to an address that an ordinary container reaches, whatever it does with the proxy."""
    address = server.listener.getsockname()[0]
    direct = through(address, server.port)
    assert python(direct, None)[0] == "cba"
    listed = allowed("db.corp.test:5432", "*.corp.test", "localhost:1")
    assert "unreachable" in python(direct, listed)[1]
    assert held("ls /sys/class/net", permissions=listed)[0] == b"lo\n"
    url = f"http://{address}:{server.port}/"
    for narrow in (listed, allowed(f"{address}:{server.port + 1}", private=True)):
        said, _ = python(asked_by_proxy(url), narrow)
        assert said.startswith("403 ") and "is not in network.allowed_hosts" in said
    for wide in (allowed("*"), allowed("*", private=False)):
        said, _ = python(asked_by_proxy(url), wide)
        assert said.startswith("403 ") and "private address" in said
    assert python(asked_by_proxy(url), allowed("*", private=True))[0] == "hello"
    nothing = "import socket; s = socket.create_connection(('127.0.0.1', 3128)); s.sendall(b'{}');"
    for line in ("GET / HTTP/1.1\\r\\n\\r\\n", "CONNECT x\\r\\n\\r\\n", "a" * 70_000):
        said, _ = python(f"{nothing.format(line)} print(s.recv(99))", listed)
        assert "HTTP/1.1 4" in said


def test_l10_the_log_tells_what_was_refused_and_no_secret() -> None:
    told: list[str] = []
    found = image("test/plain:1")
    start = Start(image=found, permissions=allowed("db.corp.test"))
    ask = asked_by_proxy("http://hush.elsewhere.test/")
    runtime = ContainerRuntime.of(start, found, Masker(["hush.elsewhere"]), told.append)
    with runtime.open(["python3", "-c", ask], RunTimeouts()) as channel:
        everything(channel)
    (line,) = [text for text in told if "allowed_hosts" in text]
    assert "connection of the container was refused: ****.test:80 is not in network" in line


def test_l10_a_list_is_refused_where_nothing_could_enforce_it() -> None:
    with pytest.raises(ConfigError, match="no shell"):
        runtime(BARE, permissions=allowed("db.corp.test"))
    with pytest.raises(ConfigError) as caught:
        held("true", container=ContainerSettings(network="x"), permissions=allowed("db.corp.test"))
    assert "remove one of the two" in caught.value.problems[0]


# -- a Singer tap's configuration, which it may change


@pytest.mark.parametrize("fails", [False, True])
def test_a_token_that_a_tap_rotates_in_a_container_is_read_back(fails: bool) -> None:
    """Also where it fails after that, and as another user than ours."""
    stream = Stream(id=StreamId(None, "s0"), json_schema={}, sync_modes=(SyncMode.full_refresh,))
    config = {"scenario": "write_back", "refresh_token": "old", "records": 20, "streams": 1}
    if fails:
        config["crash_after"] = 15
    request = ReadRequest(
        config=config, streams=(SINGER.source.configure(stream, StreamOverrides()),), open=True
    )
    events = list(SINGER.source.read(runtime("test/stub-tap:1"), request))
    told = [e.config["refresh_token"] for e in events if isinstance(e, Control)]
    assert told and told[-1] not in ("old", None)
    assert [e.code for e in events if isinstance(e, ConnectorExited)] == [int(fails)]


@pytest.mark.parametrize("folders", [(), ("given",)])
def test_a_batch_of_a_container_never_makes_penstock_read_the_hosts_files_L10(
    tmp_path: Path, folders: tuple[str, ...]
) -> None:
    """``allowed_preopens`` is all of the host that a tap in a container can name, also by a link
    that it puts into its folder; a pipe there does not hold the run."""
    given = tmp_path / "given"
    given.mkdir()
    given.chmod(0o777)
    tmp_path.chmod(0o755)
    (tmp_path / "secret").write_text('{"seq": 42}\n')
    (given / "link").symlink_to(tmp_path / "secret")
    (given / "rows").write_text('{"seq": 1}\n')
    (given / "private").write_text('{"seq": 43}\n')
    (given / "private").chmod(0o600)
    os.chown(given / "private", 4321, 4321)
    os.mkfifo(given / "pipe")
    named = tuple(str(tmp_path / folder) for folder in folders)
    permissions = Permissions(fs=FilesystemPermissions(allowed_preopens=named))
    stream = Stream(id=StreamId(None, "s0"), json_schema={}, sync_modes=(SyncMode.full_refresh,))
    configured = (SINGER.source.configure(stream, StreamOverrides()),)

    def read(path: Path | str) -> tuple[list[bytes], list[str]]:
        """(rows, errors)"""
        message = {"stream": "s0", "encoding": {"format": "jsonl"}, "manifest": [f"file://{path}"]}
        root = {"batch_config": {"storage": {"root": f"file://{tmp_path}"}}}
        config = {"streams": 1, "steps": [{"batch": message}], **root}
        request = ReadRequest(config=config, streams=configured, open=True)
        tap = runtime("test/stub-tap:1", permissions=permissions)
        events = list(SINGER.source.read(tap, request))
        rows = [bytes(b) for e in events if isinstance(e, Batch) for b in e.bodies]
        return rows, [str(e.code) for e in events if isinstance(e, Error)]

    others = ("secret", "given/link", "given/pipe", "given/private", "given/../secret")
    for path in others if folders else ():  # else what is there is refused too
        assert read(tmp_path / path) == ([], ["source.batch_unreadable"])
    assert read("/proc/self/environ") == ([], ["source.batch_unreadable"])
    assert read(given / "rows") == (
        ([b'{"seq": 1}'], []) if folders else ([], ["source.batch_unreadable"])
    )


# -- whole runs

FAKER = "airbyte:docker:test/source-faker:7.2.1"
FAKER_CONFIG = {"count": 20, "seed": 1, "always_updated": False, "parallelism": 1}


@pytest.mark.spark
def test_a_real_source_is_planned_and_run_as_a_container(site: Callable[..., Site]) -> None:
    here = site()
    pipeline = load_pipeline(here.write(use=FAKER, config=FAKER_CONFIG), env={})
    plan = plan_pipeline(pipeline, here.home, observer=Heard())
    assert plan["problems"] == []
    assert {s["name"] for s in plan["streams"]} == {"products", "purchases", "users"}
    assert any("source runs as a container of test/source-faker:7.2.1" in n for n in plan["notes"])
    done = here.run(use=FAKER, config=FAKER_CONFIG)
    assert (done.status, done.guarantee) == ("succeeded", "exactly-once"), done.error
    assert len(here.rows("users", "id")) == 20
    assert here.saved().keys() == {"products", "purchases", "users"}


@pytest.mark.spark
def test_a_source_that_dies_keeps_what_was_sealed_and_goes_on(site: Callable[..., Site]) -> None:
    """L2, L5: the same as of a process."""
    here = site()
    use = "airbyte:docker:test/stub-source:1"
    broken = {"records": 100, "streams": 1, "state_every": 25, "crash_after": 60}
    failed = here.run(use=use, config=broken)
    assert failed.status == "failed"
    assert len(here.rows("s0")) >= 50
    done = here.run(use=use, config={"records": 100, "streams": 1, "state_every": 25})
    assert done.status == "succeeded", done.error
    assert sorted({row["seq"] for row in here.rows("s0")}) == list(range(1, 101))


@pytest.mark.spark
def test_images_at_both_ends(site: Callable[..., Site]) -> None:
    """From Airbyte to Singer. From Singer to Airbyte: ``test_the_pages_are_followed``. Writes go to
    a folder that it is given in ``test_an_image_on_the_node_cdk_keeps_its_state``."""
    done = site().run(
        use="airbyte:docker:test/stub-source:1",
        config={"records": 30, "streams": 1},
        destination={
            "use": "singer:docker:test/stub-target:1",
            "permissions": {"network": {"allowed_hosts": []}},
        },
    )
    assert done.status == "succeeded", done.error
    assert done.report.streams[0].committed == 30


@pytest.mark.spark
def test_an_image_on_the_node_cdk_keeps_its_state(
    site: Callable[..., Site], tmp_path: Path
) -> None:
    """It reaches the state RPC from a network of the engine, and beside a list of hosts; without
    any host: ``test_a_container_without_network_reaches_the_one_server_that_it_is_given``."""
    place = tmp_path / "written"
    place.mkdir()
    place.chmod(0o777)
    here = site()
    for records, hosts in ((20, None), (35, ["db.corp.test:5432"])):
        network = {} if hosts is None else {"network": {"allowed_hosts": hosts}}
        ran = here.run(
            use="airbyte:docker:test/stub-source:1",
            config={"records": records, "streams": 1},
            destination={
                "use": "syncmaven:docker:test/cdk-destination:1",
                "config": {"file": str(place / "rows")},
                "stream": "rows",
                "permissions": {"fs": {"allowed_preopens": [str(place)]}, **network},
            },
        )
        assert ran.status == "succeeded", ran.error
    lines = [json.loads(line) for line in (place / "rows").read_text().splitlines()]
    assert [line["seq"] for line in lines] == list(range(1, 36))
    assert [line["before"] for line in lines] == list(range(35))


def test_a_container_without_network_reaches_the_one_server_that_it_is_given(
    server: Echo,
) -> None:
    ours = Echo("127.0.0.1")
    try:
        for permissions in (allowed(), allowed("db.corp.test:5432")):
            found = image("test/plain:1")
            start = Start(image=found, permissions=permissions)
            given = ContainerRuntime.of(start, found, Masker(), served=ours.port)
            elsewhere: tuple[str, int] = server.listener.getsockname()
            code = (
                f"import socket\n{through('127.0.0.1', ours.port)}"
                f"for place in [('127.0.0.1', {server.port}), {elsewhere!r}]:\n"
                "    try: socket.create_connection(place, 5); print('open')\n"
                "    except OSError: print('closed')\n"
            )
            with given.open(["python3", "-c", code], RunTimeouts()) as channel:
                assert everything(channel).split() == [b"cba", b"closed", b"closed"]
    finally:
        ours.listener.close()


def test_a_server_of_this_machine_is_reached_from_a_container() -> None:
    address = host_address(find_engine(), None)
    assert address is not None and not address.startswith("127.")
    assert host_address(find_engine(), "host") == "127.0.0.1"
    assert host_address(find_engine(), "none") is None
    assert host_address(find_engine(), "no-such-network") is None
    keys = StreamKeys(StreamId(None, "rows"), MemoryKeys, Masker(), address).open()
    try:
        url = keys.environment()["RPC_URL"]
        ask = (
            "import urllib.request as u;"
            f"r = u.Request('{url}/state.get', b'{{\"key\": \"a\"}}');"
            "r.add_header('Content-Type', 'application/json');"
            "print(u.urlopen(r, timeout=20).status)"
        )
        assert ran(PLAIN, "python3", "-c", ask)[0] == b"200\n"
    finally:
        keys.close()


@pytest.mark.spark
def test_l11_a_killed_run_leaves_no_container_and_the_next_one_goes_on(
    site: Callable[..., Site],
) -> None:
    """L2, L5: what was sealed before is kept, and no row comes twice."""
    here = site()
    use = "airbyte:docker:test/stub-source:1"
    shape = {"records": 100, "streams": 1, "state_every": 10}
    file = here.write(use=use, config={**shape, "hang_after": 60, "hang": "sleep"})
    environ = {**os.environ, "PENSTOCK_HOME": str(here.home.path)}
    run = subprocess.Popen(
        [str(SCRIPT), "run", str(file)],
        env=environ,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    deadline = time.monotonic() + 120
    while not list((here.home.path / "log").rglob("seg-*.json")):
        assert run.poll() is None and time.monotonic() < deadline
        time.sleep(0.1)
    assert len(containers()) == 1
    run.kill()
    run.wait()
    assert gone_within(90)
    done = here.run(use=use, config=shape)
    assert done.status == "succeeded", done.error
    assert here.seqs("s0") == list(range(1, 101))


@pytest.fixture
def nothing_goes_on() -> Iterator[None]:
    yield
    end_all()


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.usefixtures("nothing_goes_on")
@pytest.mark.parametrize(("role", "killed"), [(SOURCE, CONTAINER), (DESTINATION, EVERYTHING)])
def test_a_real_connector_that_is_killed_as_an_image_loses_nothing_L1_L5_L11(
    role: str, killed: str, tmp_path: Path
) -> None:
    """Its container is killed, or all that Penstock runs: what then stays is removed by the next
    start."""
    run_container_cell(role, killed, tmp_path, containers)


# -- on workers that are not the driver (issue 13, part 6)


class Worker:
    """The environment in which the processes of workers start: its own PATH and engine, which the
    driver's run does not have."""

    def __init__(self, folder: Path) -> None:
        self.calls = folder / "calls"
        self._programs = folder / "bin"
        self._programs.mkdir()

    def packed(self, job: bytes, environ: Any) -> bytes:
        kept = {k: v for k, v in (environ or {}).items() if k != VARIABLE.encode()}
        return packed(job, {**kept, b"PATH": os.fsencode(self._programs)})

    def has_engine(self) -> None:
        """One that notes what it is asked."""
        program = self._programs / ENGINE
        real = shutil.which(ENGINE)
        script = f'#!/bin/sh\nPATH={os.environ["PATH"]}\necho "$1" >>{self.calls}\n'
        program.write_text(f'{script}exec {real} "$@"\n')
        program.chmod(0o755)


@pytest.mark.spark
def test_the_engine_is_that_of_the_workers_host_and_one_without_is_named(
    site: Callable[..., Site], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a cluster, where the driver has an engine and the worker's host has another or none;
    the environment of the worker's process is that of its host."""
    worker = Worker(tmp_path)
    monkeypatch.setattr(spark_job, "packed", worker.packed)
    here = site()
    read = {"use": "airbyte:docker:test/stub-source:1", "config": {"records": 20, "streams": 1}}
    failed = here.run(**read)
    assert (failed.status, failed.error["code"]) == ("failed", "connector.no_engine"), failed.error
    assert f"no container engine answers on {platform.node()}" in failed.error["message"]
    assert "docker: no such command; podman: no such command" in failed.error["message"]
    worker.has_engine()
    done = here.run(**read)
    assert done.status == "succeeded", done.error
    assert here.seqs("s0") == list(range(1, 21))
    assert {"create", "start", "rm"} <= {*worker.calls.read_text().split()}


# -- connectors of the SDK as images (issue 13, part 7)


@pytest.fixture(scope="module")
def built_as_the_page_says(
    engine: str, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str], str]:
    """Gives the image of an example's connector, built once."""
    del engine
    return cache(lambda example: _built(example, tmp_path_factory.mktemp(example)))


def _built(example: str, folder: Path) -> str:
    """Of the page's file only what needs a registry is another: the base, which has the libraries
    of binary packages, and where the two packages come from."""
    page = (ROOT / "docs" / "connector-images.md").read_text()
    found = re.search(r"```dockerfile\n(.*?)```", page, re.DOTALL)
    assert found is not None
    lines = found[1].replace("orders.py", f"{example}.py").splitlines()
    assert lines[0] == "FROM python:3.11-slim"
    packages = re.fullmatch(
        r"RUN pip install --no-cache-dir --no-deps (\w+) \"(\w+)\S*\"", lines[1]
    )
    assert packages is not None
    lines[:2] = [
        f"FROM {BINARY}",
        "COPY packages /packages",
        "ENV PYTHONPATH=/packages",
        "RUN python3 -m compileall -q /packages",  # as pip does
    ]
    for name in packages.groups():
        spec = importlib.util.find_spec(name)
        assert spec is not None and spec.origin is not None
        place = folder / "packages" / name
        shutil.copytree(
            Path(spec.origin).parent, place, ignore=shutil.ignore_patterns("__pycache__")
        )
    shutil.copy(ROOT / "examples" / "sdk" / f"{example}.py", folder)
    (folder / "Dockerfile").write_text("\n".join(lines))
    name = f"test/{example}:1"
    subprocess.run(
        [ENGINE, "build", "-q", "-t", name, str(folder)],
        check=True,
        capture_output=True,
        env={**os.environ, "DOCKER_BUILDKIT": "0"},
    )
    return name


@pytest.mark.spark
def test_a_source_of_the_sdk_is_an_image_that_obeys_airbytes_command_line(
    site: Callable[..., Site], tmp_path: Path, built_as_the_page_says: Callable[[str], str]
) -> None:
    name = built_as_the_page_says("orders")
    given = tmp_path / "given"
    given.mkdir(mode=0o755)

    def give(number: int, *ids: int) -> None:
        rows = [{"id": n, "total": n / 2, "changed": f"2026-01-{n:02}"} for n in ids]
        (given / f"{number}.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))

    for command in (["spec"], ["check", "--config", "/none"]):
        out, code, _ = ran(name, *command)
        message = json.loads(out)
        if command == ["spec"]:
            assert (code, message["type"]) == (0, "SPEC")
        else:
            assert message["connectionStatus"]["status"] == "FAILED"
    here = site()
    permissions = {"fs": {"allowed_preopens": [f"{given}:ro"]}, "network": {"allowed_hosts": []}}
    read: dict[str, Any] = {
        "use": f"airbyte:docker:{name}",
        "config": {"folder": str(given)},
        "source_keys": {"permissions": permissions},
    }
    give(1, 1, 2, 3)
    first = here.run(**read)
    assert first.status == "succeeded", first.error
    assert first.counts("orders") == ("complete", 3, 3, 0)
    give(2, 4)
    second = here.run(**read)
    assert second.counts("orders") == ("complete", 1, 1, 0), second.error
    assert [row["id"] for row in here.rows("orders", "id")] == [1, 2, 3, 4]


def test_a_destination_of_the_sdk_is_an_image_that_obeys_syncmavens_protocol(
    server: Echo, built_as_the_page_says: Callable[[str], str]
) -> None:
    name = built_as_the_page_says("webhook")
    command = [ENGINE, "run", "--rm", "-i", "--pull=never", name]
    host = ScriptedHost(command, environment=os.environ, timeout=60)
    address, port = server.listener.getsockname()
    rows = [{"id": n, "email": f"{n}@x.io"} for n in range(3)]
    outcome = host.sync(rows, credentials={"url": f"http://{address}:{port}/"})
    assert outcome.halt is None, outcome
    assert outcome.result == {"received": 3, "skipped": 0, "success": 3, "failed": 0}
    assert b'"email": "2@x.io"' in server.heard[-1]


@pytest.mark.spark
@pytest.mark.slow
def test_the_pages_are_followed(
    server: Echo, tmp_path: Path, built_as_the_page_says: Callable[[str], str]
) -> None:
    """Images of other names stand in for those that a registry has."""
    names = {
        "test/orders:1": "orders:1",
        "test/webhook:1": "contacts:1",
        "test/stub-source:1": "airbyte/source-postgres:3.6.0",
        "test/stub-tap:1": "registry.corp/team/tap-orders:2",
        "test/stub-destination:1": "airbyte/destination-snowflake:3.11.0",
    }
    for example in ("orders", "webhook"):
        built_as_the_page_says(example)
    for ours, theirs in (*names.items(), ("test/webhook:1", "registry.corp/team/contacts:1")):
        subprocess.run([ENGINE, "tag", ours, theirs], check=True)
    place = tmp_path / "reader"
    place.mkdir(mode=0o755)
    reader = Folder(place)
    users = {"id": [1, 2], "email": ["a@x.io", "b@x.io"]}
    deltalake.write_deltalake(place / "lake" / "users", pa.table(users))
    address, port = server.listener.getsockname()
    url = f"http://{address}:{port}/"
    reader.file("contacts.json", json.dumps({"url": url}), 0o644)
    reader.file("postgres.json", json.dumps({"streams": 1, "records": 5}), 0o644)
    reader.file("config.json", json.dumps({"folder": "/tmp"}), 0o644)
    reader.file("state.json", "[]", 0o644)
    stream = {"name": "orders", "json_schema": {}, "supported_sync_modes": ["full_refresh"]}
    asked = {"stream": stream, "sync_mode": "full_refresh", "destination_sync_mode": "append"}
    reader.file("catalog.json", json.dumps({"streams": [asked]}), 0o644)
    built = "test_a_source_of_the_sdk_is_an_image_that_obeys_airbytes_command_line"
    reader.follow("connector-images.md", elsewhere={"FROM python": built, "docker build": built})
    reader.follow(
        "containers.md",
        elsewhere={
            "FROM python": "test_a_real_source_is_planned_and_run_as_a_container",
            "docker build -t penstock": "by hand (CONTRIBUTING.md): the image has 1.4 GB",
        },
    )
    assert b'"email": "b@x.io"' in b"".join(server.heard)
