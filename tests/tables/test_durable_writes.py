"""Every rename and link that a promise stands on follows a sync of its file and precedes one of its
folder (L1 to L4), by the system calls of a real process; ``tests/e2e/test_power_cuts.py`` does it
for whole runs."""

import os
import re
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from system_calls import SYNCS, Call, Fault, calls, ordered, traced

HERE = Path(__file__).parent
PROMISES_NOTHING = {
    r"/home/below/state\.db(-wal|-shm|-journal)?$": "SQLite syncs its own files",
    r"/\.penstock/": "locks, and files before they have their names",
    r"/mailbox/.*/lease$": "lives as long as the run",
    r"/promises$": "the test's own",
}
BY_ITSELF = re.compile(r"/_delta_log/[^/]*$")
"""deltalake gives a commit its name before its content is synced: Penstock syncs it before the
ledger says that it is there, and mends it where that came to nothing."""

pytestmark = [
    pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed"),
    pytest.mark.dear,
]


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Call]]:
    folder = tmp_path_factory.mktemp("traced")
    place, file = folder / "place", folder / "trace"
    place.mkdir()
    subprocess.run(
        [*traced(file), sys.executable, str(HERE / "durable_writes.py"), str(place)],
        check=True,
        env={**os.environ, "PYTHONPATH": f"{HERE}:{HERE.parent}"},
        timeout=120,
    )
    return place, list(calls(file))


def exempt(path: str) -> bool:
    return any(re.search(pattern, path) for pattern in PROMISES_NOTHING)


def faults(place: Path, trace: list[Call]) -> tuple[list[Fault], set[str]]:
    promises = f"{place}/promises"

    def ledger(call: Call) -> tuple[str, ...]:
        says = call.name == "write" and call.paths[:1] == (promises,)
        return (f"{place}/",) if says else ()

    found, given = ordered(trace, [place], ledger, exempt)
    own = [f for f in found if not (BY_ITSELF.search(f.path) and "before its" in f.before)]
    return own, given


def test_l2_l3_files_are_synced_before_their_names_and_names_before_the_promise(
    trace: tuple[Path, list[Call]],
) -> None:
    place, made = trace
    found, given = faults(place, made)
    assert not found, "\n".join(map(str, found))
    kinds = Counter(_kind(path.removeprefix(f"{place}/")) for path in given)
    assert {*kinds} == {
        "delta commit", "files of a Parquet table", "folder of a Parquet table", "kept rejects",
        "linked into a Delta table", "manifest", "marker of a Parquet table", "new configuration",
        "ready environment", "unconfirmed epoch",
    }, kinds  # fmt: skip
    assert kinds["marker of a Parquet table"] == 13 and kinds["manifest"] == 2


def test_each_sync_that_is_taken_away_is_missed(trace: tuple[Path, list[Call]]) -> None:
    place, made = trace
    kinds = Counter(kind for call in made if (kind := _sync_kind(place, call)) is not None)
    assert len(kinds) > 15, kinds
    kept = [
        kind
        for kind in kinds
        if not faults(place, [call for call in made if _sync_kind(place, call) != kind])[0]
    ]
    assert not kept, f"no promise stands on these syncs: {kept}"


def _kind(path: str) -> str:
    kinds = {
        r"delta/\w+/_delta_log/\d+\.json$": "delta commit",
        r"delta/\w+/penstock-.*\.parquet$": "linked into a Delta table",
        r"lake/\w+/_penstock\.json$": "marker of a Parquet table",
        r"lake/\w+/.*\.parquet$": "files of a Parquet table",
        r"lake/\w+$": "folder of a Parquet table",
        r"home/kept/": "kept rejects",
        r"home/.*/seg-\d+\.json$": "manifest",
        r"home/.*/mailbox/run/config-": "new configuration",
        r"home/connectors/.*/READY$": "ready environment",
        r"home/.*/unconfirmed/": "unconfirmed epoch",
    }
    return next((kind for pattern, kind in kinds.items() if re.match(pattern, path)), path)


def _sync_kind(place: Path, call: Call) -> str | None:
    """The name under which like syncs are taken away together; None: no sync of Penstock's."""
    if call.name not in SYNCS or not call.paths or not call.paths[0].startswith(f"{place}/"):
        return None
    path = call.paths[0].removeprefix(f"{place}/")
    if path.startswith("home/below"):
        return None  # SQLite syncs its own files, and their folder
    if re.search(r"\.staging/try-\w+/(table-|\w+-\d+-lease-)", path):
        return None  # of a merge, which Delta needs: their file system is synced once more
    return f"{call.name} {re.sub(r'[0-9a-f]{4,}|[0-9]+', 'N', path)}"


def test_the_trace_is_read_as_strace_writes_it(tmp_path: Path) -> None:
    file = tmp_path / "trace"
    file.write_text(
        '7  openat(AT_FDCWD</w>, "a b", O_WRONLY|O_CREAT|O_EXCL, 0600) = 3</w/a b>\n'
        '7  write(3</w/a b>, ""..., 10 <unfinished ...>\n'
        "8  fsync(4</w>) = 0\n"
        "7  <... write resumed>) = 10\n"
        '7  renameat2(AT_FDCWD</w>, "a b", AT_FDCWD</w>, "/w/\\303\\251", RENAME_NOREPLACE) = 0\n'
        '7  unlink("/w/none") = -1 ENOENT (No such file or directory)\n'
    )
    found = list(calls(file))
    assert [(c.thread, c.name, c.paths) for c in found] == [
        (7, "openat", ("/w/a b",)),
        (8, "fsync", ("/w",)),
        (7, "write", ("/w/a b",)),
        (7, "renameat2", ("/w/a b", "/w/é")),
    ]
    wrong, _ = ordered(found, [Path("/w")], lambda _: (), lambda _: False)
    assert [str(f) for f in wrong] == [
        "/w/é: content that is not synced before its renameat2",
        "/w/é: rename without a sync of its folder at the end",
        "/w/é: content that is not synced at the end",
    ]
