"""Makes the files of one container: its arguments, the variables passed by name, and the named
pipes for its stdin and stdout.

They lie in a private folder of this machine (``private_files``: in memory, mode 0700), of which
three folders are mounted: ``files`` and ``pipes`` read-only, ``kept`` with the files that the
connector may change. Their content belongs to the image's user alone, where we may change the
owner. Elsewhere it is open to any user inside, and only the private folder keeps other users of
this machine out.

Why pipes: a container's own stdout goes through the engine, at a tenth of the speed of a pipe
(``bench/containers.py``); and input on its own stdin counts as read once the engine has it.
"""

import os
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path

from penstock.files import write_new
from penstock.runtimes.contract import Argument, PrivateFile
from penstock.runtimes.pipes import InputPipe, grow
from penstock.runtimes.private_files import PrivateFolder

INSIDE = "/penstock"
"""Where the folders are mounted."""
_FILES, _KEPT, _PIPES = "files", "kept", "pipes"
_START_PIPE = "gate"
_VARIABLES = "variables"
_SHELL_READY = b"\n"


class MountedFiles(PrivateFolder):
    """``user``: the number, outside, of the user inside; None: unknown. ``variables``: passed by
    name, with secret values, so they are in a file and not in the engine's description of a
    container. ``pipes``: with named pipes. ``gated``: the connector begins only after
    :meth:`Pipes.go`; needs ``pipes``."""

    def __init__(
        self,
        arguments: Sequence[Argument],
        *,
        user: int | None,
        variables: Mapping[str, str],
        pipes: bool,
        gated: bool = False,
    ) -> None:
        self._user = user
        self._variables = variables
        self.has_pipes = pipes
        self.gated = gated
        super().__init__(arguments)

    def _needed(self, arguments: Sequence[Argument]) -> bool:
        return self.has_pipes or bool(self._variables) or super()._needed(arguments)

    def _write(self, folder: Path, arguments: Sequence[Argument]) -> list[str]:
        for name in (_FILES, _KEPT, _PIPES):
            (folder / name).mkdir(mode=0o700)
        written: list[str] = []
        for number, argument in enumerate(arguments):
            if isinstance(argument, PrivateFile):
                where = _KEPT if argument.writable else _FILES
                path = self._put(folder / where, number, argument)
                written.append(f"{INSIDE}/{where}/{path.name}")
            else:
                written.append(argument)
        if self._variables:
            lines = (f"export {k}={shlex.quote(v)}\n" for k, v in self._variables.items())
            write_new(folder / _FILES / _VARIABLES, "".join(lines).encode())
        if self.has_pipes:
            for name in ("in", "out", *((_START_PIPE,) if self.gated else ())):
                os.mkfifo(folder / _PIPES / name, 0o600)
        for name in (_FILES, _KEPT, _PIPES):
            self._give(folder / name)
        return written

    def _give(self, folder: Path) -> None:
        """Gives a folder to the container's user alone, or opens it to every user inside."""
        places = [folder, *folder.iterdir()]
        ours = self._user == os.geteuid()
        for place in places:
            if ours or (os.geteuid() == 0 and self._user is not None):
                os.chown(place, self._user or 0, -1)
            else:
                place.chmod(0o777 if place is folder else 0o666)

    def mounts(self) -> list[str]:
        """Returns the options of ``create`` that mount the folders with content."""
        if self.path is None:
            return []
        found: list[str] = []
        for name in (_FILES, _KEPT, _PIPES):
            if any((self.path / name).iterdir()):
                read_only = "" if name == _KEPT else ",readonly"
                place = f"type=bind,src={self.path / name},dst={INSIDE}/{name}{read_only}"
                found += ["--mount", place]
        return found

    def has_oom_file(self) -> bool:
        """Returns whether Podman's monitor, which runs in this folder, recorded that the kernel
        killed the container for its memory: Podman 4.3 does not report it elsewhere."""
        return self.path is not None and (self.path / "oom").exists()

    def script(self, *, feed: bool) -> str | None:
        """Returns the shell script that runs before the connector (its arguments); None: none is
        needed. Its first byte of stdout shows that both pipes are open and the command exists."""
        if self.path is None or not (self.has_pipes or self._variables):
            return None
        steps = [f". {INSIDE}/{_FILES}/{_VARIABLES}"] if self._variables else []
        if self.has_pipes:
            stdin = f"{INSIDE}/{_PIPES}/in" if feed else "/dev/null"
            steps += [
                f"exec 0<{stdin} 1>{INSIDE}/{_PIPES}/out",
                *([f"read -r go <{INSIDE}/{_PIPES}/{_START_PIPE} || exit 1"] if self.gated else []),
                'command -v "$1" >/dev/null || { echo "$1: not found" >&2; exit 127; }',
                "echo",
            ]
        return "; ".join([*steps, 'exec "$@"'])


class Pipes:
    """Our ends of a container's pipes. Until the container has opened its ends, we hold both ends
    open: a pipe without a reader would break at the first write, and one without a writer would
    block the container forever. One thread reads, one writes. ``gated``: see
    :class:`MountedFiles`."""

    def __init__(self, folder: Path, *, feed: bool, gated: bool = False) -> None:
        self.stdout = os.open(folder / _PIPES / "out", os.O_RDONLY | os.O_NONBLOCK)
        grow(self.stdout)
        self._reading = -1
        self.stdin: InputPipe | None = None
        if feed:
            path = folder / _PIPES / "in"
            self._reading = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
            self.stdin = InputPipe(os.open(path, os.O_WRONLY | os.O_NONBLOCK))
        path = folder / _PIPES / _START_PIPE
        self._start_pipe = os.open(path, os.O_RDWR | os.O_NONBLOCK) if gated else -1
        self.opened = False

    def go(self) -> None:
        """Lets the connector begin."""
        os.write(self._start_pipe, b"\n")

    def first(self, block: bytes) -> bytes:
        """Returns the first block of stdout without the shell's output; both ends are open now."""
        self.opened = True
        self.release()
        return block.removeprefix(_SHELL_READY)

    def release(self) -> None:
        """Closes our copy of the container's ends. Idempotent."""
        for fd in (self._reading, self._start_pipe):
            if fd >= 0:
                os.close(fd)
        self._reading = self._start_pipe = -1
