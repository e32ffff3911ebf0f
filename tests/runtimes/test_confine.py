"""L10: what a process can be held to is enforced (network, environment), the rest is refused."""

import json
import os
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.config.sections import (
    EnvironmentPermissions,
    FilesystemPermissions,
    Limits,
    NetworkPermissions,
    Permissions,
)
from penstock.errors import ConfigError, SourceError
from penstock.runtimes.contract import RunTimeouts, Start
from penstock.runtimes.env import BASE, given_secrets
from penstock.runtimes.limits import Confinement, confinement, no_namespace, unenforceable
from penstock.runtimes.masking import Masker
from penstock.runtimes.process import ProcessRuntime

PY = [sys.executable, "-S", "-c"]
NO_NETWORK = Permissions(network=NetworkPermissions(allowed_hosts=()))
NO_VARIABLES = Permissions(env=EnvironmentPermissions(allowed_vars=()))


def output(command: list[str], held: Confinement, env: dict[str, str] | None = None) -> str:
    runtime = ProcessRuntime(command, env=env, confinement=held)
    out = bytearray()
    with runtime.open([], RunTimeouts(stop=1)) as channel:
        while data := channel.read(20):
            out += data
        assert channel.wait(10) == 0, channel.stderr_tail()
    return out.decode()


# -- what is asked for


def test_nothing_said_holds_nothing() -> None:
    assert confinement(None, None) == Confinement()
    assert confinement(Permissions(), Limits(timeout_seconds=3)) == Confinement()


def test_what_is_said_is_held() -> None:
    said = Permissions(env=EnvironmentPermissions(allowed_vars=("TOKEN",)))
    held = confinement(said, Limits(max_memory=1024))
    assert held == Confinement(max_memory=1024, env_keys=("TOKEN",))


def test_a_list_of_hosts_and_folders_are_refused_with_what_to_do_instead() -> None:
    """Each by its key, also the folders that are none: a process opens what its user can."""
    said = Permissions(
        network=NetworkPermissions(allowed_hosts=("db.internal",)),
        fs=FilesystemPermissions(allowed_preopens=()),
    )
    problems = unenforceable(said, Limits(timeout_seconds=3))
    assert [p.split(" cannot be enforced")[0] for p in problems] == [
        "permissions.network.allowed_hosts",
        "permissions.fs.allowed_preopens",
    ]
    assert all("use a container image (PROTOCOL:docker:IMAGE)" in p for p in problems)
    with pytest.raises(ConfigError) as caught:
        confinement(said, None)
    assert caught.value.code == "config.unsupported"
    assert caught.value.problems == problems
    assert caught.value.hint


# -- environment


def test_no_variable_allowed_leaves_the_fixed_base(monkeypatch: pytest.MonkeyPatch) -> None:
    """Proxies and certificate settings go too: a proxy's address may hold a password."""
    for name in ("https_proxy", "SSL_CERT_FILE", "TOKEN", "PENSTOCK_HOME"):
        monkeypatch.setenv(name, "leak")
    monkeypatch.setenv("LC_ALL", "C.UTF-8")
    seen = output(["env"], confinement(NO_VARIABLES, None), {"OURS": "1"})
    names = {line.partition("=")[0] for line in seen.splitlines()}
    assert {"PATH", "HOME", "LC_ALL", "OURS"} <= names
    assert names <= BASE | {"LC_ALL", "OURS"}
    assert "leak" not in seen


def test_an_allowed_variable_is_handed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOKEN", "given")
    monkeypatch.setenv("OTHER_TOKEN", "leak")
    said = Permissions(env=EnvironmentPermissions(allowed_vars=("TOKEN", "not_set")))
    seen = output(["env"], confinement(said, None)).splitlines()
    assert "TOKEN=given" in seen
    assert not [line for line in seen if "leak" in line or "not_set" in line]


@pytest.mark.parametrize(
    "name",
    ["PYTHON_WORKER_FACTORY_SECRET", "PYSPARK_GATEWAY_SECRET", "_PYSPARK_DRIVER_CONN_INFO_PATH",
     "SPARK_AUTH_SECRET", "_SPARK_AUTH_SECRET", "PENSTOCK_STATE_URL"],
)  # fmt: skip
def test_sparks_secrets_and_ours_are_given_to_no_connector(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Whoever names them (L10). Its parent's environment is as open to it as its own."""
    monkeypatch.setenv(name, "of-the-lane")
    said = Permissions(env=EnvironmentPermissions(allowed_vars=(name,)))
    held = confinement(said, None)
    look = "cat /proc/self/environ /proc/$PPID/environ | tr '\\0' '\\n'"
    assert "of-the-lane" not in output(["sh", "-c", look], held)
    launch = Start(command=("sh",), env_keys=(name,), permissions=said)
    assert name not in ProcessRuntime.of(launch, Masker())._env  # type: ignore[attr-defined]


def test_a_variable_that_is_given_by_name_is_masked(monkeypatch: pytest.MonkeyPatch) -> None:
    """L10: as a secret of its configuration; what every connector gets is none."""
    monkeypatch.setenv("MY_TOKEN", "hunter2-token")
    said = Permissions(env=EnvironmentPermissions(allowed_vars=("MY_TOKEN", "HOME", "NOT_SET")))
    launch = Start(command=("sh", "-c", "echo $MY_TOKEN in $HOME >&2"), permissions=said)
    assert given_secrets(launch) == ["hunter2-token"]
    lines: list[str] = []
    runtime = ProcessRuntime.of(launch, Masker(), lines.append)
    with runtime.open((), RunTimeouts()) as channel:
        channel.wait(30)
        assert channel.stderr_tail().strip() == f"**** in {os.environ['HOME']}"
    assert lines == [f"**** in {os.environ['HOME']}"]


# -- network

CONNECT = (
    "import socket, sys\n"
    "try:\n    socket.create_connection(('127.0.0.1', int(sys.argv[1])), 5).close()\n"
    "except OSError as e:\n    print('refused', e.errno)\n"
    "else:\n    print('connected')\n"
)
FAMILY = (
    "import os, subprocess, sys\n"
    "subprocess.run([sys.executable, '-S', '-c', sys.argv[1], sys.argv[2]])"
)
LOOPBACK = (
    "import socket\n"
    "server = socket.create_server(('127.0.0.1', 0))\n"
    "socket.create_connection(server.getsockname(), 5).close()\nprint('connected')"
)


@pytest.fixture
def server() -> Iterator[tuple[int, list[str]]]:
    """A server on this machine's loopback: its port, and who came."""
    came: list[str] = []
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.settimeout(0.1)
        over = threading.Event()

        def serve() -> None:
            while not over.is_set():
                try:
                    connection, address = listening.accept()
                except TimeoutError:
                    continue
                came.append(str(address))
                connection.close()

        thread = threading.Thread(target=serve)
        thread.start()
        yield listening.getsockname()[1], came
        over.set()
        thread.join()


def need_namespaces() -> None:
    if (why := no_namespace()) is not None:
        pytest.skip(f"this machine gives no network namespace: {why}")


def test_no_host_allowed_is_no_network_not_even_this_machines(
    server: tuple[int, list[str]],
) -> None:
    need_namespaces()
    port, came = server
    held = confinement(NO_NETWORK, None)
    assert output([*PY, CONNECT, str(port)], held).startswith("refused")
    assert output([*PY, FAMILY, CONNECT, str(port)], held).startswith("refused"), "its children"
    assert came == []
    assert output([*PY, CONNECT, str(port)], Confinement()) == "connected\n"
    assert len(came) == 1


def test_a_loopback_of_its_own_works_without_a_network() -> None:
    """Connectors with a helper process of their own talk to it over TCP."""
    need_namespaces()
    assert output([*PY, LOOPBACK], confinement(NO_NETWORK, None)) == "connected\n"


# What a hostile connector tries: every namespace of every process that it can name, by the call and
# by the tool, and a debugger's way into a process that is outside.
LEAVE = """
import ctypes, glob, os, shutil, socket, subprocess, sys
libc = ctypes.CDLL(None, use_errno=True)
port, own = int(sys.argv[1]), os.readlink("/proc/self/ns/net")
def reaches():
    try:
        socket.create_connection(("127.0.0.1", port), 2).close()
    except OSError:
        return False
    return True
left = []
for place in sorted(glob.glob("/proc/[0-9]*/ns/net")):
    child = os.fork()
    if child == 0:
        try:
            fd = os.open(place, os.O_RDONLY)
            if libc.setns(fd, 0x40000000) == 0 and os.readlink("/proc/self/ns/net") != own:
                os._exit(7 if reaches() else 8)
        finally:
            os._exit(0)
    if os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]):
        left.append(place)
for pid in filter(str.isdigit, os.listdir("/proc")):
    if int(pid) == os.getppid() and shutil.which("nsenter"):
        tried = ["nsenter", "-t", pid, "-n", sys.executable, "-S", "-c", "print('outside')"]
        if b"outside" in subprocess.run(tried, capture_output=True).stdout:
            left.append("nsenter " + pid)
PTRACE_SEIZE, PTRACE_DETACH = 0x4206, 17
if libc.ptrace(PTRACE_SEIZE, os.getppid(), None, None) == 0:
    libc.ptrace(PTRACE_DETACH, os.getppid(), None, None)
    left.append("ptrace")
status = dict(line.split(":\t", 1) for line in open("/proc/self/status") if ":\t" in line)
print(left, reaches(), status["CapEff"].strip(), status["NoNewPrivs"].strip())
"""


def test_no_other_process_s_network_can_be_entered_L10(
    server: tuple[int, list[str]],
) -> None:
    """Not as root either, whose supervisor and whose Penstock are outside."""
    need_namespaces()
    port, came = server
    told = output([*PY, LEAVE, str(port)], confinement(NO_NETWORK, None))
    assert told.split() == ["[]", "False", "0" * 16, "1"]
    assert came == []


NEST = """
import ctypes, os
setting = "/proc/sys/user/max_user_namespaces"
made = ctypes.CDLL(None).unshare(0x10000000)
print(open(setting).read().strip(), made, os.statvfs(setting).f_flag & 1)
"""


def test_no_capabilities_are_found_in_a_namespace_within_L10() -> None:
    """A user namespace of its own making would give it all of them over whatever is in that."""
    need_namespaces()
    most, made, read_only = output([*PY, NEST], confinement(NO_NETWORK, None)).split()
    if read_only == "1":
        pytest.skip("this machine's settings cannot be written")
    assert (most, made) == ("0", "-1")
    assert int(Path("/proc/sys/user/max_user_namespaces").read_text()) > 0, "it is of that one only"


# Runs in a process of its own, under what the test took away from it.
OTHER = """
import json, sys
from penstock.config.sections import NetworkPermissions, Permissions
from penstock.errors import PenstockError
from penstock.runtimes.limits import Confinement, confinement, unenforceable
from penstock.runtimes.contract import RunTimeouts
from penstock.runtimes.process import ProcessRuntime
said = Permissions(network=NetworkPermissions(allowed_hosts=()))
problems = unenforceable(said, None)
out = b""
try:
    held = Confinement(no_network=True) if "anyway" in sys.argv else confinement(said, None)
    runtime = ProcessRuntime([sys.executable, "-S", "-c", sys.argv[1]], confinement=held)
    with runtime.open([], RunTimeouts(stop=1)) as channel:
        while data := channel.read(20):
            out += data
        out += channel.stderr_tail().encode()
    error = None
except PenstockError as e:
    error = e.as_dict()
print(json.dumps({"out": out.decode(), "error": error, "problems": problems}))
"""


def elsewhere(prefix: list[str], *words: str) -> dict[str, object]:
    program = shutil.which(prefix[0])
    if program is None or subprocess.run([*prefix, "true"], capture_output=True).returncode:
        pytest.skip(f"{prefix[0]} is not here or may not do this")
    done = subprocess.run(
        [*prefix, sys.executable, "-c", OTHER, *words], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_who_may_not_make_a_network_namespace_makes_one_in_a_user_namespace() -> None:
    need_namespaces()
    script = (
        "import os\nprint(os.getuid())\n"
        "for n in ('user', 'net'):\n    print(os.readlink('/proc/self/ns/' + n))\n"
    )
    prefix = ["setpriv", "--bounding-set=-sys_admin", "--inh-caps=-sys_admin"]
    told = elsewhere(prefix if os.geteuid() == 0 else ["env"], script + LOOPBACK)
    if told["problems"]:
        pytest.skip(f"no user namespaces: {told['problems']}")
    assert told["error"] is None
    uid, *namespaces, loopback = str(told["out"]).splitlines()
    assert (uid, loopback) == (str(os.getuid()), "connected")
    assert not {os.readlink(f"/proc/self/ns/{n}") for n in ("user", "net")} & set(namespaces)


NO_NAMESPACES = [
    "unshare", "-Ur", "sh", "-c",
    'for n in net user; do echo 0 > /proc/sys/user/max_${n}_namespaces; done; exec "$@"', "sh",
]  # fmt: skip


def test_where_there_are_no_namespaces_it_is_refused_before_it_starts(tmp_path: Path) -> None:
    mark = tmp_path / "started"
    start = f"open({str(mark)!r}, 'w').close()"
    told = elsewhere(NO_NAMESPACES, start)
    assert isinstance(told["problems"], list) and len(told["problems"]) == 1
    assert "this machine gives it no network namespace" in told["problems"][0]
    assert isinstance(told["error"], dict) and told["error"]["code"] == "config.unsupported"
    error = elsewhere(NO_NAMESPACES, start, "anyway")["error"]
    assert isinstance(error, dict)
    assert error["code"] == "connector.start_failed", "the system's last word is heard too"
    assert "no network namespace" in error["message"] and "WebAssembly" in error["hint"]
    assert not mark.exists()


def test_start_errors_of_a_confined_command_are_the_usual_ones() -> None:
    need_namespaces()
    with pytest.raises(SourceError) as caught:
        output(["/no/such"], Confinement(no_network=True, max_memory=64 * 1024**2))
    assert caught.value.code == "connector.not_found"
