"""What holds a confined connector: a namespace without a network, and a bound on its memory.

Imported by ``supervisor``, only where a connector is confined. Run as a script it tries whether
this machine has such namespaces (stdout: why not); with arguments, a file of :data:`StandIn` and a
command line, it confines itself and becomes the program (``connectors.source_builds``). So the
standard library only, and little of it. Not here: what is asked for and what is refused
(``limits``).

Memory: a control group that lasts as long as the supervisor where one may be made here (v1, or v2
in a folder that is delegated), in which the kernel kills. Else the resident memory of the
whole tree is looked at, and the supervisor kills.
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
"""What a program is run under: its file; the user namespace of whoever wrote this (empty: this
machine gives no other, so none is entered); without a network; files and folders of which it sees
an empty one; the empty folder; variables that it does not get (nor any ``UV_*``); variables that it
gets."""

CLONE_NEWNS = 0x00020000
CLONE_NEWUSER = 0x10000000
CLONE_NEWNET = 0x40000000
_SIOCGIFFLAGS, _SIOCSIFFLAGS, _IFF_UP = 0x8913, 0x8914, 1
_AF_INET, _SOCK_DGRAM = 2, 2
_PR_CAPBSET_DROP, _PR_SET_NO_NEW_PRIVS = 24, 38
_MS_BIND, _MS_REC, _MS_PRIVATE = 0x1000, 0x4000, 0x40000
_OURS = "penstock-"
_SHORT = 1024**2  # bytes below its limit at which a group may still be killed in
_PROC = "/proc"

_libc = ctypes.CDLL(None, use_errno=True)
_unshare = getattr(_libc, "unshare", None)  # Linux only; looked up before any fork


# -- namespaces


def leave_network() -> None:
    """This process and what it starts have no network from now on but a loopback of their own.
    Raises ``OSError``."""
    _enclose(CLONE_NEWNET)
    _loopback_up()
    _give_up_all_else()


def _enclose(more: int) -> None:
    """Enter a user namespace, of root as well, in which its user is itself, and ``more``: the
    namespaces of processes outside (its supervisor's, ours) then belong to another, and neither
    ``setns`` nor a debugger reaches them, whatever the user id, nor can their variables be read.
    Raises ``OSError``."""
    if _unshare is None:
        raise OSError(38, "no namespaces here")
    uid, gid = os.geteuid(), os.getegid()
    if _unshare(CLONE_NEWUSER | more) != 0:
        _fail()
    _write("/proc/self/setgroups", "deny")
    _write("/proc/self/uid_map", f"{uid} {uid} 1")
    _write("/proc/self/gid_map", f"{gid} {gid} 1")


def _give_up_all_else() -> None:
    """It has no capabilities once it runs a program and gains none. Raises ``OSError``."""
    _no_further_namespaces()
    _drop_capabilities()


def _hide(paths: Iterable[str], empty: str) -> None:
    """An empty file or folder in the place of each, for this process and what it starts. Where the
    machine does not let it mount they are seen, as by any process of the user."""
    if _unshare is None or _unshare(CLONE_NEWNS) != 0:
        return
    _libc.mount(b"none", b"/", None, _MS_REC | _MS_PRIVATE, None)
    for path in paths:
        nothing = empty if os.path.isdir(path) else os.devnull
        _libc.mount(os.fsencode(nothing), os.fsencode(path), None, _MS_BIND, None)


def _become(file: str, argv: list[str]) -> "NoReturn":
    """Run the program of a :data:`StandIn`. What it runs in turn, through the same stand-in, is
    confined already. Raises ``OSError``."""
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
    """In a user namespace within this one it would have capabilities again, over nothing of ours,
    but a way to more of the kernel. Where the setting cannot be written it may make some."""
    try:
        _write("/proc/sys/user/max_user_namespaces", "0")
    except OSError:
        pass


def _drop_capabilities() -> None:
    """For every program run from here on. The first that the kernel does not know ends the list."""
    number = 0
    while _libc.prctl(_PR_CAPBSET_DROP, number, 0, 0, 0) == 0:
        number += 1
    if number == 0 or _libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0:
        _fail()


def _fail() -> "NoReturn":
    number = ctypes.get_errno()
    raise OSError(number, os.strerror(number))


def _loopback_up() -> None:
    """Where it cannot be, the connector has not even that."""
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
    """A bound of ``limit`` bytes on a tree of processes."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.group = _made(limit)

    def take(self, pid: int) -> None:
        """The process, before it runs anything of the connector's."""
        if self.group is not None and not self.group.take(pid):
            self.remove()

    def exceeded(self, tree: Callable[[], list[int]]) -> int | None:
        """The bytes that were used, once they were too many. ``tree``: the processes that are
        counted where no group does that."""
        if self.group is not None:
            return self.group.exceeded()
        pids = tree()
        if sum(map(_resident, pids)) <= self.limit:
            return None
        # What processes share was counted for each of them; the exact sum is dear.
        used = sum(map(_proportional, pids))
        return used if used > self.limit else None

    def remove(self) -> None:
        """Once nothing of the tree is left. What cannot be removed, the next one removes."""
        if self.group is not None:
            _remove(self.group.folder)
            self.group = None


class _Group:
    """A control group of version 1 or 2."""

    def __init__(self, folder: str, version: int) -> None:
        self.folder, self._version = folder, version

    def bound(self, limit: int) -> None:
        """Raises ``OSError``."""
        if self._version == 1:
            self._write("memory.limit_in_bytes", limit)
            self._optional("memory.memsw.limit_in_bytes", limit)
        else:
            self._write("memory.max", limit)
            self._optional("memory.swap.max", 0)
            self._optional("memory.oom.group", 1)

    def take(self, pid: int) -> bool:
        try:
            self._write("cgroup.procs", pid)
        except OSError:
            return False
        return True

    def exceeded(self) -> int | None:
        """The most that was in use, once the kernel has killed for this group's own limit: a kill
        for want of memory on the whole machine counts as one of the group's too."""
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
        """Kernels without an account of swap have not all of the files."""
        if os.path.exists(f"{self.folder}/{name}"):
            self._write(name, value)


def _made(limit: int) -> _Group | None:
    """A new group with that limit, where one can be had."""
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
    """(folder, version) of the groups in which this process may make one that counts memory. A
    group of version 2 that holds processes hands no controller down, so that its parent is asked
    too."""
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
    """Controller -> path; of version 2 the controller is empty."""
    own: dict[str, str] = {}
    for line in _read(file).decode(errors="replace").splitlines():
        _, controllers, path = line.split(":", 2)
        own.update(dict.fromkeys(controllers.split(","), path))
    return own


def _mounts(file: str) -> list[tuple[str, str, str, list[str]]]:
    """(root, mount point, type, options of the super block) of each mount."""
    found: list[tuple[str, str, str, list[str]]] = []
    for line in _read(file).decode(errors="replace").splitlines():
        words = line.split(" ")
        kind, _, options = words[words.index("-") + 1 :][:3]
        found.append((words[3], words[4], kind, options.split(",")))
    return found


def _sweep(base: str) -> None:
    """Groups of supervisors that were killed, one of our own number among them."""
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
    """What it shares with others in parts; all that is resident where the kernel does not tell."""
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
