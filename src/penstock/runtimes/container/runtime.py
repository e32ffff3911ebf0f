"""Runs a connector in a container: creates, starts and reads it with back-pressure, and always
removes it.

The contract is that of a process (``runtimes.contract``), implemented by one: the engine's command
line, attached to the container, under the same supervisor. Stdin and stdout are named pipes that
the container opens itself, if its image has a shell and the engine runs on this machine's own
kernel; else they go through the engine. The exit code and the reason come from the engine's record
of the container, read before it is removed.

Not here: the command that creates it (``command``), its restrictions (``restrictions``), its files
(``mounted_files``), its connections to the hosts of a list (``egress``), containers of a killed
owner (``orphans``).
"""

import contextlib
import json
import math
import os
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Any, Self, cast

from penstock.errors import ConfigError, ConnectorError, PenstockError, Role, error_class, in_role
from penstock.runtimes.container.command import created, program
from penstock.runtimes.container.egress import Egress
from penstock.runtimes.container.engine import (
    CALL_BOUND,
    Engine,
    environment,
    find_engine,
    last_output,
    refusal,
)
from penstock.runtimes.container.image import here
from penstock.runtimes.container.mounted_files import MountedFiles, Pipes
from penstock.runtimes.container.orphans import new_name, removed_once
from penstock.runtimes.container.restrictions import ContainerRestrictions, restrictions_of
from penstock.runtimes.contract import Argument, Image, RunTimeouts, SharedFolders, Start
from penstock.runtimes.env import given_secrets, granted
from penstock.runtimes.masking import Masker
from penstock.runtimes.process import ProcessChannel

_SETTLE = 5.0
"""Seconds for the engine to notice that a container has ended, once its stdout has."""
_CREATE_BOUND = 120.0
_STOP_MARGIN = 8.0
_OOM_BOUND = 1.0
"""Seconds for the engine to notice that the kernel killed something in a container that ended."""
_LOOK = 0.05
_NOT_THERE, _NOT_EXECUTABLE, _SIGNALS = 127, 126, 128
_LAST_SIGNAL = 64


class ContainerRuntime:
    """Runs any number of containers of an image. ``variables``: passed by name, with secret values;
    ``env``: settings that are not secret."""

    def __init__(
        self,
        image: Image,
        engine: Engine,
        restrictions: ContainerRestrictions,
        *,
        env: Mapping[str, str],
        variables: Mapping[str, str],
        masker: Masker,
        log_stderr: Callable[[str], None] | None,
        role: Role,
        served: int | None = None,
    ) -> None:
        self._image = image
        self._engine = engine
        self._restrictions = restrictions
        self._served = served
        self._env = env
        self._variables = variables
        self._masker = masker
        self._log_stderr = log_stderr
        self._role: Role = role

    @classmethod
    def of(
        cls,
        start: Start,
        image: Image,
        masker: Masker,
        log_stderr: Callable[[str], None] | None = None,
        *,
        variables: Mapping[str, str] | None = None,
        served: int | None = None,
    ) -> Self:
        """Makes the runtime for a ``Start``, and adds the values of the variables that the user
        names to ``masker``. ``variables``: further ones for the container. ``served``: the port of
        a server on this process's loopback, which the container reaches at the same port of its own
        loopback, where it has no network (``ContainerRestrictions``) and its image has a shell.
        Raises ``ConfigError`` for permissions and limits that this machine cannot enforce, and its
        role's error (``connector.no_engine``)."""
        masker.add(given_secrets(start))
        with masker.errors(), in_role(start.role):
            engine = find_engine()
            removed_once(engine)
            image = here(engine, image, start.container.pull)
        restrictions = restrictions_of(start.permissions, start.limits, start.container, engine)
        keys = start.env_keys if restrictions.env_keys is None else restrictions.env_keys
        given = {**granted(keys), **(variables or {})}
        if given and not image.shell:
            raise ConfigError(
                f"the image {image.reference} has no shell, so that variables would be given to it "
                "where others of this machine can read them",
                code="config.unsupported",
                hint="remove env.allowed_vars, and put the values into its configuration",
            )
        if restrictions.reach and not image.shell:
            raise ConfigError(
                f"the image {image.reference} has no shell, which must wait until the allowed "
                "hosts can be reached",
                code="config.unsupported",
                hint="remove permissions.network.allowed_hosts, or use an image with /bin/sh",
            )
        return cls(
            image,
            engine,
            restrictions,
            env=start.env,
            variables=given,
            masker=masker,
            log_stderr=log_stderr,
            role=start.role,
            served=served,
        )

    def open(
        self, arguments: Sequence[Argument], timeouts: RunTimeouts, *, feed: bool = False
    ) -> "ContainerChannel":
        """Creates and starts a container. ``feed``: see the contract. Raises the role's error
        (``connector.not_executable``, ``connector.engine``)."""
        egress = self._egress()
        with self._masker.errors(), in_role(self._role):
            if not program(self._image, [a for a in arguments if isinstance(a, str)]):
                raise _starts_nothing(self._image)
            files = MountedFiles(
                arguments,
                user=self._user(),
                variables=self._variables,
                pipes=self._image.shell and self._engine.shares_pipes,
                gated=egress is not None,
            )
            channel = ContainerChannel(
                self._engine,
                self._image,
                files,
                timeouts,
                self._masker,
                self._log_stderr,
                max_memory=self._restrictions.max_memory,
                egress=egress,
                role=self._role,
            )
            try:
                channel.start(self._restrictions, self._env, feed=feed)
            except BaseException:
                channel.close()
                raise
        return channel

    def shared_folders(self) -> SharedFolders:
        asked = self._restrictions
        return SharedFolders(
            paths=tuple(path for path, _ in asked.folders),
            user=None if asked.container.capabilities else self._user(),
        )

    def _egress(self) -> Egress | None:
        def tell(text: str) -> None:
            if self._log_stderr is not None:
                self._log_stderr(self._masker.mask(text))

        reach = self._restrictions.reach
        return None if reach is None and self._served is None else Egress(reach, self._served, tell)

    def _user(self) -> int | None:
        """Returns the number, outside of the container, of its user; None: unknown."""
        if self._image.user == 0 and self._engine.own_user_is_root:
            return os.geteuid()
        return None if self._engine.maps_users else self._image.user


class ContainerChannel:
    """One run (``runtimes.contract.ByteChannel``). Threads as for ``process.ProcessChannel``. If
    the container never began, or the kernel killed it for its memory, ``read`` raises its role's
    error in place of the end of stdout, and so does ``wait``."""

    def __init__(
        self,
        engine: Engine,
        image: Image,
        files: MountedFiles,
        timeouts: RunTimeouts,
        masker: Masker,
        log: Callable[[str], None] | None,
        *,
        max_memory: int | None,
        egress: Egress | None,
        role: Role,
    ) -> None:
        self._engine = engine
        self._image = image
        self._files = files
        self._role: Role = role
        self._max_memory = max_memory
        self._egress = egress
        self._stop_seconds = timeouts.stop
        self._masker = masker
        self.name = new_name()
        self._pipes: Pipes | None = None
        # Nothing outlives a container's first process, so no process has to be awaited.
        self._process = ProcessChannel(files, timeouts, masker, log, role=role, linger=0.0)
        self._started = False
        self._began = False
        self._code: int | None = None
        self._failure: PenstockError | None = None
        self._input_ended = False
        self._stopped = False  # by us
        self._removed = True
        self._lock = threading.Lock()

    # -- start

    def start(
        self, restrictions: ContainerRestrictions, env: Mapping[str, str], *, feed: bool
    ) -> None:
        words = created(
            self._engine,
            self.name,
            self._image,
            self._files.arguments,
            self._files,
            restrictions,
            env,
            feed=feed,
        )
        self._removed = False
        done = self._engine.call(words, _CREATE_BOUND)
        if done.returncode:
            raise _not_created(self._engine, self._image, last_output(done))
        stdout, stdin = -1, None
        if self._files.has_pipes and self._files.path is not None:
            self._pipes = Pipes(self._files.path, feed=feed, gated=self._files.gated)
            stdout, stdin = self._pipes.stdout, self._pipes.stdin
        command = [self._engine.command, "start", "-a", "-i", self.name]
        self._process.start(
            (
                os.fsencode(self._engine.command),
                [os.fsencode(w) for w in command],
                {os.fsencode(k): os.fsencode(v) for k, v in environment().items()},
                os.fsencode(self._files.path or ""),  # where podman writes how it ended
                float(self._stop_seconds),
                os.fsencode(self._files.path or ""),
                False,
                0,
                [os.fsencode(w) for w in self._engine.removal(self.name)],
            ),
            feed=feed and self._pipes is None,
            stdout=stdout,
            stdin=stdin,
        )
        self._started = True
        if self._egress is not None and self._pipes is not None:
            self._open_egress(self._egress, self._pipes)

    def _open_egress(self, egress: Egress, pipes: Pipes) -> None:
        """Opens the egress once the container runs. If it ends before, its reader reports the
        reason."""
        deadline = time.monotonic() + _CREATE_BOUND
        while self._process.wait(0.0) is None:
            asked = ["inspect", "--format", "{{.State.Pid}}", self.name]
            pid = self._engine.output(asked, "a container cannot be inspected").strip()
            if pid.isdigit() and int(pid):
                try:
                    egress.open(int(pid), os.path.basename(self._files.path or ""))
                except OSError as e:
                    raise _not_entered(self._image, str(e)) from e
                pipes.go()
                return
            if time.monotonic() > deadline:
                raise _not_entered(self._image, f"it did not start in {_CREATE_BOUND:.0f} s")
            time.sleep(_LOOK)

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
        """See the contract."""
        deadline = time.monotonic() + max(timeout, 0.0)
        while True:
            block = self._process.read(max(deadline - time.monotonic(), 0.0))
            if block and self._pipes is not None and not self._pipes.opened:
                with self._lock:
                    block = self._pipes.first(block)
                    if self._input_ended:
                        self._process.end_input()
                if not block:
                    continue
            if block == b"":
                self._settle(min(_SETTLE, max(deadline - time.monotonic(), 0.0)))
            elif block:
                self._began = True
            return block

    def write(self, data: bytes | memoryview, timeout: float) -> int:
        """See the contract."""
        return self._process.write(data, timeout)

    def drained(self, timeout: float) -> bool:
        """See the contract; through the engine, only input that the engine has not taken counts as
        unread."""
        return self._process.drained(timeout)

    def end_input(self) -> None:
        with self._lock:
            self._input_ended = True
            # Opening a pipe that nobody has open to write blocks forever.
            if self._pipes is None or self._pipes.opened:
                self._process.end_input()

    def private(self, name: str) -> bytes | None:
        return self._files.content(name)

    def wait(self, timeout: float) -> int | None:
        self._settle(timeout)
        return self._code

    def ended_well(self) -> bool:
        """See the contract; only named pipes show it, since the engine takes input before the
        connector reads it."""
        started = self._pipes is not None and self._pipes.opened and not self._stopped
        ended = self._code == 0 and self._failure is None
        return started and ended and self._process.read_whole_input()

    def stop(self) -> None:
        """Stops it by the engine, since not every command line passes SIGTERM on to its
        container."""
        try:
            self._stop_container()
            self._process.stop()
        finally:
            self._settle(0.0, quiet=True)
            self._remove()

    def stderr_tail(self) -> str:
        return self._process.stderr_tail()

    def close(self) -> None:
        """Stops it, removes it and its files. Idempotent."""
        try:
            self.stop()
        finally:
            if self._egress is not None:
                self._egress.close()
            if self._pipes is not None:
                self._pipes.release()
            self._process.close()

    # -- inside

    def _settle(self, timeout: float, *, quiet: bool = False) -> None:
        """Takes its exit code, once it has one. Raises, in each call, why it never began or was
        killed."""
        if self._code is None and self._started:
            attached = self._process.wait(timeout)
            if attached is None:
                return
            try:
                self._code, self._failure = self._ended(attached, stopped=quiet)
            except ConnectorError as e:
                self._code, self._failure = attached, e
        if self._failure is not None and not quiet:
            with self._masker.errors(), in_role(self._role):
                raise self._failure

    def _ended(self, attached: int, *, stopped: bool) -> tuple[int, PenstockError | None]:
        """Returns the container's own exit code, and the failure that it means. ``attached``: the
        exit code of the command line, which may have ended for other reasons. ``stopped``: by
        us."""
        done = self._engine.call(["inspect", "--format", "{{json .State}}", self.name], CALL_BOUND)
        try:
            state = cast(dict[str, Any], json.loads(done.stdout))
        except ValueError:
            return attached, refusal(
                f"the container of {self._image.reference} is gone: {self._engine.kind} reports: "
                f"{self.stderr_tail() or last_output(done)}"
            )
        if state.get("Running"):
            return -9 if attached >= 0 else attached, None
        code = int(state.get("ExitCode", attached))
        error = str(state.get("Error") or "")
        begun = self._began if self._pipes is None else self._pipes.opened
        if state.get("Status") == "created" or (error and not begun):
            return code, _not_started(self._engine, self._image, error or self.stderr_tail())
        if code and self._was_killed_for_memory(state, stopped=stopped):
            return code, self._too_much()
        if code in (_NOT_THERE, _NOT_EXECUTABLE) and not self._began:
            return code, _no_command(self._image, code, self.stderr_tail())
        if _SIGNALS < code <= _SIGNALS + _LAST_SIGNAL:
            return _SIGNALS - code, None
        return code, None

    def _was_killed_for_memory(self, state: dict[str, Any], *, stopped: bool) -> bool:
        """Returns whether the kernel killed something in the container for its memory. Docker
        learns of that and of the container's end separately, and possibly of the end first: if
        there is a limit, and we did not stop the container, it is queried again."""
        again = self._max_memory is not None and not stopped
        deadline = time.monotonic() + (_OOM_BOUND if again else 0.0)
        killed = bool(state.get("OOMKilled")) or self._files.has_oom_file()
        while not killed and time.monotonic() < deadline:
            time.sleep(_OOM_BOUND / 5)
            question = ["inspect", "--format", "{{.State.OOMKilled}}", self.name]
            asked = self._engine.call(question, CALL_BOUND)
            killed = asked.stdout.strip() == "true" or self._files.has_oom_file()
        return killed

    def _stop_container(self) -> None:
        """Sends SIGTERM, and SIGKILL after ``RunTimeouts.stop`` seconds. Drops further output: a
        connector that flushes on SIGTERM must not block on a full pipe."""
        if not self._started or self._removed or self._process.wait(0.0) is not None:
            return
        self._stopped = True
        seconds = math.ceil(self._stop_seconds)
        deadline = time.monotonic() + seconds + _STOP_MARGIN
        stopping = subprocess.Popen(
            [self._engine.command, "stop", "-t", str(seconds), self.name],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=environment(),
        )
        while stopping.poll() is None and time.monotonic() < deadline:
            if self._process.read(0.02) == b"":
                with contextlib.suppress(subprocess.TimeoutExpired):
                    stopping.wait(0.05)
        if stopping.poll() is None:
            stopping.kill()
            stopping.wait()

    def _too_much(self) -> PenstockError:
        if self._max_memory is None:
            return error_class(self._role)(
                "the connector was killed because the machine ran out of memory",
                code=f"{self._role}.memory",
                hint="give it less to do at a time (fewer streams, smaller batches), or more memory"
                " to the machine",
            )
        return error_class(self._role)(
            f"the connector used more memory than its limit of {self._max_memory / 1024**2:.1f} MB "
            "and was killed (limits.max_memory)",
            code=f"{self._role}.memory",
            hint="raise limits.max_memory, or give it less to do at a time (fewer streams, smaller"
            " batches)",
        )

    def _remove(self) -> None:
        """Removes it with its volumes. If that fails, the next start removes it."""
        with self._lock:
            if self._removed:
                return
            self._removed = True
        try:
            self._engine.call(self._engine.removal(self.name)[1:])
        except ConnectorError:
            return


def _starts_nothing(image: Image) -> ConnectorError:
    return ConnectorError(
        f"the image {image.reference} names no program: it has no entry point",
        code="connector.not_executable",
        hint="use an image whose ENTRYPOINT is the connector",
    )


def _no_command(image: Image, code: int, words: str) -> ConnectorError:
    what = "is not there" if code == _NOT_THERE else "cannot be executed"
    return ConnectorError(
        f"what the image {image.reference} starts {what}: {words or f'exit code {code}'}",
        code="connector.not_found" if code == _NOT_THERE else "connector.not_executable",
        hint=f"is it a connector? Its entry point is {' '.join(image.entrypoint) or 'none'}",
    )


def _not_created(engine: Engine, image: Image, words: str) -> ConnectorError:
    if "bind source path does not exist" in words:
        return ConnectorError(
            f"{engine.kind} does not find the files that the connector needs: {words}",
            code="connector.start_failed",
            hint="a folder of permissions.fs.allowed_preopens must exist; where Penstock itself"
            " runs in a container, its temporary folder must have the same path outside (TMPDIR)",
        )
    return refusal(
        f"no container of {image.reference} can be created: {engine.kind} reports: {words}"
    )


def _not_entered(image: Image, why: str) -> ConnectorError:
    return ConnectorError(
        f"the network of the container of {image.reference} cannot be entered, to let it reach the "
        f"hosts that it is allowed: {why}",
        code="connector.start_failed",
        hint="Penstock has to run as root on the engine's own machine, not in a container; or use"
        " permissions.network.allowed_hosts: []",
    )


def _not_started(engine: Engine, image: Image, words: str) -> ConnectorError:
    return ConnectorError(
        f"the container of {image.reference} did not start: {engine.kind} reports: {words}",
        code="connector.start_failed",
        hint="see the engine's message; `penstock doctor` tests it",
    )
