"""Finds a connector's executable, has the supervisor start it, and explains a failed start.

Not here: the pipes (``process``), the start itself (``supervisor``, which answers with an errno).
"""

import errno
import marshal
import os
import select
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from penstock.errors import ConnectorError
from penstock.runtimes.supervisor import Order

SUPERVISOR = str(Path(__file__).with_name("supervisor.py"))
START_BOUND = 60.0
"""Seconds for a small Python process to start on an overloaded machine."""


class SpawnRefused(Exception):
    """Raised where the system refused a step of the start with an errno. ``step``: ``start``,
    ``network``, ``cwd`` or ``exec``."""

    def __init__(self, number: int, step: str) -> None:
        super().__init__(number, step)
        self.number = number
        self.step = step


def resolve(command: Sequence[str], path: str, cwd: str | None) -> str:
    """Returns the file of a command, found as a shell would: in the folders of ``path``, or
    relative to ``cwd``. Raises ``ConnectorError`` (``connector.not_found``,
    ``connector.not_executable``)."""
    if not command or not command[0]:
        raise ConnectorError(
            "the connector's command is empty", code="connector.not_found", hint="name a command"
        )
    name = command[0]
    base = Path(cwd or os.curdir)
    if os.sep in name:
        return _usable(base / name, name)
    for folder in path.split(os.pathsep):
        candidate = base / folder / name
        if candidate.is_file() and os.access(candidate, os.X_OK):
            return str(candidate.absolute())
    hint = "check the spelling, install it, or give its path"
    if (base / name).exists():
        hint = f"give its path: ./{name}"
    raise ConnectorError(f"command not found: {name}", code="connector.not_found", hint=hint)


def _near(file: Path) -> str | None:
    """Returns the name of a similar file in the same folder."""
    from difflib import get_close_matches  # only this hint needs it

    try:
        names = [entry.name for entry in os.scandir(file.parent) if entry.is_file()]
    except OSError:
        return None
    return next(iter(get_close_matches(file.name, names, 1, cutoff=0.75)), None)


def _usable(file: Path, name: str) -> str:
    if not file.exists():
        path, near = str(file.absolute()), _near(file)
        raise ConnectorError(
            f"no such file: {name}" + ("" if name == path else f" (looked for {path})"),
            code="connector.not_found",
            hint=f"did you mean {near} ?"
            if near
            else "check the path; in a pipeline file a relative one counts from the file's folder",
        )
    if file.is_dir():
        raise ConnectorError(
            f"not a program but a directory: {name}",
            code="connector.not_executable",
            hint="give the path of the executable inside it",
        )
    if not os.access(file, os.X_OK):
        raise _not_executable(file, "it lacks the permission to be executed")
    return str(file.absolute())


def handshake(lifeline: int, status: int, order: Order, take_status: Callable[[], bool]) -> None:
    """Sends the order to the supervisor, and waits until the connector runs, at most
    :data:`START_BOUND` seconds. ``lifeline``, ``status``: the pipes of ``supervisor``.
    ``take_status`` reads ``status`` and raises :class:`SpawnRefused`; it returns True where the
    connector has ended already. Raises ``ConnectorError``."""
    data = marshal.dumps(order)
    deadline = time.monotonic() + START_BOUND
    try:
        _send(lifeline, len(data).to_bytes(8, "little") + data, deadline)
        poll = select.poll()
        poll.register(status, select.POLLIN)
        if not poll.poll(max(deadline - time.monotonic(), 0.0) * 1000):
            raise TimeoutError(f"nothing in {START_BOUND:.0f} s")
        take_status()
    except SpawnRefused as refused:
        raise _explained(refused, order) from None
    except OSError as e:
        raise ConnectorError(
            f"the connector's supervisor did not start: {e}",
            code="connector.start_failed",
            hint="the machine may be overloaded or out of memory; try again",
        ) from e


def _send(fd: int, data: bytes, deadline: float) -> None:
    poll = select.poll()
    poll.register(fd, select.POLLOUT)
    left = memoryview(data)
    while left:
        if not poll.poll(max(deadline - time.monotonic(), 0.0) * 1000):
            raise TimeoutError(f"it does not read its order within {START_BOUND:.0f} s")
        left = left[os.write(fd, left) :]


def _explained(refused: SpawnRefused, order: Order) -> ConnectorError:
    file, cwd = Path(os.fsdecode(order[0])), order[3]
    if refused.step == "network":
        return ConnectorError(
            "this machine gives the connector no network namespace: "
            f"{os.strerror(refused.number).lower()}",
            code="connector.start_failed",
            hint="permissions.network.allowed_hosts: [] needs a network namespace for a process: "
            "use a container image (PROTOCOL:docker:IMAGE) or a WebAssembly connector",
        )
    if refused.step == "cwd":
        return ConnectorError(
            f"the working directory {os.fsdecode(cwd)} cannot be entered: "
            f"{os.strerror(refused.number)}",
            code="connector.start_failed",
            hint="create it, or run from another directory",
        )
    if refused.number == errno.ENOENT and file.exists():
        interpreter = _interpreter(file)
        return ConnectorError(
            f"{file} names an interpreter that is not here: {interpreter or 'its loader'}",
            code="connector.start_failed",
            hint="install that interpreter, or mend the file's first line",
        )
    if refused.number == errno.ENOENT:
        return ConnectorError(
            f"no such file: {file}", code="connector.not_found", hint="check the path"
        )
    if refused.number == errno.ENOEXEC:
        return _not_executable(file, "it is neither a program for this machine nor has a #! line")
    if refused.number in (errno.EACCES, errno.EPERM):
        return _not_executable(file, os.strerror(refused.number).lower())
    hint = "its arguments may be too long" if refused.number == errno.E2BIG else "try it by hand"
    return ConnectorError(
        f"{file} cannot be started: {os.strerror(refused.number)}",
        code="connector.start_failed",
        hint=hint,
    )


def _interpreter(file: Path) -> str | None:
    try:
        with file.open("rb") as f:
            first = f.readline(512)
    except OSError:
        return None
    return first[2:].strip().decode(errors="replace") if first.startswith(b"#!") else None


def _not_executable(file: Path, why: str) -> ConnectorError:
    hint = f"chmod +x {file}, or give the command that runs it"
    if file.suffix == ".py":
        hint = f'chmod +x {file} and begin it with #!/usr/bin/env python3, or give "python3 {file}"'
    return ConnectorError(
        f"{file} cannot be executed: {why}", code="connector.not_executable", hint=hint
    )
