"""Runs a connector as a local process: starts it, reads and writes its pipes, kills its whole tree.

Enforces only ``stop`` of :class:`RunTimeouts`; the protocol enforces the others, by the timeout of
each :meth:`ProcessChannel.read`. Not here: how the tree is killed (``supervisor``, the connector's
parent), argument files (``private_files``), what the bytes mean (``protocols``). ``memory``
implements the same interface for tests.
"""

import contextlib
import errno
import os
import select
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Self

from penstock.errors import ConnectorError, Role, in_role
from penstock.runtimes import spawn
from penstock.runtimes.contract import Argument, RunTimeouts, SharedFolders, Start
from penstock.runtimes.env import clean_environment, given_secrets, granted
from penstock.runtimes.limits import Confinement, confinement, too_much
from penstock.runtimes.masking import Masker
from penstock.runtimes.pipes import CAPACITY, InputPipe, grow
from penstock.runtimes.private_files import PrivateFolder
from penstock.runtimes.stderr import StderrDrain
from penstock.runtimes.supervisor import Order

READ_SIZE = CAPACITY
"""The most bytes that one read takes."""
_ENOUGH = 128 * 1024
_GATHER = 0.002
_GATHERS = 5
_LINGER = 2.0
_KILL_MARGIN = 8.0
_LOADER = ("LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH")
_SETTLE = 1.0


class ProcessRuntime:
    """Starts a command as a process, any number of times (``runtimes.contract.Runtime``).

    ``env`` is added to a clean environment (``env``). ``masker``: masks secrets in stderr and
    errors. ``log_stderr`` receives each masked line, in its own thread. ``cwd``: the connector's
    working directory, by default this process's; a relative command is looked up there.
    ``confinement``: the permissions and limits to enforce (``limits``). ``role``: the role whose
    error class is raised."""

    def __init__(
        self,
        command: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        masker: Masker | None = None,
        log_stderr: Callable[[str], None] | None = None,
        cwd: str | os.PathLike[str] | None = None,
        confinement: Confinement | None = None,
        role: Role = "source",
    ) -> None:
        self.command = list(command)
        self._role: Role = role
        self._confinement = confinement or Confinement()
        self._env = dict(env or {})
        self._masker = Masker() if masker is None else masker
        self._log_stderr = log_stderr
        self._cwd = os.fspath(cwd) if cwd is not None else None

    @classmethod
    def of(
        cls, start: Start, masker: Masker, log_stderr: Callable[[str], None] | None = None
    ) -> Self:
        """Makes the runtime for a ``Start``, and adds the values of the variables that it names to
        ``masker``. Raises ``ConfigError`` for permissions and limits that this machine cannot
        enforce."""
        masker.add(given_secrets(start))
        confined = confinement(start.permissions, start.limits)
        allowed = start.env_keys if confined.env_keys is None else confined.env_keys
        return cls(
            start.command,
            env={**start.env, **granted(k for k in start.env_keys if k in allowed)},
            masker=masker,
            log_stderr=log_stderr,
            cwd=start.cwd,
            confinement=confined,
            role=start.role,
        )

    def open(
        self, arguments: Sequence[Argument], timeouts: RunTimeouts, *, feed: bool = False
    ) -> "ProcessChannel":
        """Starts the command; returns once it runs. ``feed``: see ``Runtime.open``. Raises the
        role's error (``connector.not_found``, ``connector.not_executable``,
        ``connector.start_failed``)."""
        confined = self._confinement
        env = clean_environment(self._env, confined.env_keys)
        with self._masker.errors(), in_role(self._role):
            file = spawn.resolve(self.command, env["PATH"], self._cwd)
            folder = PrivateFolder(arguments)
            channel = ProcessChannel(
                folder,
                timeouts,
                self._masker,
                self._log_stderr,
                max_memory=confined.max_memory,
                role=self._role,
            )
            try:
                channel.start(
                    (
                        os.fsencode(file),
                        [os.fsencode(a) for a in (*self.command, *folder.arguments)],
                        {os.fsencode(k): os.fsencode(v) for k, v in env.items()},
                        os.fsencode(self._cwd or ""),
                        float(timeouts.stop),
                        os.fsencode(folder.path or ""),
                        confined.no_network,
                        confined.max_memory or 0,
                        [],
                    ),
                    feed=feed,
                )
            except BaseException:
                channel.close()
                raise
        return channel

    def shared_folders(self) -> SharedFolders:
        """Returns the working directory. The process may open any file that its user may open, but
        a line in its output must not make Penstock read elsewhere."""
        try:
            cwd = os.path.abspath(self._cwd or os.curdir)
        except OSError:  # ours was removed
            return SharedFolders(cwd="/")
        return SharedFolders(paths=(cwd,), cwd=cwd)


class ProcessChannel:
    """Drives one run of a process (``runtimes.contract.ByteChannel``). One thread may call ``read``
    and ``wait``, one ``write``; any may call the rest. Where the process was killed for its memory,
    ``read`` raises the role's error (``source.memory``) in place of the end of stdout, and so does
    ``wait``. ``linger``: seconds of silence after which stdout ends although a process that
    outlived the connector holds it open."""

    def __init__(
        self,
        folder: PrivateFolder,
        timeouts: RunTimeouts,
        masker: Masker,
        log: Callable[[str], None] | None,
        *,
        max_memory: int | None = None,
        role: Role = "source",
        linger: float = _LINGER,
    ) -> None:
        self._folder = folder
        self._linger = linger
        self._role: Role = role
        self._max_memory, self._used = max_memory, 0
        self._timeouts = timeouts
        self._masker = masker
        self._log = log
        self._supervisor: subprocess.Popen[bytes] | None = None
        self._stderr: StderrDrain | None = None
        self._stdout = self._status = self._lifeline = -1
        self._input: InputPipe | None = None
        self._status_text = b""
        self._pid: int | None = None
        self._code: int | None = None
        self._eof = False
        self._all_ended = False  # nothing of the tree is left
        self._signalled = False  # this channel ended it, or its remaining processes
        self._stopped = False
        self._closed = False
        self._idle = 0.0
        self._stopping = threading.Lock()
        self._reading_status = threading.Lock()

    # -- start

    def start(
        self,
        order: Order,
        *,
        feed: bool = False,
        stdout: int = -1,
        stdin: InputPipe | None = None,
    ) -> None:
        """Starts a supervisor and has it start the program of ``order``. Raises ``ConnectorError``.
        ``stdout``, ``stdin``: ends of pipes to use in place of the process's own, which this
        channel closes; with ``stdout`` the process's own stdout joins its stderr."""
        theirs: list[int] = []
        stderr_out = -1
        self._stdout, self._input = stdout, stdin
        child_in = subprocess.DEVNULL
        try:
            if feed:
                child_in, ours = os.pipe()
                theirs.append(child_in)
                self._input = InputPipe(ours)
            stderr_out, stderr_in = os.pipe()
            theirs.append(stderr_in)
            child_out = stderr_in
            if stdout < 0:
                self._stdout, child_out = os.pipe()
                theirs.append(child_out)
            orders, self._lifeline = os.pipe()
            theirs.append(orders)
            self._status, status = os.pipe()
            theirs.append(status)
            grow(self._stdout)
            os.set_blocking(self._stdout, False)
            os.set_blocking(self._lifeline, False)
            os.set_blocking(self._status, False)
            self._supervisor = subprocess.Popen(
                [sys.executable, "-I", "-S", spawn.SUPERVISOR, str(orders), str(status)],
                stdin=child_in,
                stdout=child_out,
                stderr=stderr_in,
                pass_fds=(orders, status),
                start_new_session=True,
                env=clean_environment(granted(_LOADER), allowed=()),  # its child can read it
            )
        except OSError as e:
            if stderr_out >= 0:
                os.close(stderr_out)
            raise ConnectorError(
                f"no process can be started: {e}",
                code="connector.start_failed",
                hint="the machine may be out of processes, memory or open files",
            ) from e
        finally:
            for fd in theirs:
                os.close(fd)
        self._stderr = StderrDrain(stderr_out, self._masker, self._log)
        self._hand_over(order, self._stderr)

    def _hand_over(self, order: Order, stderr: StderrDrain) -> None:
        """Has the supervisor start the program. Raises ``ConnectorError``."""
        spawn.handshake(self._lifeline, self._status, order, self._take_status)
        if self._pid is None:
            raise ConnectorError(
                f"the connector's supervisor died: {stderr.tail(1.0) or 'without a word'}",
                code="connector.start_failed",
                hint=f"does {sys.executable} run?",
            )

    # -- the contract

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        self.close()

    def read(self, timeout: float) -> bytes | None:
        """Reads stdout (``ByteChannel.read``), gathering small pieces for a few milliseconds. After
        the connector has ended, processes that it left running may continue to write; they are
        killed after a silence of 2 s."""
        deadline = time.monotonic() + max(timeout, 0.0)
        poll = select.poll()
        poll.register(self._stdout, select.POLLIN)
        if self._code is None:
            poll.register(self._status, select.POLLIN)
        while not self._eof:
            before = time.monotonic()
            left = max(deadline - before, 0.0)
            bound = left if self._code is None else min(left, max(self._linger - self._idle, 0.0))
            ready = {fd for fd, _ in poll.poll(bound * 1000)}
            if self._stdout in ready:
                self._idle = 0.0
                if (data := self._take(READ_SIZE)) is None:
                    continue
                if not data:
                    break
                return self._gather(data)
            if self._stopped:
                break
            if self._status in ready and self._take_status():
                poll.unregister(self._status)
            elif self._code is not None:
                self._idle += time.monotonic() - before
                if self._idle >= self._linger:
                    self._end_tree(discard=False)
                    continue
            if time.monotonic() >= deadline:
                return None
        self._refuse_too_much(min(_SETTLE, max(deadline - time.monotonic(), 0.0)))
        return b""

    def write(self, data: bytes | memoryview, timeout: float) -> int:
        """Writes to stdin; see ``ByteChannel.write``."""
        if self._input is None:
            raise BrokenPipeError(errno.EPIPE, "it was opened without an input")
        return self._input.write(data, timeout)

    def drained(self, timeout: float) -> bool:
        return self._input is None or self._input.drained(timeout)

    def end_input(self) -> None:
        if self._input is not None:
            self._input.end()

    def private(self, name: str) -> bytes | None:
        return self._folder.content(name)

    def wait(self, timeout: float) -> int | None:
        deadline = time.monotonic() + max(timeout, 0.0)
        poll = select.poll()
        poll.register(self._status, select.POLLIN)
        while self._code is None:
            left = deadline - time.monotonic()
            if poll.poll(max(left, 0.0) * 1000):
                self._take_status()
            elif left <= 0:
                return None
        self._refuse_too_much(0.0)
        return self._code

    def ended_well(self) -> bool:
        if self._closed or self._code != 0 or not self.read_whole_input():
            return False
        self._await_status(_SETTLE, lambda: self._all_ended)
        return self._all_ended and not self._signalled

    def read_whole_input(self) -> bool:
        """Returns whether every byte of the input is known to have been read."""
        return self._input is None or self._input.read_whole()

    def stop(self) -> None:
        if not self._closed:
            self._end_tree(discard=True)

    def stderr_tail(self) -> str:
        if self._stderr is None:
            return ""
        return self._stderr.tail(1.0 if self._code is not None else 0.0)

    def close(self) -> None:
        """Kills the process tree, reads the rest of stderr, and removes the private files.
        Idempotent."""
        try:
            self.stop()
        finally:
            with self._stopping:
                if not self._closed:
                    self._closed = True
                    self._release()

    # -- inside

    def _refuse_too_much(self, settle: float) -> None:
        """Raises the role's error where the tree was killed for its memory. ``settle``: seconds to
        wait for the supervisor's report after the end of stdout."""
        if self._max_memory is None or self._closed:
            return
        self._await_status(settle, lambda: bool(self._used) or self._code is not None)
        if self._used:
            raise too_much(self._max_memory, self._used, self._role)

    def _await_status(self, seconds: float, there: Callable[[], bool]) -> None:
        """Reads the supervisor's reports for at most ``seconds``, or until ``there``."""
        deadline = time.monotonic() + seconds
        poll = select.poll()
        poll.register(self._status, select.POLLIN)
        while not there() and poll.poll(max(deadline - time.monotonic(), 0.0) * 1000):
            self._take_status()
            if time.monotonic() > deadline:
                return

    def _release(self) -> None:
        self._stopped = self._eof = True
        self.end_input()
        for fd in (self._lifeline, self._stdout, self._status):
            if fd >= 0:
                os.close(fd)
        self._code = -9 if self._code is None else self._code
        # An end of the lifeline kills the tree too, should an interrupt have cut `stop` short.
        if self._supervisor is not None:
            try:
                self._supervisor.wait(_KILL_MARGIN)
            except subprocess.TimeoutExpired:
                self._kill()
        if self._stderr is not None:
            self._stderr.close(0.5)
        self._folder.remove()

    def _take(self, size: int) -> bytes | None:
        """Returns the bytes that stdout holds now; None where it is empty; b"" at its end."""
        try:
            data = os.read(self._stdout, size)
        except BlockingIOError:
            return None
        self._eof = self._eof or not data
        return data

    def _gather(self, data: bytes) -> bytes:
        """Reads for up to 10 ms more, to at least 128 KiB: a connector that flushes each record
        would cost a wake-up and a framing pass for each."""
        if not data or len(data) >= _ENOUGH:
            return data
        pieces = [data]
        size = len(data)
        for _ in range(_GATHERS):
            time.sleep(_GATHER)
            more = self._take(READ_SIZE)
            if not more:
                break
            pieces.append(more)
            size += len(more)
            if size >= _ENOUGH:
                break
        return b"".join(pieces)

    def _take_status(self) -> bool:
        """Reads the supervisor's reports; returns True once there is an exit code, or the
        supervisor is gone. Raises ``spawn.SpawnRefused``."""
        with self._reading_status:
            return self._read_status()

    def _read_status(self) -> bool:
        try:
            data = os.read(self._status, 4096)
        except BlockingIOError:
            return self._code is not None
        self._status_text += data
        *lines, self._status_text = self._status_text.split(b"\n")
        for line in lines:
            what, _, rest = line.partition(b" ")
            if what == b"S":
                self._pid = int(rest)
            elif what == b"X":
                self._code = int(rest)
            elif what == b"M":
                self._used = int(rest)
            elif what == b"A":
                self._all_ended = True
            elif what == b"E":
                number, _, step = rest.partition(b" ")
                raise spawn.SpawnRefused(int(number), step.decode())
        if not data and self._code is None:
            # The supervisor was killed; its death signal killed the connector.
            self._kill()
            self._code = -9
        return self._code is not None

    def _end_tree(self, *, discard: bool) -> None:
        with self._stopping:
            if self._stopped or self._supervisor is None:
                return
            self._signalled = True
            with contextlib.suppress(OSError):
                os.write(self._lifeline, b"T")
            deadline = time.monotonic() + self._timeouts.stop + _KILL_MARGIN
            while self._supervisor.poll() is None and time.monotonic() < deadline:
                # A connector that flushes on SIGTERM must not block on a full pipe.
                if discard and not self._eof:
                    with contextlib.suppress(OSError):
                        while self._take(READ_SIZE):
                            pass
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self._supervisor.wait(0.02)
            if self._supervisor.poll() is None:
                self._kill()
            with contextlib.suppress(spawn.SpawnRefused):
                while not self._take_status() and self._supervisor.poll() is None:
                    time.sleep(0.01)
            if discard:
                self._eof = True
            self._stopped = True

    def _kill(self) -> None:
        """Kills the supervisor, and the connector's process group, which the supervisor failed to
        kill."""
        if self._supervisor is not None:
            self._supervisor.kill()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._supervisor.wait(1.0)
        if self._pid is not None and self._code is None:
            with contextlib.suppress(OSError):
                os.killpg(self._pid, 9)
