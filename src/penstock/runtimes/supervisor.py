"""Starts a connector as its parent process, reports its exit code, and kills its whole tree (L11).

Run as a script (``python -I -S supervisor.py LIFELINE STATUS``) by ``runtimes.process``, its owner,
which imports only :data:`Order` from here. It imports nothing of Penstock and little else, because
each connector waits for its start (tens of milliseconds).

Why a process of its own: a death signal follows the *thread* that set it and reaches only the
direct child, so it cannot bind a tree to an owner of many threads. This process holds one end of a
pipe instead, and reads its end of file when the owner dies, however it dies. As a child subreaper
it adopts every descendant, also one that became a daemon. If this process itself is killed, the
connector gets the death signal that this process's only thread set.

LIFELINE (owner to supervisor): the length of a marshalled order and the order, then one byte as the
request to stop; end of file: the owner is dead. STATUS (supervisor to owner), one line each: ``S
PID`` the connector runs, ``E ERRNO STEP`` it could not be started, ``M BYTES`` it exceeded its
memory limit and is killed, ``X CODE`` it ended (negative: by that signal), ``A`` nothing of its
tree is left. M comes before X, and A after it.

Where there is no ``/proc`` (macOS) only the connector's process group is killed. Not here: the
confinement (``linux_sandbox``, imported only where a connector is confined).
"""

# contextlib would cost as much as all other imports together.
# ruff: noqa: SIM105
import marshal
import os
import select
import signal
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import ModuleType

    from penstock.runtimes.linux_sandbox import Memory

LINUX = sys.platform.startswith("linux")
PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
TICK = 0.5  # seconds between checks of our parent's pid, in case the lifeline was inherited
ORPHAN_GRACE = 0.5  # seconds between SIGTERM and SIGKILL when the owner is dead
KILL_BOUND = 5.0  # seconds spent on killing processes that do not die
LAST_BOUND = 30.0  # seconds for the command that follows the owner's death
Order = tuple[bytes, list[bytes], dict[bytes, bytes], bytes, float, bytes, bool, int, list[bytes]]
"""Program, argv, environment, working directory (empty: ours), seconds from SIGTERM to SIGKILL,
private folder to remove should the owner die (empty: none), without a network, bytes of memory (0:
no bound), command to run once should the owner die (its first word a path; empty: none)."""

if LINUX:
    import ctypes

    prctl = ctypes.CDLL(None).prctl  # loaded now: the connector's side of the fork calls it too


def receive(lifeline: int) -> Order:
    """Reads the order from the owner; ends this process where the owner is dead."""
    data = b""
    need = 8
    while len(data) < need:
        piece = os.read(lifeline, need - len(data))
        if not piece:
            os._exit(0)
        data += piece
        if need == 8 and len(data) == 8:
            need = 8 + int.from_bytes(data, "little")
    return marshal.loads(data[8:])


def enclosure() -> "ModuleType":
    """Imports ``linux_sandbox``, to which Python's isolated mode has no path."""
    folder = os.path.dirname(os.path.abspath(__file__))
    sys.path.append(os.path.dirname(os.path.dirname(folder)))
    from penstock.runtimes import linux_sandbox as enclosure

    return enclosure


def become(order: Order, owner: int, failure_pipe: int, start_pipe: int) -> None:
    """Runs the connector's program in the forked child; never returns. Begins when the other end of
    the pipe ``start_pipe`` is closed; writes a failure (errno, step) to the pipe
    ``failure_pipe``."""
    file, argv, env, cwd, _, _, no_network, _, _ = order
    step = b"start"
    try:
        os.read(start_pipe, 1)
        os.setsid()
        if no_network:
            step = b"network"
            enclosure().leave_network()
            step = b"start"
        if LINUX:
            prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != owner:
            os._exit(127)
        signal.set_wakeup_fd(-1)
        for name in ("SIGTERM", "SIGINT", "SIGHUP", "SIGQUIT", "SIGPIPE", "SIGXFSZ", "SIGCHLD"):
            signal.signal(getattr(signal, name), signal.SIG_DFL)
        if cwd:
            step = b"cwd"
            os.chdir(cwd)
        step = b"exec"
        os.execve(file, argv, env)
    except OSError as e:
        os.write(failure_pipe, b"%d %s" % (e.errno or 0, step))
    finally:
        os._exit(127)


def spawn(order: Order, status: int, memory: "Memory | None") -> int:
    """Forks the connector and returns its process id; reports ``E`` and ends this process where it
    cannot be started."""
    report, failure_pipe = os.pipe()
    start_pipe, opened = os.pipe()
    if order[6]:
        enclosure()  # imported before the fork
    owner = os.getpid()
    pid = os.fork()
    if pid == 0:
        os.close(opened)
        become(order, owner, failure_pipe, start_pipe)
    os.close(failure_pipe)
    os.close(start_pipe)
    if memory is not None:
        memory.take(pid)
    os.close(opened)
    failure = os.read(report, 100)
    os.close(report)
    if failure:
        os.waitpid(pid, 0)
        if memory is not None:
            memory.remove()
        os.write(status, b"E " + failure + b"\n")
        os._exit(0)
    return pid


def parents() -> dict[int, list[int]]:
    """Maps each process id to its children's, read from every process's stat: for kernels that do
    not list children."""
    below: dict[int, list[int]] = {}
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        try:
            with open(f"/proc/{entry}/stat", "rb") as f:
                parent = int(f.read().rpartition(b")")[2].split()[1])
        except (OSError, ValueError, IndexError):
            continue
        below.setdefault(parent, []).append(int(entry))
    return below


def children(pid: int) -> list[int]:
    """Returns the ids of the direct children of every thread of a process."""
    found: list[int] = []
    try:
        for task in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{task}/children") as f:
                found += [int(p) for p in f.read().split()]
    except OSError:
        pass
    return found


def descendants() -> list[int]:
    """Returns the ids of all processes below this one."""
    me = os.getpid()
    listed = os.path.exists(f"/proc/{me}/task/{me}/children")
    below = {} if listed else parents()
    found: list[int] = []
    todo = [me]
    while todo:
        pid = todo.pop()
        direct = children(pid) if listed else below.get(pid, [])
        found += direct
        todo += direct
    return found


def send(pids: list[int], number: int) -> None:
    """Sends a signal to each process that still exists."""
    for pid in pids:
        try:
            os.kill(pid, number)
        except OSError:
            pass


class Supervisor:
    """Watches the connector ``pid``, its memory and its owner, until its tree is killed.
    ``wakeup``: the pipe that signals are written to."""

    def __init__(
        self, lifeline: int, status: int, pid: int, wakeup: int, memory: "Memory | None"
    ) -> None:
        self.lifeline = lifeline
        self.status = status
        self.pid = pid
        self.wakeup = wakeup
        self.memory = memory
        self.exceeded = False  # its memory exceeded the limit, and M was reported
        self.look_at = 0.0
        self.alive = True  # the connector's own process
        self.empty = False  # nothing of the tree is left
        self.owner = os.getppid()

    def tell(self, line: bytes) -> None:
        """Writes a line to STATUS; no-op where the owner is dead."""
        try:
            os.write(self.status, line)
        except OSError:
            pass

    def reap(self) -> None:
        """Collects the exit codes of ended processes, and reports the connector's."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                if not self.empty:
                    self.tell(b"A\n")
                self.empty = True
                return
            if pid == 0:
                return
            if pid == self.pid:
                self.alive = False
                self.look()
                self.tell(b"X %d\n" % os.waitstatus_to_exitcode(status))

    def look(self) -> None:
        """Reports ``M`` where the tree used more memory than its limit."""
        self.look_at = time.monotonic() + TICK
        if self.memory is None or self.exceeded:
            return
        used = self.memory.exceeded(descendants)
        if used is not None:
            self.exceeded = True
            self.tell(b"M %d\n" % used)

    def signal_tree(self, number: int) -> None:
        """Sends a signal to every process of the tree; on macOS to the process group."""
        if LINUX:
            # As their subreaper we find all processes; a group's number may be reused once its last
            # member is reaped, so it is not used here.
            send(descendants(), number)
            return
        try:
            os.killpg(self.pid, number)
        except OSError:
            pass

    def wait_empty(self, seconds: float, number: int) -> None:
        """Sends a signal and waits up to ``seconds`` until no process of the tree is left. SIGKILL
        is sent in every round: a process that was forked meanwhile gets the next one."""
        deadline = time.monotonic() + seconds
        self.signal_tree(number)
        self.reap()
        pause = 0.002
        while not self.empty and time.monotonic() < deadline:
            time.sleep(pause)
            pause = min(pause * 1.5, 0.05)
            if number == signal.SIGKILL:
                self.signal_tree(number)
            self.reap()

    def end(self, grace: float) -> None:
        """Ends the tree: SIGTERM, and SIGKILL after ``grace`` seconds."""
        if not self.empty:
            self.wait_empty(grace, signal.SIGTERM)
        if not self.empty or not LINUX:
            self.wait_empty(KILL_BOUND, signal.SIGKILL)

    def orphaned(self, order: Order) -> None:
        """Cleans up for an owner that is dead: ends the tree, runs the order's last command, and
        removes its private folder."""
        self.end(min(order[4], ORPHAN_GRACE))
        if order[8]:
            self.run_last(order[8], order[2])
        for folder, _, names in os.walk(order[5], topdown=False) if order[5] else ():
            try:
                for name in names:
                    os.unlink(os.path.join(folder, name))
                os.rmdir(folder)
            except OSError:
                pass

    def run_last(self, command: list[bytes], env: dict[bytes, bytes]) -> None:
        """Runs the engine's command that ends a container, which no signal reaches; waits at most
        :data:`LAST_BOUND` seconds."""
        self.empty = False
        try:
            os.posix_spawn(command[0], command, env)
        except OSError:
            return
        self.wait_empty(LAST_BOUND, 0)

    def serve(self, order: Order) -> None:
        """Watches until the owner requests the end or is dead, then ends the tree."""
        poll = select.poll()
        poll.register(self.lifeline, select.POLLIN)
        poll.register(self.wakeup, select.POLLIN)
        while True:
            for fd, _ in poll.poll(TICK * 1000):
                if fd == self.wakeup:
                    if signal.SIGTERM in os.read(self.wakeup, 4096):
                        return self.end(order[4])
                    self.reap()
                elif os.read(self.lifeline, 1):
                    return self.end(order[4])
                else:
                    return self.orphaned(order)
            if os.getppid() != self.owner:
                return self.orphaned(order)
            if time.monotonic() >= self.look_at:
                self.look()
            if self.exceeded and not self.empty:
                self.wait_empty(KILL_BOUND, signal.SIGKILL)


def noted(number: int, frame: object) -> None:
    """Does nothing: Python writes a signal to the wake-up pipe only where it has a handler."""


def main() -> None:
    """Runs the script: receives an order, starts its program, and serves until it is ended."""
    lifeline, status = int(sys.argv[1]), int(sys.argv[2])
    os.set_inheritable(lifeline, False)
    os.set_inheritable(status, False)
    for name in ("SIGINT", "SIGHUP", "SIGQUIT"):
        signal.signal(getattr(signal, name), signal.SIG_IGN)
    if LINUX:
        prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        # If we are stopped when our owner dies, we continue, and end the tree.
        prctl(PR_SET_PDEATHSIG, signal.SIGCONT, 0, 0, 0)
    woken, wake = os.pipe()
    os.set_blocking(wake, False)
    for name in ("SIGCHLD", "SIGTERM"):
        signal.signal(getattr(signal, name), noted)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    order = receive(lifeline)
    memory: Memory | None = enclosure().Memory(order[7]) if order[7] else None
    pid = spawn(order, status, memory)
    # This process's copies of the connector's stdout and stderr would keep those pipes from ending,
    # and its copy of stdin would hide from the owner that the connector no longer reads.
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    os.dup2(null, 1)
    os.dup2(null, 2)
    os.close(null)
    supervisor = Supervisor(lifeline, status, pid, woken, memory)
    supervisor.tell(b"S %d\n" % pid)
    supervisor.reap()
    supervisor.serve(order)
    if memory is not None:
        memory.remove()


if __name__ == "__main__":
    main()
