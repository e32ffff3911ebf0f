"""Leases a warm JVM: finds the one that an earlier run left, or starts a keeper, which starts one.

A JVM is found by a key of all that it cannot change while it runs: Java, Spark, jars, settings of
its start, its environment, this code (Spark's idle workers hold what they imported), and what
processes inherit (limits, umask, namespaces). Concurrent runs share it as long as it has slots. If
the keeper does not answer within a timeout, too few slots are free, or anything else fails,
:func:`lease` returns None and the run starts its own JVM. ``PENSTOCK_DAEMON`` turns warm JVMs on
and off. Not here: the keeper's side and its messages (``keeper``), the session (``warm_jvm``)."""

import hashlib
import hmac
import json
import os
import resource
import secrets
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, suppress
from importlib import metadata
from pathlib import Path
from typing import IO, Any, NamedTuple

import platformdirs

from penstock.errors import ConfigError
from penstock.files import write_new
from penstock.runtimes.machine import available_bytes
from penstock.runtimes.trusted_folders import unsafe
from penstock.spark.gateway import Address
from penstock.spark.keeper import LOG, SOCKET, Peer, same_user

VARIABLE = "PENSTOCK_DAEMON"
IDLE_VARIABLE = "PENSTOCK_DAEMON_IDLE"
MEMORY_VARIABLE = "PENSTOCK_DAEMON_MEMORY"
IDLE_SECONDS = 900.0
LEFT_FREE_BYTES = 512 << 20
_ANSWER_SECONDS = 3.0
_LOADED = ("cloudpickle", "msgspec", "pyarrow")  # what a worker of Spark imports
_OTHERS_KEPT = 1  # JVMs next to a new one, which cost 0.5 to 2 GB each
_ROOM_FOR_TWO = 3 << 30
_SECRET = "secret"
_NO = ("", "0", "false", "no", "off")
_started: list["subprocess.Popen[bytes]"] = []


class KeeperStart(NamedTuple):
    """Holds the command of a JVM, its environment, which the keeper shares, and the file ``answer``
    to which its gateway writes its address."""

    command: list[str]
    environ: dict[str, str]
    answer: Path


class Slots(NamedTuple):
    """Holds how many of Spark's slots a run keeps busy at once at most (``wanted``), and how many
    the JVM has for all its runs (``most``)."""

    wanted: int
    most: int


class KeeperLimits(NamedTuple):
    """Holds a keeper's limits and description. ``watched``: folders; the idle JVM is ended when one
    is gone. ``idle``: seconds without a run after which it is ended. ``memory``: it is ended, while
    idle, when the machine has fewer bytes free. ``about``: JSON data for ``status``."""

    watched: tuple[Path, ...]
    about: dict[str, Any]
    idle: float
    memory: int


class JvmLease:
    """Holds a JVM for this run until :meth:`release`; has the methods of ``jvm.Process``.
    ``slots``: the run's. ``first``: the JVM was started for this run. ``beside``: how many other
    runs had the JVM when it was lent. ``log``: the open file of Java's output, since the file is
    deleted when the JVM dies; output before ``log_from`` belongs to earlier runs."""

    def __init__(self, peer: Peer, grant: Mapping[str, Any], log: IO[bytes], *, first: bool):
        started: Mapping[str, Any] = grant["lease"]
        self.address = Address(int(started["port"]), str(started["secret"]))
        self.pid = int(started["pid"])
        self.beside, self.slots = int(grant["beside"]), int(grant["slots"])
        self.log, self.first = log, first
        self.log_from = os.fstat(log.fileno()).st_size if self.beside else 0
        self._peer: Peer | None = peer
        self._code: int | None = None
        self._lock = threading.Lock()

    def poll(self) -> int | None:
        """Returns the JVM's exit code, once it has ended or the lease was given up; else None."""
        return self._look(0)

    def wait(self, timeout: float | None = None) -> int:
        """Waits for the exit code. Raises ``subprocess.TimeoutExpired``."""
        code = self._look(timeout)
        if code is None:
            raise subprocess.TimeoutExpired("java", timeout or 0)
        return code

    def kill(self) -> None:
        """Gives the lease up without giving the JVM back: the keeper ends the JVM at once, or only
        this run's jobs if other runs have it too."""
        with self._lock:
            self._close(-signal.SIGKILL)

    def release(self) -> None:
        """Gives the JVM back for the next run."""
        with self._lock:
            if self._peer is not None:
                with suppress(OSError):
                    self._peer.say({"release": True})
            self._close(0)

    def name_session(self, tag: str) -> None:
        """Sends the keeper the tag of this run's jobs, which it cancels if this process is killed
        while other runs have the JVM. Raises ``OSError``."""
        with self._lock:
            if self._peer is not None:
                self._peer.say({"session": tag})

    def begin_cleaning(self) -> bool:
        """Returns whether no other run has the JVM. If so, none gets it before :meth:`release`."""
        with self._lock:
            if self._peer is None:
                return False
            with suppress(OSError):
                self._peer.say({"clean": True})
                if (answer := self._peer.hear()) is not None and "died" not in answer:
                    return bool(answer.get("alone"))
            self._close(-signal.SIGKILL)
            return False

    def _look(self, seconds: float | None) -> int | None:
        deadline = None if seconds is None else time.monotonic() + seconds
        while True:
            with self._lock:
                if self._peer is None:
                    return self._code
                if select.select([self._peer], [], [], 0.02 if seconds else 0)[0]:
                    message = None
                    with suppress(OSError):
                        message = self._peer.hear()
                    code = (message or {}).get("died")
                    self._close(code if isinstance(code, int) else -signal.SIGKILL)
                    return self._code
            if deadline is not None and time.monotonic() >= deadline:
                return None

    def _close(self, code: int) -> None:
        if self._peer is not None:
            self._peer.close()
            self._peer, self._code = None, code


class _Busy(Exception):
    """Raised if too few slots are free, or another run has just started a keeper; stays in this
    module."""


# -- whether and where


def wanted(asked: bool | None, environ: Mapping[str, str] = os.environ) -> bool:
    """Returns whether a JVM is to stay after the run. ``asked`` False: never. Otherwise
    ``PENSTOCK_DAEMON`` decides if it is set; if not, True permits it, except in CI; None does
    not."""
    if asked is False:
        return False
    if (value := environ.get(VARIABLE)) is not None:
        return value.strip().lower() not in _NO
    return bool(asked) and environ.get("CI", "").strip().lower() in _NO


def folder_of_all(cache: Path | None = None) -> Path:
    """Returns the folder that holds the folders of this user's keepers."""
    return (cache or platformdirs.user_cache_path("penstock")).resolve() / "warm"


def terms(
    watched: Path, about: dict[str, Any], environ: Mapping[str, str] = os.environ
) -> KeeperLimits:
    """Makes the limits of a keeper from environment variables. Raises ``ConfigError``
    (``config.daemon``) for one that is not a number."""
    try:
        idle = float(environ.get(IDLE_VARIABLE) or IDLE_SECONDS)
        memory = int(environ.get(MEMORY_VARIABLE) or LEFT_FREE_BYTES)
    except ValueError:
        raise ConfigError(
            f"{IDLE_VARIABLE} and {MEMORY_VARIABLE} are numbers: seconds, bytes",
            code="config.daemon",
            hint="unset them, or give numbers",
        ) from None
    return KeeperLimits((watched,), about, idle, memory)


def key_of(root: Path, properties: Mapping[str, Any]) -> str | None:
    """Returns the name of the keeper's folder for a JVM with the ``properties`` and those that a
    process inherits. It is an HMAC with a secret of the user's, since other users can read the
    names of sockets, and settings may hold passwords (L10). None if others can write ``root``, or
    the secret cannot be read."""
    if unsafe(root):
        return None
    file = root / _SECRET
    try:
        root.chmod(0o700)
        with suppress(FileExistsError):
            write_new(file, secrets.token_bytes(32))
        secret = file.read_bytes()
    except OSError:
        return None
    if len(secret) != 32:  # another run is about to write it
        return None
    everything = {
        **properties,
        "version": metadata.version("penstock"),
        "code": _code(Path(__file__).parents[1]),
    } | _inherited()
    text = json.dumps(everything, sort_keys=True, default=str)
    return hmac.new(secret, text.encode("utf-8", "surrogateescape"), hashlib.sha256).hexdigest()[
        :24
    ]


def _code(package: Path) -> str:
    """Returns a hash that changes when a file of the package or of the libraries next to it is
    replaced: an upgrade may keep the version, as in a checkout. Takes some 10 ms."""
    seen = hashlib.sha256()
    for folder, _, names in os.walk(package):
        for name in names:
            if name.endswith(".py"):
                found = os.stat(os.path.join(folder, name))
                seen.update(f"{folder}/{name} {found.st_size} {found.st_mtime_ns}\n".encode())
    for name in _LOADED:
        seen.update(f"{name} {metadata.version(name)}\n".encode())
    return seen.hexdigest()


def _inherited() -> dict[str, Any]:
    """Returns the properties that a process inherits from its parent, in which a JVM that another
    process started may differ."""
    limits = [n for n in dir(resource) if n.startswith("RLIMIT_")]
    found: dict[str, Any] = {
        "user": (os.getuid(), os.geteuid(), os.getgid(), sorted(os.getgroups())),
        "limits": {n: resource.getrlimit(getattr(resource, n)) for n in limits},
        "nice": os.nice(0),
        "host": os.uname().nodename,
        "root": [os.stat("/").st_dev, os.stat("/").st_ino],
    }
    if hasattr(os, "sched_getaffinity"):
        found["cpus"] = sorted(os.sched_getaffinity(0))
    with suppress(OSError):
        status = Path("/proc/self/status").read_text().splitlines()
        kept = ("Umask:", "CapEff:", "NoNewPrivs:", "Seccomp:")
        found["status"] = [line for line in status if line.startswith(kept)]
        names = sorted(os.listdir("/proc/self/ns"))
        found["namespaces"] = [os.readlink(f"/proc/self/ns/{n}") for n in names]
        found["boot"] = Path("/proc/sys/kernel/random/boot_id").read_text()
    return found


# -- a lease


def lease(
    root: Path,
    key: str,
    start: Callable[[Path], AbstractContextManager[KeeperStart]],
    on: KeeperLimits,
    slots: Slots,
    check: Callable[[], None],
    timeout: float,
) -> JvmLease | None:
    """Leases the JVM under ``key`` (:func:`key_of`); if there is none, starts one from ``start``,
    within ``timeout`` seconds. ``check``: called while waiting; it may raise. Returns None if the
    run must start its own JVM."""
    folder = root / key
    try:
        if (peer := _connect(folder)) is None:
            _make_room(root, folder)
            try:
                with start(folder) as how:
                    peer = _start(folder, how, on, slots)
                    return _granted(peer, folder, check, timeout, timeout, first=True)
            except _Busy:  # another run has just started a keeper
                peer = _await_keeper(folder, check)
        if peer is None:
            return None
        peer.say({"ask": "lease", "slots": slots.wanted})
        return _granted(peer, folder, check, _ANSWER_SECONDS, timeout, first=False)
    except (OSError, _Busy):
        return None


def _await_keeper(folder: Path, check: Callable[[], None]) -> Peer | None:
    deadline = time.monotonic() + _ANSWER_SECONDS
    while (peer := _connect(folder)) is None and time.monotonic() < deadline:
        check()
        time.sleep(0.05)
    return peer


def _start(folder: Path, how: KeeperStart, on: KeeperLimits, slots: Slots) -> Peer:
    ours, theirs = socket.socketpair()
    with theirs:
        process = subprocess.Popen(
            [sys.executable, "-m", "penstock.spark.keeper", str(folder)],
            stdin=theirs.fileno(),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=how.environ,
            cwd="/",
            start_new_session=True,
        )
    _started[:] = [p for p in _started if p.poll() is None] + [process]
    asked = {
        "ask": "start",
        "command": how.command,
        "answer": str(how.answer),
        "slots": slots.wanted,
        "most_slots": slots.most,
        "idle": on.idle,
        "memory": on.memory,
        "watched": [str(p) for p in on.watched],
        "about": on.about,
    }
    peer = Peer(ours)
    peer.say(asked)
    return peer


def _granted(
    peer: Peer,
    folder: Path,
    check: Callable[[], None],
    seconds: float,
    longest: float,
    *,
    first: bool,
) -> JvmLease | None:
    """Waits ``seconds`` for the keeper's answer, ``longest`` if it announces one. Closes the
    connection, which ends a JVM that is being started, if the lease is not granted. Raises
    :class:`_Busy`."""
    began = time.monotonic()
    lease: JvmLease | None = None
    try:
        while time.monotonic() - began <= seconds:
            if not peer.has_line and not select.select([peer], [], [], 0.05)[0]:
                check()
                continue
            peer.connection.settimeout(_ANSWER_SECONDS)
            answer = peer.hear() or {}
            if answer.get("wait"):
                seconds = longest
                continue
            if answer.get("busy"):
                raise _Busy
            if isinstance(answer.get("lease"), dict):
                lease = JvmLease(peer, answer, (folder / LOG).open("rb"), first=first)
            return lease
        return None
    finally:
        if lease is None:
            peer.close()


def _connect(folder: Path) -> Peer | None:
    """Connects to the keeper of a folder; None if there is none, or it is another user's."""
    try:
        place = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    except OSError:
        return None
    connection = socket.socket(socket.AF_UNIX)
    connection.settimeout(_ANSWER_SECONDS)
    try:
        short = f"/proc/self/fd/{place}/{SOCKET}"  # a socket's path may have 107 characters
        known = os.fstat(place).st_uid == os.geteuid()
        connection.connect(short if os.path.exists("/proc/self/fd") else str(folder / SOCKET))
        if known and same_user(connection):
            return Peer(connection)
    except (FileNotFoundError, ConnectionRefusedError):
        pass
    finally:
        os.close(place)
    connection.close()
    return None


def _make_room(root: Path, beside: Path) -> None:
    """Ends the JVMs that are idle longest, so that few hold memory next to a new one."""
    kept = _OTHERS_KEPT if available_bytes() >= _ROOM_FOR_TWO else 0
    others = [(f, state) for f, state in _all(root) if f != beside]
    idle = [(state["seconds"], f) for f, state in others if state.get("state") == "idle"]
    for _, folder in sorted(idle, reverse=True)[: max(0, len(others) - kept)]:
        _ask(folder, "stop")


# -- all of them


def status(root: Path) -> list[dict[str, Any]]:
    """Returns each keeper's description of its JVM (``penstock spark status``)."""
    return [description for _, description in _all(root)]


def stop(root: Path, seconds: float = 15.0) -> list[dict[str, Any]]:
    """Ends the idle JVMs, and waits for their end at most ``seconds``; a JVM that a run has (its
    ``state`` is ``busy``) ends after that run. Returns each keeper's description."""
    answers = [(f, _ask(f, "stop")) for f, _ in _all(root)]
    deadline = time.monotonic() + seconds
    for folder, answer in answers:
        while answer and answer.get("state") == "idle" and folder.exists():
            if time.monotonic() > deadline:
                break
            time.sleep(0.05)
    return [answer for _, answer in answers if answer]


def _all(root: Path) -> Iterator[tuple[Path, dict[str, Any]]]:
    with suppress(OSError):
        for folder in sorted(p for p in root.iterdir() if p.is_dir()):
            if answer := _ask(folder, "status"):
                yield folder, answer


def _ask(folder: Path, what: str) -> dict[str, Any] | None:
    with suppress(OSError):
        peer = _connect(folder)
        if peer is not None:
            with peer.connection:
                peer.say({"ask": what})
                return peer.hear()
    return None
