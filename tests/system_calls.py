"""What a real run did to files, by strace: which names and contents a power cut could take.

:func:`traced` gives the command line; :class:`Disk` plays the trace again and keeps, call by call,
what was written and not synced, and which names were given in a folder that was not synced since.
``ordered`` checks the two rules for every rename and link: its file was synced before, and its
folder is synced before the next promise. :func:`read_of` says how much of each file was read (L13).
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

SYNCS = ("fsync", "fdatasync", "syncfs", "sync")
_WRITES = ("write", "pwrite64", "writev", "pwritev", "pwritev2", "ftruncate", "copy_file_range",
           "sendfile")  # fmt: skip
_NAMES = ("open", "openat", "creat", "rename", "renameat", "renameat2", "link", "linkat", "symlink",
          "symlinkat", "unlink", "unlinkat", "mkdir", "mkdirat", "rmdir")  # fmt: skip
_READS = ("read", "pread64", "readv", "preadv", "preadv2", "mmap", "sendfile", "copy_file_range",
          "recvfrom", "recvmsg")  # fmt: skip
_LINE = re.compile(r"(\d+) +(\w+)\((.*)\) += (-?\d+|0x\w+|\?)(.*)")
_BEGUN = re.compile(r"(\d+) +(\w+)\((.*) <unfinished \.\.\.>")
_ENDED = re.compile(r"(\d+) +<\.\.\. (\w+) resumed>(.*)")
_HANDLE = re.compile(r"(?:\d+|AT_FDCWD)<([^>]*)>")
_TEXT = re.compile(r'"((?:[^"\\]|\\.)*)"')


def traced(trace: Path, *, reads: bool = False) -> list[str]:
    """The words before a command that is to be traced, with all its children. ``reads``: and what
    it reads, without the filter of the kernel that makes it quick: a process that inherits one is
    given no warm Spark of a process that has none."""
    calls = ",".join(dict.fromkeys((*SYNCS, *_WRITES, *_NAMES, *(_READS if reads else ()))))
    quick = [] if reads else ["--seccomp-bpf"]
    return ["strace", "-f", "-qq", "-y", *quick, "-s", "0", "-e", "signal=none",
            "-e", f"trace={calls}", "-o", str(trace)]  # fmt: skip


class Call(NamedTuple):
    """A call that succeeded. ``paths``: of its handles and names, absolute, in their order.
    ``result``: what it returned."""

    thread: int
    name: str
    words: str
    paths: tuple[str, ...]
    result: int


def calls(trace: Path) -> Iterator[Call]:
    """The calls in the order in which they returned."""
    begun: dict[int, str] = {}
    with trace.open(errors="surrogateescape") as lines:
        for line in lines:
            if found := _BEGUN.match(line):
                begun[int(found[1])] = f"{found[1]} {found[2]}({found[3]}"
                continue
            if found := _ENDED.match(line):
                line = begun.pop(int(found[1]), "") + found[3]
            if (found := _LINE.match(line)) and not found[4].startswith(("-", "?")):
                paths = tuple(_paths(found[2], found[3]))
                yield Call(int(found[1]), found[2], found[3], paths, int(found[4], 0))


def _paths(name: str, words: str) -> Iterator[str]:
    """Relative names are below the handle before them (``AT_FDCWD</folder>``)."""
    if name in _WRITES or name in SYNCS or name in _READS:
        yield from (_plain(found[1]) for found in _HANDLE.finditer(words))
        return
    base = ""
    for found in re.finditer(rf"{_HANDLE.pattern}|{_TEXT.pattern}", words):
        if found[1] is not None:
            base = _plain(found[1])
        else:
            text = _plain(found[2])
            yield text if text.startswith("/") else f"{base}/{text}"


def read_of(trace: Iterable[Call]) -> dict[str, tuple[int, int]]:
    """For each file that was opened: how often, and how many bytes were read of it or mapped."""
    opened, read = Counter[str](), Counter[str]()
    for call in trace:
        if call.name in ("open", "openat"):
            opened[call.paths[0]] += 1
        elif call.name in _READS and call.paths:
            source = call.paths[-1 if call.name == "sendfile" else 0]
            read[source] += int(call.words.split(", ")[1]) if call.name == "mmap" else call.result
    return {path: (count, read[path]) for path, count in opened.items()}


def received(trace: Iterable[Call]) -> int:
    """The bytes that came by sockets."""
    return sum(call.result for call in trace if call.name in ("recvfrom", "recvmsg"))


def written(trace: Iterable[Call]) -> set[str]:
    """The files that were written to."""
    return {call.paths[-1] for call in trace if call.name in _WRITES and call.paths}


def _plain(text: str) -> str:
    if "\\" not in text:
        return text
    raw = text.encode("latin-1").decode("unicode_escape").encode("latin-1")
    return raw.decode(errors="surrogateescape")


@dataclass
class Fault:
    """A name that a power cut could take, or leave without its content."""

    what: str
    path: str
    before: str

    def __str__(self) -> str:
        return f"{self.path}: {self.what} {self.before}"


@dataclass
class Disk:
    """``dirty``: files with content that is not synced. ``named``: names since the last sync of
    their folder, with the call that gave them. ``exchanged``: names of folders, both ways."""

    dirty: set[str] = field(default_factory=set)
    named: dict[str, str] = field(default_factory=dict)
    exchanged: dict[str, str] = field(default_factory=dict)

    def take(self, call: Call) -> None:
        paths = call.paths
        if call.name in ("syncfs", "sync"):
            self.dirty.clear()
            self.named.clear()
        elif call.name in SYNCS:
            self.dirty.discard(paths[0])
            for path in [p for p in self.named if p.rpartition("/")[0] == paths[0]]:
                del self.named[path]
        elif call.name in _WRITES:
            self.dirty.update(p for p in paths if p.startswith("/"))
        elif call.name in ("open", "openat", "creat"):
            if "O_CREAT" in call.words or call.name == "creat":
                self.named.setdefault(paths[0], "open")
            if "O_TRUNC" in call.words:
                self.dirty.add(paths[0])
        elif call.name.startswith("rename"):
            self._rename(*paths, swap="RENAME_EXCHANGE" in call.words)
        elif call.name in ("link", "linkat"):
            self.named[paths[1]] = "link"
            if paths[0] in self.dirty:
                self.dirty.add(paths[1])
        elif call.name.startswith(("mkdir", "symlink")):
            self.named[paths[-1]] = "mkdir" if call.name.startswith("mkdir") else "link"
        elif call.name.startswith(("unlink", "rmdir")):
            self.dirty.discard(paths[0])
            self.named.pop(paths[0], None)

    def _rename(self, source: str, target: str, *, swap: bool) -> None:
        def moved(path: str) -> str:
            for old, new in ((source, target), (target, source))[: 2 if swap else 1]:
                if path == old or path.startswith(f"{old}/"):
                    return new + path[len(old) :]
            return path

        if not swap:
            self.dirty.discard(target)
        self.dirty = {moved(path) for path in self.dirty}
        self.named = {moved(path): how for path, how in self.named.items() if path != target}
        self.named[target] = "rename"
        if swap:
            self.named[source] = self.named[target] = "exchange"
            self.exchanged |= {source: target, target: source}

    def swapped_above(self, path: str) -> str | None:
        """The folder above ``path`` that was exchanged, where that may not be durable yet."""
        if path.startswith("/"):
            for above in map(str, Path(path).parents):
                names = (above, self.exchanged.get(above, above))
                if "exchange" in map(self.named.get, names):
                    return above
        return None


Promises = Callable[[Call], Sequence[str]]
"""The prefixes of the paths that must be durable before a call, which promises them."""


def of_tables_and_logs(call: Call) -> Sequence[str]:
    """What names that others appear by promise: a manifest its parts, a marker and a commit their
    table's files, a ready environment all of it."""
    if not call.name.startswith(("rename", "link")):
        return ()
    folder, _, name = call.paths[1].rpartition("/")
    if re.fullmatch(r"seg-\d+\.json", name):
        return (f"{folder}/",)
    if name in ("_penstock.json", "READY"):
        return (f"{folder}/",)
    if re.fullmatch(r"\d{20}\.json", name) and folder.endswith("/_delta_log"):
        table = folder.removesuffix("_delta_log")
        return (f"{table}penstock-", f"{table}part-")
    return ()


def ordered(
    trace: Iterable[Call], roots: Sequence[Path], promises: Promises, exempt: Callable[[str], bool]
) -> tuple[list[Fault], set[str]]:
    """Checks a trace; returns what is wrong, and every name below ``roots`` that a rename or a link
    gave and that is not ``exempt``. ``promises``: beside :func:`of_tables_and_logs`; the end of the
    trace makes one of all."""
    disk, given = Disk(), set[str]()
    faults: list[Fault] = []
    places = tuple(f"{root}/" for root in roots)

    def counts(path: str) -> bool:
        return path.startswith(places) and not exempt(path)

    def look(within: Sequence[str], before: str, but: str = "") -> None:
        whole = tuple(within)
        faults.extend(
            Fault(f"{how} without a sync of its folder", path, before)
            for path, how in disk.named.items()
            if path != but and path.startswith(whole) and counts(path)
        )
        faults.extend(
            Fault("content that is not synced", path, before)
            for path in disk.dirty
            if path.startswith(whole) and counts(path)
        )

    for call in trace:
        if ledger := promises(call):
            look(ledger, "before the ledger says so")
        if promised := of_tables_and_logs(call):
            look(promised, f"before {call.paths[1]} does", but=call.paths[0])
        if call.name.startswith(("rename", "link")) and counts(call.paths[1]):
            source, target = call.paths[:2]
            given.add(target)
            faults.extend(_unready(disk, source, target, call.name))
        if call.name.startswith("unlink") and (away := disk.swapped_above(call.paths[0])):
            faults.append(Fault("removed", call.paths[0], f"before the exchange of {away} is safe"))
        disk.take(call)
    look(places, "at the end")
    return faults, given


def _unready(disk: Disk, source: str, target: str, name: str) -> Iterator[Fault]:
    inside = f"{source}/"
    if any(path == source or path.startswith(inside) for path in disk.dirty):
        yield Fault("content that is not synced", target, f"before its {name}")
    if any(path.startswith(inside) for path in disk.named):
        yield Fault("a name in it that is not synced", target, f"before its {name}")
