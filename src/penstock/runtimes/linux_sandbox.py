"""Confines a process on Linux: a namespace without a network, and a limit on its tree's memory.

Imported by ``supervisor``, only where a connector is confined. Run as a script, it probes whether
this machine permits such namespaces (stdout: why not). With arguments (a file of :data:`StandIn`
and a command line) it confines itself and runs the program (``connectors.source_builds``). It
imports little of the standard library and nothing else. Not here: which permissions and limits are
refused (``limits``).

Memory: where the supervisor may make a control group (v1, or v2 in a delegated folder), it makes
one for its lifetime, and the kernel kills the tree. Else the supervisor sums the resident memory of
the whole tree, and kills it.
"""

# contextlib would cost as much as all other imports together.
# ruff: noqa: SIM105
import ctypes
import marshal
import os
import sys
from collections.abc import Callable, Iterable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn

StandIn = tuple[str, str, bool, tuple[str, ...], str, tuple[str, ...], dict[str, str]]
"""How a program is confined: its file; the user namespace of the process that wrote this (empty:
this machine permits no other, so none is entered); whether it has no network; files and folders
that it sees as empty; the empty folder; variables that it does not get (nor any ``UV_*``);
variables that it gets."""

CLONE_NEWNS = 0x00020000
CLONE_NEWUSER = 0x10000000
CLONE_NEWNET = 0x40000000
_SIOCGIFFLAGS, _SIOCSIFFLAGS, _IFF_UP = 0x8913, 0x8914, 1
_AF_INET, _SOCK_DGRAM = 2, 2
_PR_CAPBSET_DROP, _PR_SET_NO_NEW_PRIVS = 24, 38
_MS_BIND, _MS_REC, _MS_PRIVATE = 0x1000, 0x4000, 0x40000
_OURS = "penstock-"
_SHORT = 1024**2  # bytes below its limit at which a group may already be killed
_PROC = "/proc"

_libc = ctypes.CDLL(None, use_errno=True)
_unshare = getattr(_libc, "unshare", None)  # Linux only; looked up before any fork


# -- namespaces


def leave_network() -> None:
    """Moves this process, and what it starts, into a network namespace with only a loopback, and
    drops its capabilities. Raises ``OSError``."""
    _enclose(CLONE_NEWNET)
    _loopback_up()
    _give_up_all_else()


def _enclose(more: int) -> None:
    """Enters a user namespace that maps the user to itself, also as root, and the namespaces of the
    flags ``more``. Processes outside (the supervisor, Penstock) are then in another user namespace:
    neither ``setns`` nor a debugger reaches them, with any user id, and their variables cannot be
    read. Raises ``OSError``."""
    if _unshare is None:
        raise OSError(38, "no namespaces here")
    uid, gid = os.geteuid(), os.getegid()
    if _unshare(CLONE_NEWUSER | more) != 0:
        _fail()
    _write("/proc/self/setgroups", "deny")
    _write("/proc/self/uid_map", f"{uid} {uid} 1")
    _write("/proc/self/gid_map", f"{gid} {gid} 1")


def _give_up_all_else() -> None:
    """Permanently removes all capabilities of the programs that this process runs. Raises
    ``OSError``."""
    _no_further_namespaces()
    _drop_capabilities()


def _hide(paths: Iterable[str], empty: str) -> None:
    """Mounts an empty file or folder in the place of each path, for this process and what it
    starts. Where the machine permits no mounts, the paths stay visible, as to any process of the
    user."""
    if _unshare is None or _unshare(CLONE_NEWNS) != 0:
        return
    _libc.mount(b"none", b"/", None, _MS_REC | _MS_PRIVATE, None)
    for path in paths:
        nothing = empty if os.path.isdir(path) else os.devnull
        _libc.mount(os.fsencode(nothing), os.fsencode(path), None, _MS_BIND, None)


def _become(file: str, argv: list[str]) -> "NoReturn":
    """Confines this process by the :data:`StandIn` in ``file``, and runs its program in place of
    this one. A process that is already in the namespaces, since such a program started it, enters
    none again. Raises ``OSError``."""
    with open(file, "rb") as f:
        order: StandIn = marshal.load(f)
    program, outside, no_network, hidden, empty, dropped, given = order
    if outside and os.readlink("/proc/self/ns/user") == outside:
        _enclose(CLONE_NEWNET if no_network else 0)
        if no_network:
            _loopback_up()
        _hide(hidden, empty)
        _give_up_all_else()
    env = {k: v for k, v in os.environ.items() if k not in dropped and not k.startswith("UV_")}
    os.execve(program, argv, {**env, **given})


def _no_further_namespaces() -> None:
    """Forbids further user namespaces, in which a process would regain capabilities: these reach
    nothing outside, but more of the kernel's code. Where the setting cannot be written, further
    namespaces remain possible."""
    try:
        _write("/proc/sys/user/max_user_namespaces", "0")
    except OSError:
        pass


def _drop_capabilities() -> None:
    """Drops every capability of the programs that this process runs from now on; the first number
    unknown to the kernel ends the list."""
    number = 0
    while _libc.prctl(_PR_CAPBSET_DROP, number, 0, 0, 0) == 0:
        number += 1
    if number == 0 or _libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0:
        _fail()


def _fail() -> "NoReturn":
    number = ctypes.get_errno()
    raise OSError(number, os.strerror(number))


def _loopback_up() -> None:
    """Turns the loopback interface on; if that fails, there is no network at all."""
    fd = _libc.socket(_AF_INET, _SOCK_DGRAM, 0)
    if fd < 0:
        return
    request = ctypes.create_string_buffer(b"lo", 40)  # struct ifreq: a name of 16 bytes, flags
    if _libc.ioctl(fd, _SIOCGIFFLAGS, request) == 0:
        flags = int.from_bytes(request.raw[16:18], sys.byteorder) | _IFF_UP
        request[16:18] = flags.to_bytes(2, sys.byteorder)
        _libc.ioctl(fd, _SIOCSIFFLAGS, request)
    os.close(fd)


# -- memory


class Memory:
    """Limits the memory of a process tree to ``limit`` bytes."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.group = _made(limit)

    def take(self, pid: int) -> None:
        """Puts a process into the control group; called before it runs the connector's program."""
        if self.group is not None and not self.group.take(pid):
            self.remove()

    def exceeded(self, tree: Callable[[], list[int]]) -> int | None:
        """Returns the bytes that the tree used if it exceeded the limit, else None. ``tree``:
        returns the process ids whose memory is summed without a control group."""
        if self.group is not None:
            return self.group.exceeded()
        pids = tree()
        if sum(map(_resident, pids)) <= self.limit:
            return None
        # Memory that processes share was counted for each of them; the exact sum is expensive.
        used = sum(map(_proportional, pids))
        return used if used > self.limit else None

    def remove(self) -> None:
        """Removes the control group, once no process of the tree is left. If that fails, the next
        supervisor removes it (:func:`_sweep`)."""
        if self.group is not None:
            _remove(self.group.folder)
            self.group = None


class _Group:
    """Limits memory by a control group of version 1 or 2."""

    def __init__(self, folder: str, version: int) -> None:
        self.folder, self._version = folder, version

    def bound(self, limit: int) -> None:
        """Sets the limit in bytes. Raises ``OSError``."""
        if self._version == 1:
            self._write("memory.limit_in_bytes", limit)
            self._optional("memory.memsw.limit_in_bytes", limit)
        else:
            self._write("memory.max", limit)
            self._optional("memory.swap.max", 0)
            self._optional("memory.oom.group", 1)

    def take(self, pid: int) -> bool:
        """Puts a process into the group; returns False where the kernel refuses."""
        try:
            self._write("cgroup.procs", pid)
        except OSError:
            return False
        return True

    def exceeded(self) -> int | None:
        """Returns the peak of bytes in use if the kernel killed a process for this group's limit,
        else None. The group's kill count includes kills for lack of memory on the whole machine, so
        the limit must have been reached as well."""
        if self._version == 1:
            killed = _words(f"{self.folder}/memory.oom_control").get("oom_kill", 0)
            used = _number(f"{self.folder}/memory.max_usage_in_bytes")
            reached = used > _number(f"{self.folder}/memory.limit_in_bytes") - _SHORT
        else:
            events = _words(f"{self.folder}/memory.events")
            killed, reached = events.get("oom_kill", 0), events.get("oom", 0) > 0
            used = _number(f"{self.folder}/memory.peak") or _number(f"{self.folder}/memory.max")
        return used if killed and reached else None

    def _write(self, name: str, value: int) -> None:
        _write(f"{self.folder}/{name}", str(value))

    def _optional(self, name: str, value: int) -> None:
        """Writes a setting if its file exists: kernels that do not count swap lack some."""
        if os.path.exists(f"{self.folder}/{name}"):
            self._write(name, value)


def _made(limit: int) -> _Group | None:
    """Makes a control group with that limit in bytes; None where this process may not make one."""
    for base, version in places():
        folder = f"{base}/{_OURS}{os.getpid()}"
        try:
            _sweep(base)
            os.mkdir(folder)
        except OSError:
            continue
        try:
            group = _Group(folder, version)
            group.bound(limit)
            return group
        except OSError:
            _remove(folder)
    return None


def places(proc: str = f"{_PROC}/self") -> list[tuple[str, int]]:
    """Returns (folder, version) of the control groups in which this process may make one that
    counts memory. A version 2 group that holds processes passes no controllers to groups below it,
    so its parent is tried too."""
    found: list[tuple[str, int]] = []
    own = _own_groups(f"{proc}/cgroup")
    for root, point, kind, options in _mounts(f"{proc}/mountinfo"):
        first = kind == "cgroup" and "memory" in options
        path = own.get("memory") if first else own.get("") if kind == "cgroup2" else None
        if path is None:
            continue
        within = path.removeprefix(root.rstrip("/")) if path.startswith(root) else ""
        folder = (point + within).rstrip("/")
        if first:
            found.append((folder, 1))
            continue
        above = [] if folder == point else [os.path.dirname(folder)]
        found += [(f, 2) for f in (folder, *above) if _hands_memory_down(f)]
    return [(f, v) for f, v in found if os.access(f"{f}/cgroup.procs", os.W_OK)]


def _hands_memory_down(folder: str) -> bool:
    return b"memory" in _read(f"{folder}/cgroup.subtree_control").split()


def _own_groups(file: str) -> dict[str, str]:
    """Maps each controller to the path of this process's group; for version 2 the key is empty."""
    own: dict[str, str] = {}
    for line in _read(file).decode(errors="replace").splitlines():
        _, controllers, path = line.split(":", 2)
        own.update(dict.fromkeys(controllers.split(","), path))
    return own


def _mounts(file: str) -> list[tuple[str, str, str, list[str]]]:
    """Returns (root, mount point, type, super block options) of each mount; see proc(5)."""
    found: list[tuple[str, str, str, list[str]]] = []
    for line in _read(file).decode(errors="replace").splitlines():
        words = line.split(" ")
        kind, _, options = words[words.index("-") + 1 :][:3]
        found.append((words[3], words[4], kind, options.split(",")))
    return found


def _sweep(base: str) -> None:
    """Removes the groups of supervisors that were killed, also one with this process's id."""
    for name in os.listdir(base):
        pid = name.removeprefix(_OURS)
        if pid == name or not pid.isdigit():
            continue
        if int(pid) == os.getpid() or not os.path.exists(f"{_PROC}/{pid}"):
            _remove(f"{base}/{name}")


def _remove(folder: str) -> None:
    try:
        os.rmdir(folder)
    except OSError:
        pass


# -- what a tree uses


def _resident(pid: int) -> int:
    words = _read(f"{_PROC}/{pid}/statm").split()
    return int(words[1]) * os.sysconf("SC_PAGESIZE") if len(words) > 1 else 0


def _proportional(pid: int) -> int:
    """Returns a process's bytes with shared memory counted in proportion (PSS); its resident bytes
    where the kernel does not report it."""
    for line in _read(f"{_PROC}/{pid}/smaps_rollup").splitlines():
        if line.startswith(b"Pss:"):
            return int(line.split()[1]) * 1024
    return _resident(pid)


# -- small files


def _read(file: str) -> bytes:
    try:
        with open(file, "rb") as f:
            return f.read()
    except OSError:
        return b""


def _write(file: str, text: str) -> None:
    with open(file, "w") as f:
        f.write(text)


def _number(file: str) -> int:
    text = _read(file).strip()
    return int(text) if text.isdigit() else 0


def _words(file: str) -> dict[str, int]:
    pairs = (line.split() for line in _read(file).decode().splitlines())
    return {p[0]: int(p[1]) for p in pairs if len(p) == 2 and p[1].isdigit()}


if __name__ == "__main__":
    if len(sys.argv) > 1:
        try:
            _become(sys.argv[1], sys.argv[2:])
        except OSError as e:
            sys.exit(f"the code of a package cannot be confined here: {e}")
    try:
        leave_network()
    except OSError as e:
        sys.stdout.write(str(e.strerror or e))
