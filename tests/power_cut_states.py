"""Every state in which a power cut could leave a folder, from a trace of what was done to it (as
ALICE and CrashMonkey do): :class:`Replay` plays the system calls up to a point, and
:meth:`Replay.write_state` writes what a disk may hold then.

A name, or a change of one, is safe once its folder was synced; a rename is one change of both its
folders. Content is safe once its file was synced. What is not safe is there or not, as ``keeps``
says. Nothing here is Penstock's."""

import random
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from system_calls import SYNCS, Call

_HEX = re.compile(r'"((?:\\x[0-9a-f]{2})*)"')


@dataclass(eq=False)
class _File:
    data: bytearray = field(default_factory=bytearray)
    safe: bytes = b""


@dataclass(eq=False)
class _Folder:
    names: "dict[str, _File | _Folder]" = field(default_factory=dict)


Step = tuple[_Folder, str, "_File | _Folder | None"]


@dataclass
class _Change:
    steps: list[Step]
    safe: bool = False


@dataclass(frozen=True)
class Keeps:
    """What of the unsafe things a power cut leaves. ``change``: whether it leaves one, by how many
    came after it."""

    name: str
    change: Callable[[int], bool]
    content: Callable[[bytes, bytes], bytes]  # of (safe, all)


def keeps(seed: int) -> list[Keeps]:
    """Nothing; all names and no content (ext4 before it has written a new file); the newest name
    alone; some of both."""
    lot = random.Random(seed)

    def some(safe: bytes, whole: bytes) -> bytes:
        return lot.choice((safe, whole, b"", b"\0" * len(whole)) if not safe else (safe, whole))

    return [
        Keeps("nothing", lambda _: False, lambda safe, _: safe),
        Keeps("names", lambda _: True, lambda safe, _: safe),
        Keeps("newest", lambda after: after == 0, lambda _, whole: whole),
        Keeps("some", lambda _: lot.random() < 0.5, some),
    ]


class Replay:
    """A folder, empty at first. ``root``: its path in the trace, whose strings are hexadecimal."""

    def __init__(self, root: Path) -> None:
        self._root, self._top = str(root), _Folder()
        self._changes: list[_Change] = []
        self._files: list[_File] = []

    def take(self, call: Call) -> bool:
        """Plays a call; False: it did nothing to the folder."""
        mine = [p for p in call.paths if p == self._root or p.startswith(f"{self._root}/")]
        if not mine and call.name != "sync":
            return False
        if call.name in ("syncfs", "sync"):
            self._all_safe()
        elif call.name in SYNCS:
            self._sync(mine[0])
        elif call.name in ("open", "openat", "creat"):
            return self._open(mine[0], call)
        elif call.name in ("write", "writev", "pwrite64"):
            self._write(mine[0], call)
        elif call.name.startswith("rename"):
            self._rename(*call.paths[:2], swap="RENAME_EXCHANGE" in call.words)
        elif call.name.startswith("link"):
            folder, name = self._above(call.paths[1])
            self._change((folder, name, self._node(call.paths[0]) or self._outside(call.paths[0])))
        elif call.name.startswith("mkdir"):
            self._change((*self._above(mine[0]), _Folder()))
        elif call.name.startswith(("unlink", "rmdir")):
            self._change((*self._above(mine[0]), None))
        else:
            raise AssertionError(call)
        return True

    def write_state(self, place: Path, kept: Keeps) -> None:
        """Writes what the disk may hold into the empty folder ``place``."""
        names: dict[int, dict[str, Any]] = {}
        unsafe = sum(not change.safe for change in self._changes)
        for change in self._changes:
            unsafe -= not change.safe
            if change.safe or kept.change(unsafe):
                for folder, name, node in change.steps:
                    names.setdefault(id(folder), {})[name] = node
        self._write_folder(place, self._top, names, kept)

    def write_all(self, place: Path) -> None:
        """Writes what the folder holds while the machine runs."""
        self.write_state(place, Keeps("all", lambda _: True, lambda _, whole: whole))

    def _write_folder(
        self, place: Path, folder: _Folder, names: dict[int, dict[str, Any]], kept: Keeps
    ) -> None:
        for name, node in names.get(id(folder), {}).items():
            if isinstance(node, _Folder):
                (place / name).mkdir()
                self._write_folder(place / name, node, names, kept)
            elif node is not None:
                (place / name).write_bytes(kept.content(node.safe, bytes(node.data)))

    def _all_safe(self) -> None:
        for file in self._files:
            file.safe = bytes(file.data)
        for change in self._changes:
            change.safe = True

    def _sync(self, path: str) -> None:
        node = self._node(path)
        if isinstance(node, _File):
            node.safe = bytes(node.data)
            return
        for change in self._changes:
            change.safe |= any(folder is node for folder, _, _ in change.steps)

    def _open(self, path: str, call: Call) -> bool:
        node = self._node(path)
        if node is None:
            if ("O_CREAT" not in call.words and call.name != "creat") or "O_TMPFILE" in call.words:
                return False
            self._change((*self._above(path), self._new()))
            return True
        if "O_TRUNC" in call.words and isinstance(node, _File):
            node.data.clear()
            return True
        return False

    def _outside(self, path: str) -> _File:
        """A file of another folder, whose content is safe."""
        content = Path(path).read_bytes()
        return _File(bytearray(content), content)

    def _new(self) -> _File:
        self._files.append(_File())
        return self._files[-1]

    def _write(self, path: str, call: Call) -> None:
        node = self._node(path)
        if not isinstance(node, _File):
            return  # it has no name any more
        data = b"".join(bytes.fromhex(t.replace("\\x", "")) for t in _HEX.findall(call.words))
        at = len(node.data)
        if call.name == "pwrite64":
            at = int(call.words.rpartition(",")[2])
        node.data[at : at + len(data)] = data

    def _rename(self, source: str, target: str, *, swap: bool) -> None:
        (folder, name), (into, new) = self._above(source), self._above(target)
        node, other = folder.names.get(name), into.names.get(new)
        node = node or self._outside(source)
        self._change((folder, name, other if swap else None), (into, new, node))

    def _change(self, *steps: Step) -> None:
        for folder, name, node in steps:
            if node is None:
                folder.names.pop(name, None)
            else:
                folder.names[name] = node
        self._changes.append(_Change(list(steps)))

    def _node(self, path: str) -> "_File | _Folder | None":
        if not f"{path}/".startswith(f"{self._root}/"):
            return None
        node: _File | _Folder | None = self._top
        for name in self._below(path):
            node = node.names.get(name) if isinstance(node, _Folder) else None
        return node

    def _above(self, path: str) -> tuple[_Folder, str]:
        folder = self._node(path.rpartition("/")[0])
        assert isinstance(folder, _Folder), path
        return folder, path.rpartition("/")[2]

    def _below(self, path: str) -> Iterator[str]:
        assert path == self._root or path.startswith(f"{self._root}/"), path
        return (name for name in path[len(self._root) :].split("/") if name)
