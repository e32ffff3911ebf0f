"""The keeper of a JVM (L11): one a key, shared as far as its slots go, and all its ends.

The JVM's place is taken by a process that answers as Spark's gateway does and ends with its stdin;
``tests/e2e/test_warm.py`` has the real one.
"""

# pyright: reportPrivateUsage=false
# What a client sends and is sent is tested at its connection.

import os
import pwd
import shutil
import signal
import socket
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from penstock.errors import Cancelled, ConfigError
from penstock.spark import warm
from penstock.spark.keeper import LOG, MOST_RUNS, SOCKET, Peer

pytestmark = pytest.mark.dear

GATEWAY = """
import os, struct, sys
answer = os.environ["ANSWER"]
with open(answer + ".draft", "wb") as file:
    file.write(struct.pack(">ii", 4321, 6) + b"s3" + b"cret")
print("Java said this", flush=True)
if os.environ.get("SLOW"):
    import time; time.sleep(float(os.environ["SLOW"]))
os.rename(answer + ".draft", answer)
sys.stdin.read()
"""
SECONDS = 20.0
SLOTS = 4


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def until(done: Callable[[], bool], seconds: float = SECONDS) -> bool:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if done():
            return True
        time.sleep(0.02)
    return done()


class Den:
    """A folder of keepers, and a home that they end with."""

    def __init__(self, folder: Path) -> None:
        self.root, self.home = folder / "warm", folder / "home"
        self.home.mkdir(parents=True)
        self.environ: dict[str, str] = {}
        self.idle, self.memory = 60.0, 0
        self.pids: set[int] = set()

    def lease(
        self, key: str = "k", check: Callable[[], None] = lambda: None, slots: int = 2
    ) -> warm.JvmLease | None:
        terms = warm.KeeperLimits((self.home,), {"master": "local[4]"}, self.idle, self.memory)
        wanted = warm.Slots(slots, SLOTS)
        lease = warm.lease(self.root, key, self._start, terms, wanted, check, SECONDS)
        if lease is not None:
            self.pids.add(lease.pid)
        return lease

    def must(self, key: str = "k", slots: int = 2) -> warm.JvmLease:
        lease = self.lease(key, slots=slots)
        assert lease is not None
        return lease

    def gone(self, pid: int, key: str = "k") -> bool:
        return until(lambda: not alive(pid) and not (self.root / key / SOCKET).exists())

    @contextmanager
    def _start(self, folder: Path) -> Generator[warm.KeeperStart]:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        answer = folder / f"answer-{threading.get_ident()}"
        ours = {n: os.environ[n] for n in ("PATH", "PYTHONPATH") if n in os.environ}
        environ = {**ours, "ANSWER": str(answer), **self.environ}
        yield warm.KeeperStart([sys.executable, "-c", GATEWAY], environ, answer)


@pytest.fixture
def den(tmp_path: Path) -> Iterator[Den]:
    made = Den(tmp_path)
    yield made
    warm.stop(made.root, seconds=5)
    for pid in made.pids:
        if alive(pid):
            with suppress(ProcessLookupError):  # it ends just now
                os.kill(pid, signal.SIGKILL)


def test_the_next_run_gets_the_same_jvm_and_its_secret(den: Den) -> None:
    first = den.must()
    assert first.first and first.address == (4321, "s3cret")
    assert first.log.read() == b"Java said this\n"
    first.release()
    second = den.must()
    assert (second.pid, second.first) == (first.pid, False)
    assert second.log.read() == b"", "an earlier run's words are not this one's"
    assert second.poll() is None
    second.release()
    told = warm.status(den.root)[0]
    assert (told["state"], told["runs"], told["pid"]) == ("idle", 2, first.pid)


def test_runs_at_the_same_time_share_it_as_far_as_its_slots_go(den: Den) -> None:
    first, second = den.must(), den.must(slots=1)
    assert (second.pid, second.first, second.address) == (first.pid, False, first.address)
    assert (first.beside, second.beside) == (0, 1)
    assert den.lease() is None, "one slot is left, two are wanted"
    third = den.must(slots=1)
    assert (third.pid, third.beside) == (first.pid, 2)
    assert warm.status(den.root)[0]["used_by"] == 3
    other = den.must("other")
    assert other.pid != first.pid
    first.release()
    fourth = den.must()
    assert fourth.pid == first.pid
    assert second.poll() is None and third.poll() is None
    second.release()
    third.release()
    told = next(t for t in warm.status(den.root) if t["pid"] == first.pid)
    assert (told["state"], told["used_by"], told["runs"]) == ("busy", 1, 3)


def test_of_runs_that_start_together_one_starts_a_keeper_and_others_wait_for_it(den: Den) -> None:
    den.environ["SLOW"] = "1"
    got: list[warm.JvmLease | None] = []
    threads = [threading.Thread(target=lambda: got.append(den.lease())) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(SECONDS)
    leases = [lease for lease in got if lease is not None]
    assert len(got) == 4 and len(leases) == SLOTS // 2
    assert len({lease.pid for lease in leases}) == 1
    assert sorted(lease.first for lease in leases) == [False, True]
    assert len(warm.status(den.root)) == 1


def test_an_answer_that_comes_together_with_wait_is_read(tmp_path: Path) -> None:
    ours, theirs = socket.socketpair()
    (tmp_path / LOG).touch()
    grant = b'{"lease": {"port": 4321, "secret": "s3cret", "pid": 1}, "slots": 2, "beside": 0}'
    theirs.sendall(b'{"wait": true}\n' + grant + b"\n")
    lease = warm._granted(Peer(ours), tmp_path, lambda: None, 3.0, 3.0, first=False)
    assert lease is not None and lease.address == (4321, "s3cret")
    lease.log.close()
    lease.release()
    theirs.close()


def test_a_start_that_its_run_gives_up_goes_on_for_another(den: Den) -> None:
    den.environ["SLOW"] = "2"
    began = time.monotonic()

    def check() -> None:
        if time.monotonic() - began > 1.0:
            raise Cancelled("stopped")

    stopped: list[BaseException] = []

    def cancelled() -> None:
        try:
            den.lease(check=check)
        except Cancelled as e:
            stopped.append(e)

    thread = threading.Thread(target=cancelled)
    thread.start()
    assert until(lambda: (den.root / "k" / SOCKET).exists())
    lease = den.must()
    thread.join(SECONDS)
    assert stopped and not lease.first and lease.poll() is None


@pytest.mark.parametrize("slots", [b'"two"', b"null", b"1e400", b"0", b"-5", b"[" * 100_000])
def test_a_request_that_is_wrong_gets_nothing_and_ends_no_run(slots: bytes, den: Den) -> None:
    lease = den.must()
    client = warm._connect(den.root / "k")
    assert client is not None
    client.connection.sendall(b'{"ask": "lease", "slots": ' + slots + b"}\n")
    assert client.hear() is None
    client.close()
    assert den.must().pid == lease.pid and lease.poll() is None


def test_what_a_run_printed_begins_where_it_joined(den: Den) -> None:
    first = den.must()
    assert first.log_from == 0
    second = den.must()
    assert second.log_from == len(b"Java said this\n")
    second.release()
    assert first.log.read() == b"Java said this\n", "not emptied while a run has it"


def test_who_cleans_is_alone_until_it_gives_the_jvm_back(den: Den) -> None:
    first, second = den.must(), den.must()
    assert not first.begin_cleaning(), "the other's objects are in it"
    first.release()
    assert second.begin_cleaning()
    got: list[warm.JvmLease] = []
    waiting = threading.Thread(target=lambda: got.append(den.must()))
    waiting.start()
    time.sleep(0.5)
    assert not got
    second.release()
    waiting.join(SECONDS)
    assert got and got[0].pid == first.pid and not got[0].beside
    got[0].kill()
    assert den.gone(first.pid)


def test_one_of_two_that_ends_without_giving_it_back_leaves_it_to_the_other(den: Den) -> None:
    first, second = den.must(), den.must()
    first.kill()
    time.sleep(0.5)
    assert second.poll() is None and alive(second.pid)
    assert den.lease() is None, "what the first one left in it is nobody's"
    second.release()
    assert den.gone(second.pid)
    assert den.must().first


def test_jobs_that_cannot_be_cancelled_end_with_the_jvm_L11(den: Den) -> None:
    first, second = den.must(), den.must()
    first.name_session("spark-session-1")  # and nothing that speaks py4j is at its address
    first.kill()
    assert second.wait(60) == -signal.SIGKILL
    assert den.gone(second.pid)


def test_who_waits_for_a_jvm_that_is_given_up_starts_one(den: Den) -> None:
    first = den.must()
    assert first.begin_cleaning()
    got: list[warm.JvmLease | None] = []
    waiting = threading.Thread(target=lambda: got.append(den.lease()))
    waiting.start()
    time.sleep(0.5)
    first.kill()
    waiting.join(SECONDS)
    assert got == [None]
    assert den.gone(first.pid)


def test_a_run_that_ends_without_giving_it_back_ends_it_at_once(den: Den) -> None:
    lease = den.must()
    lease.kill()
    assert lease.poll() == -signal.SIGKILL
    assert den.gone(lease.pid)
    assert den.must().first, "the next run starts one"


def test_a_run_that_is_killed_ends_it(den: Den, tmp_path: Path) -> None:
    code = f"""
import sys, time
sys.path.insert(0, {str(Path(__file__).parent)!r})
from pathlib import Path
from test_keeper import Den
class Same(Den):
    def __init__(self, folder):
        self.root, self.home = folder / "warm", folder / "home"
        self.environ, self.idle, self.memory, self.pids = {{}}, 60.0, 0, set()
lease = Same(Path({str(tmp_path)!r})).must()
print(lease.pid, flush=True)
time.sleep(600)
"""
    run = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert run.stdout is not None
    pid = int(run.stdout.readline())
    assert alive(pid)
    run.kill()
    run.wait(10)
    assert den.gone(pid)


def test_a_start_that_the_user_stops_leaves_nothing(den: Den) -> None:
    den.environ["SLOW"] = "60"
    began = time.monotonic()

    def check() -> None:
        if time.monotonic() - began > 1.0:
            raise Cancelled("stopped")

    with pytest.raises(Cancelled):
        den.lease(check=check)
    assert until(lambda: not (den.root / "k" / SOCKET).exists())


def test_a_jvm_that_died_in_a_run_is_told_with_its_exit_code(den: Den) -> None:
    lease = den.must()
    os.kill(lease.pid, signal.SIGSEGV)
    assert lease.wait(SECONDS) == -signal.SIGSEGV
    lease.log.seek(0)
    assert lease.log.read() == b"Java said this\n", "also where its folder is gone"
    assert den.gone(lease.pid)
    lease.release()


def test_a_jvm_that_died_between_runs_is_a_new_start(den: Den) -> None:
    lease = den.must()
    lease.release()
    os.kill(lease.pid, signal.SIGKILL)
    assert den.gone(lease.pid)
    assert den.must().first


def test_a_jvm_dies_with_a_keeper_that_is_killed_and_the_next_run_starts_anew(den: Den) -> None:
    lease = den.must()
    lease.release()
    os.kill(warm.status(den.root)[0]["keeper"], signal.SIGKILL)
    assert until(lambda: not alive(lease.pid))
    assert (den.root / "k" / SOCKET).exists(), "what it left is in nobody's way"
    assert den.must().first


def test_a_keeper_that_is_killed_in_a_run_is_a_jvm_that_died(den: Den) -> None:
    lease = den.must()
    os.kill(warm.status(den.root)[0]["keeper"], signal.SIGKILL)
    assert lease.wait(SECONDS) == -signal.SIGKILL


def test_a_keeper_that_does_not_answer_is_passed_over(den: Den) -> None:
    lease = den.must()
    lease.release()
    keeper = warm.status(den.root)[0]["keeper"]
    os.kill(keeper, signal.SIGSTOP)
    began = time.monotonic()
    assert den.lease() is None
    assert time.monotonic() - began < 10
    os.kill(keeper, signal.SIGCONT)


@pytest.mark.parametrize("why", ["idle", "home", "folder", "memory", "stop"])
def test_idle_it_ends(why: str, den: Den) -> None:
    den.idle = 1.0 if why == "idle" else 60.0
    den.memory = 1 << 60 if why == "memory" else 0
    lease = den.must()
    time.sleep(1.5)
    assert lease.poll() is None and alive(lease.pid), "not while a run has it"
    lease.release()
    if why == "home":
        den.home.rmdir()
    elif why == "folder":
        shutil.rmtree(den.root)
    elif why == "stop":
        assert [t["pid"] for t in warm.stop(den.root)] == [lease.pid]
    assert den.gone(lease.pid)
    assert until(lambda: not (den.root / "k").exists())


def test_stop_waits_for_the_run_that_has_it(den: Den) -> None:
    lease = den.must()
    assert [t["state"] for t in warm.stop(den.root)] == ["busy"]
    assert lease.poll() is None and alive(lease.pid)
    lease.release()
    assert den.gone(lease.pid)


def test_no_more_than_one_stays_beside_a_new_one(den: Den) -> None:
    pids: list[int] = []
    for key in ("a", "b", "c"):
        lease = den.must(key)
        lease.release()
        pids.append(lease.pid)
        time.sleep(0.2)
    assert until(lambda: not alive(pids[0])), "the longest idle went"
    assert alive(pids[2])
    assert MOST_RUNS > 1


def test_everything_is_the_user_s_alone_L10(den: Den) -> None:
    os.umask(0)
    try:
        lease = den.must()
    finally:
        os.umask(0o022)
    found = [den.root / "k", *(den.root / "k").iterdir()]
    assert {SOCKET, "lock", "spark.log"} <= {p.name for p in found}
    assert not [p for p in found if stat.S_IMODE(p.stat().st_mode) & 0o077]
    secret = lease.address.secret.encode()
    assert not [p for p in found if p.is_file() and secret in p.read_bytes()]
    for pid in (lease.pid, warm.status(den.root)[0]["keeper"]):
        assert secret not in Path(f"/proc/{pid}/environ").read_bytes()
        assert secret not in Path(f"/proc/{pid}/cmdline").read_bytes()


AS_NOBODY = """
import os, socket, sys
folder, uid = sys.argv[1], int(sys.argv[2])
os.setgroups([]); os.setgid(uid); os.setuid(uid)
def attempt(what):
    try: return what()
    except OSError as e: return type(e).__name__
def ask():
    peer = socket.socket(socket.AF_UNIX); peer.settimeout(5); peer.connect(folder + "/socket")
    peer.sendall(b'{"ask": "lease"}\\n')
    return peer.recv(1000)
print(attempt(lambda: os.listdir(folder)), attempt(lambda: open(folder + "/spark.log").read()),
      attempt(ask))
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_another_user_gets_nothing_L10(tmp_path_factory: pytest.TempPathFactory) -> None:
    base = Path("/tmp") / f"penstock-other-user-{os.getpid()}"  # a place that others can enter
    den = Den(base)
    try:
        base.chmod(0o755)
        lease = den.must()
        den.root.chmod(0o755)
        folder = den.root / "k"

        def nobody() -> str:
            uid = str(pwd.getpwnam("nobody").pw_uid)
            command = ["/usr/bin/env", "python3", "-c", AS_NOBODY, str(folder), uid]
            done = subprocess.run(command, capture_output=True, text=True, timeout=60)
            assert done.returncode == 0, done.stderr
            return done.stdout.strip()

        lease.release()
        assert nobody() == "PermissionError PermissionError PermissionError"
        folder.chmod(0o755)  # were the folder open, the kernel's word on who asks is left
        (folder / SOCKET).chmod(0o777)
        listed, log, asked = nobody().rsplit(" ", 2)
        assert SOCKET in listed and log == "PermissionError"
        assert asked in ("b''", "ConnectionResetError", "BrokenPipeError")
        assert den.must().pid == lease.pid, "and its own user still has it"
    finally:
        warm.stop(den.root)
        shutil.rmtree(base, ignore_errors=True)


def test_a_folder_that_others_can_write_is_not_used_L10(tmp_path: Path) -> None:
    root = tmp_path / "warm"
    root.mkdir()
    root.chmod(0o777)
    assert warm.key_of(root, {}) is None


def test_the_key_is_of_everything_that_a_running_jvm_cannot_change(tmp_path: Path) -> None:
    root = tmp_path / "warm"
    told: dict[str, Any] = {"java": "17", "conf": {"spark.driver.memory": "2g"}}
    key = warm.key_of(root, told)
    assert key == warm.key_of(root, dict(told))
    assert key != warm.key_of(root, {**told, "java": "21"})
    assert key != warm.key_of(root, {**told, "conf": {"spark.driver.memory": "4g"}})
    umask = os.umask(0o077)
    try:
        assert key != warm.key_of(root, told), "tables would have other modes"
    finally:
        os.umask(umask)
    assert stat.S_IMODE((root / "secret").stat().st_mode) == 0o600
    assert stat.S_IMODE(root.stat().st_mode) == 0o700


def test_a_jvm_that_other_code_left_is_not_joined_and_ends(
    den: Den, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An upgrade in place, whose version is the same: the workers of the JVM that the code before
    left hold its modules. The next run starts another; the old one is idle and makes room."""
    root = den.root
    root.mkdir(mode=0o700)
    package = root.parent / "package"
    (package / "spark").mkdir(parents=True)
    (module := package / "spark" / "warm.py").write_text("before = True\n")
    monkeypatch.setattr(warm, "__file__", str(module))
    before = warm.key_of(root, {})
    assert before is not None and before == warm.key_of(root, {})
    old = den.must(before)
    old.release()
    module.write_text("before = False  # upgraded\n")
    after = warm.key_of(root, {})
    assert after is not None and after != before
    new = den.must(after)
    assert new.first and new.pid != old.pid
    told = {t["pid"]: t["state"] for t in warm.status(root)}
    assert told == {old.pid: "idle", new.pid: "busy"}
    monkeypatch.setattr(warm, "available_bytes", lambda: 0)  # no room beside a third
    third = den.must("third")
    assert third.first and den.gone(old.pid, before)
    new.release()
    third.release()


@pytest.mark.parametrize(
    ("told", "environ", "answer"),
    [
        (None, {}, False),
        (True, {}, True),
        (None, {"PENSTOCK_DAEMON": "1"}, True),
        (True, {"PENSTOCK_DAEMON": "0"}, False),
        (True, {"PENSTOCK_DAEMON": "no"}, False),
        (False, {"PENSTOCK_DAEMON": "1"}, False),
        (True, {"CI": "true"}, False),
        (True, {"CI": "false"}, True),
        (True, {"CI": "true", "PENSTOCK_DAEMON": "1"}, True),
    ],
)
def test_who_decides_whether_one_stays(
    told: bool | None, environ: dict[str, str], answer: bool
) -> None:
    assert warm.wanted(told, environ) is answer


def test_a_bound_that_is_no_number_is_told(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="PENSTOCK_DAEMON_IDLE"):
        warm.terms(tmp_path, {}, {"PENSTOCK_DAEMON_IDLE": "soon"})
