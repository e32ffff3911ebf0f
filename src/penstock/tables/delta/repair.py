"""Repairs the log of a local Delta table after a power cut in the middle of a load.

Neither Delta nor deltalake syncs a commit before giving it its name. A power cut may leave the name
of a commit without its content, or a whole commit that names data files which were lost. Penstock
syncs everything before the ledger marks the load, so the load of such a commit is still open and
its parts are in the log. So the commit is given up if it can only be that load's; otherwise it is
refused with instructions. Files that Delta derives from commits (checkpoints, checksums) are
removed if they are empty, since readers can do without. An empty, truncated or missing commit
anywhere in the log is refused: readers take an empty one for a commit without rows. Neighbours:
``delta`` calls this before it reads a table, ``disks`` knows disks and boots."""

import os
import re
import shlex
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from urllib.parse import unquote

import msgspec

from penstock.errors import DestinationError
from penstock.files import sync
from penstock.model.segments import Load, PlannedOn
from penstock.tables.delta.locations import parse_note, read_log_entry
from penstock.tables.delta.spec import LOG
from penstock.tables.disks import boot, older_than_boot, on_own_disk

NOTE = "the last commit (version {}) of table {} was lost in a power cut: its load was repeated"
_COMMIT = re.compile(r"(\d{20})\.json")
_VERSIONED = re.compile(r"(\d{20})\.(?:json|crc|checkpoint\..+)")
_DERIVED = re.compile(r"_last_checkpoint|\d{20}\.checkpoint\..*parquet|\d{20}\.crc")
_CHECKPOINTS = f"{'[0-9]' * 20}.checkpoint.*"
_ELSEWHERE = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]*:|/")  # the path of a file outside the folder
_LOST = ".lost"
_END_BYTES = 64


def planned_on(folder: Path) -> PlannedOn:
    """Returns the table's newest version by the file names in its log. A load is planned on that
    version."""
    return PlannedOn(max((number for number, _ in _commits(folder)), default=-1), boot())


def mend(folder: Path, load: Load) -> int | None:
    """Gives up the last commit of the table in ``folder`` if a power cut damaged it and it can only
    be the commit of ``load``, which is open in the ledger. Returns its version; None: nothing to
    repair. Raises ``DestinationError`` (``destination.commit_damaged``) for a damaged commit that
    has to stay."""
    given_up = _mended(folder, load)
    _refuse_lost(folder)
    return given_up


def _mended(folder: Path, load: Load) -> int | None:
    commits = sorted(_commits(folder), reverse=True)
    if not commits:
        return None
    version, last = commits[0]
    empty = last.stat().st_size == 0
    if not empty and load.planned is not None and load.planned.boot == boot():
        return None  # no power cut since
    _drop_empty(folder)
    damage = "is empty" if empty else None
    if damage is None:
        found = _commit_of(load, commits)
        if found is None:
            return None
        version, last = found
        damage = _damage(folder, last, load)
    if damage is None:
        return None
    reason = _reason_to_stay(folder, version, last, load)
    if reason is not None:
        raise _refused(folder, last, damage, reason)
    _give_up(last, empty=empty)
    return version


def _commits(folder: Path) -> list[tuple[int, Path]]:
    log = folder / LOG
    with suppress(FileNotFoundError, NotADirectoryError):
        return [
            (int(found[1]), log / name)
            for name in os.listdir(log)
            if (found := _COMMIT.fullmatch(name))
        ]
    return []


def _refuse_lost(folder: Path) -> None:
    """Raises ``DestinationError`` for a commit that readers need and that is empty, truncated or
    missing. Commits up to a checkpoint are not needed. Looks for each one by name: a listing may
    omit what another writer added meanwhile."""
    versions = [version for version, _ in _commits(folder)]
    if not versions:
        return
    log = folder / "_delta_log"
    begin = max((int(path.name[:20]) for path in log.glob(_CHECKPOINTS)), default=min(versions) - 1)
    for version in range(begin + 1, max(versions) + 1):
        commit = log / f"{version:020d}.json"
        damage = _visible_damage(commit)
        if damage is not None:
            raise _lost(folder, commit, damage)


def _visible_damage(commit: Path) -> str | None:
    """Returns the damage that shows at the end of a commit, which must be the end of a JSON object;
    None: no damage."""
    try:
        with commit.open("rb") as content:
            size = content.seek(0, os.SEEK_END)
            content.seek(max(0, size - _END_BYTES))
            end = content.read().rstrip()
    except FileNotFoundError:
        return "is missing"
    if not end:
        return "is empty"
    return None if end.endswith(b"}") else "ends in the middle of a line"


def _drop_empty(folder: Path) -> None:
    """Removes empty files that Delta derived from commits before the boot."""
    log = folder / LOG
    for entry in list(os.scandir(log)):
        path = Path(entry.path)
        if (
            _DERIVED.fullmatch(entry.name)
            and not entry.stat().st_size
            and on_own_disk(path)
            and older_than_boot(path)
        ):
            path.unlink()


class _File(msgspec.Struct):
    path: str
    size: int = 0


class _Transaction(msgspec.Struct):
    appId: str


class _Action(msgspec.Struct):
    add: _File | None = None
    cdc: _File | None = None
    txn: _Transaction | None = None


def _commit_of(load: Load, commits: list[tuple[int, Path]]) -> tuple[int, Path] | None:
    """Returns the commit of this load, or the newest commit if that one is not a complete text.
    ``commits``: newest first."""
    if not _is_whole(commits[0][1]):
        return commits[0]
    for version, path in commits:
        if load.planned is not None and version <= load.planned.version:
            return None
        note = parse_note(read_log_entry(path).note)
        if note is not None and note.penstock == load.key:
            same = (note.number, note.token) == (load.number, load.token)
            return (version, path) if same else None
    return None


def _is_whole(commit: Path) -> bool:
    try:
        return len([*_actions(commit)]) > 0
    except msgspec.DecodeError:
        return False


def _damage(folder: Path, commit: Path, load: Load) -> str | None:
    """Returns what is wrong with a nonempty commit of the load; None: nothing."""
    if not _is_whole(commit):
        return "is no whole text"
    if all(action.txn is None or action.txn.appId != load.key for action in _actions(commit)):
        return "is cut off"
    for action in _actions(commit):
        for file in (action.add, action.cdc):
            if file is None or _ELSEWHERE.match(file.path):
                continue
            path = folder / unquote(file.path)
            if not path.exists():
                return f"names {file.path}, which is missing"
            if path.stat().st_size != file.size:
                return f"names {file.path}, which has {path.stat().st_size} of {file.size} bytes"
    return None


def _actions(commit: Path) -> Iterator[_Action]:
    with commit.open("rb") as lines:
        for line in lines:
            if line.strip():
                yield msgspec.json.decode(line, type=_Action)


def _reason_to_stay(folder: Path, version: int, commit: Path, load: Load) -> str | None:
    """Returns why the commit must not be given up; None: it can only be the load's, from an earlier
    boot."""
    planned = load.planned
    if planned is None:  # written by an earlier version of Penstock
        planned = PlannedOn(-1, "") if load.follows == 0 else None
    if not on_own_disk(commit):
        return "its file system may be another machine's too"
    if not older_than_boot(commit):
        return "it may have been written since this machine was started"
    if any(number > version for number in _versions(folder)) or _has_checkpoint(commit):
        return "there is a later version or a checkpoint"
    if planned is None:
        return "the ledger lacks the version on which the open load was planned"
    if planned.boot == boot():
        return "the open load was planned since this machine was started"
    if version != planned.version + 1:
        return f"the open load was planned on version {planned.version}"
    return None


def _versions(folder: Path) -> list[int]:
    names = os.listdir(folder / LOG)
    return [int(found[1]) for name in names if (found := _VERSIONED.fullmatch(name))]


def _has_checkpoint(commit: Path) -> bool:
    return any(commit.parent.glob(f"{commit.stem}.checkpoint.*"))


def _give_up(commit: Path, *, empty: bool) -> None:
    """Takes a commit out of the log and keeps its content under a name that Delta does not read."""
    if empty:
        commit.unlink()
    else:
        os.replace(commit, commit.with_name(f".{commit.name}{_LOST}"))
    for checksum in (f"{commit.stem}.crc", f".{commit.name}.crc"):
        commit.with_name(checksum).unlink(missing_ok=True)
    sync(commit.parent)


def _refused(folder: Path, commit: Path, damage: str, reason: str) -> DestinationError:
    aside = shlex.join(("mv", str(commit), str(commit.with_name(f".{commit.name}{_LOST}"))))
    return DestinationError(
        f"version {int(commit.stem)} of the Delta table in {folder} {damage}, as after a power "
        f"cut, and Penstock does not discard it by itself: {reason}",
        code="destination.commit_damaged",
        where=str(commit),
        hint="nothing was loaded or marked. If nobody else writes to the table, and no version "
        f"comes after this one: `{aside}` gives it up, and the next run goes on",
    )


def _lost(folder: Path, commit: Path, damage: str) -> DestinationError:
    away = shlex.join(("mv", str(folder), f"{folder}{_LOST}"))
    return DestinationError(
        f"version {int(commit.stem)} of the Delta table in {folder} {damage}: what it changed in "
        "the table is not known",
        code="destination.commit_damaged",
        where=str(commit),
        hint="nothing was loaded or marked. Restore the file from a copy; without a copy, "
        f"`{away}`, and `penstock run --recreate` reads the streams from the start",
    )
