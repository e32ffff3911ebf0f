"""``engine.log.log`` and ``engine.deliver.table_loader`` on a real folder: what is durable, what is
ignored."""

import errno
import os
from pathlib import Path

import pytest

from penstock.engine.log.kept_rejects import RejectsKeeper
from penstock.engine.log.log import FileLog
from penstock.engine.log.rejects import kept_name
from penstock.errors import LogError
from penstock.model.catalog import DestinationSyncMode, StreamId
from penstock.model.segments import PartRef, Segment, SegmentId, StreamSlice, WriteDisposition

STREAM = StreamId(None, "s")


def segment(
    epoch: int, seq: int, parts: tuple[PartRef, ...] = (), rejects: tuple[str, ...] = ()
) -> Segment:
    one = StreamSlice(
        stream=STREAM,
        disposition=WriteDisposition(mode=DestinationSyncMode.append),
        schema_version=1,
        generation=0,
        fills_generation=False,
        parts=parts,
    )
    return Segment(
        id=SegmentId(epoch, seq), lane=0, scope=None, slices=(one,), state=None, rejects=rejects
    )


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    seen: list[Path] = []
    real = os.fsync

    def watch(fd: int) -> None:
        seen.append(Path(os.readlink(f"/proc/self/fd/{fd}")))
        real(fd)

    monkeypatch.setattr(os, "fsync", watch)
    return seen


def sealed(log: FileLog, epoch: int = 7) -> tuple[Segment, Path, Path]:
    """One segment with a part and two files of rejects, one of them spooled."""
    log.claim(epoch, "me")
    part = log.root / f"epochs/{epoch:08d}/parts/1.parquet"
    part.write_bytes(b"rows")
    ref = PartRef(str(part.relative_to(log.root)), 1, 4, 4, 0)
    spool = log.rejects_folder(epoch) / "oversized-x.line"
    spool.write_bytes(b"long")
    lines = log.write_rejects(epoch, "000001", b"{}\n")
    of = segment(epoch, 1, (ref,), (str(spool.relative_to(log.root)), lines))
    log.seal(epoch, [of])
    return of, spool, log.root / lines


def test_epoch_that_a_user_moved_aside_is_passed_over(tmp_path: Path) -> None:
    log = FileLog(tmp_path)
    kept, *_ = sealed(log, 7)
    sealed(log, 8)
    (tmp_path / "epochs" / "00000008").rename(tmp_path / "epochs" / "00000008.damaged")
    (tmp_path / "epochs" / "notes").mkdir()
    assert log.epochs() == [7]
    assert log.segments() == [kept]


@pytest.mark.parametrize(
    "copy",
    [
        "{} (Anna's conflicted copy 2026-11-27).json",  # Dropbox
        "{}.sync-conflict-20261127-101010-ABCDEFG.json",  # Syncthing
        "{} (1).json",
        "{} - Copy.json",
    ],
)
def test_l2_l3_a_sync_tools_copy_of_a_manifest_is_no_second_manifest(
    tmp_path: Path, copy: str
) -> None:
    log = FileLog(tmp_path)
    of, _, _ = sealed(log)
    (manifest,) = tmp_path.glob("epochs/*/seg-*.json")
    second = manifest.with_name(copy.format(manifest.stem))
    second.write_bytes(manifest.read_bytes())
    assert log.segments() == [of]
    log.discard([of])
    assert log.segments() == [] and second.exists()


def test_l2_claim_and_seal_make_everything_durable(tmp_path: Path, synced: list[Path]) -> None:
    log = FileLog(tmp_path)
    log.claim(7, "me")
    assert {tmp_path, tmp_path / "epochs", tmp_path / "epochs" / "00000007"} <= set(synced)
    _, spool, lines = sealed(FileLog(tmp_path), 8)
    manifest = next(n for n, path in enumerate(synced) if path.name.startswith(".seg-00000001."))
    assert {spool, lines, spool.parent} <= set(synced[:manifest])


def test_l2_what_is_discarded_stays_discarded(tmp_path: Path, synced: list[Path]) -> None:
    log = FileLog(tmp_path)
    of, spool, lines = sealed(log)
    synced.clear()
    log.discard([of])
    assert not spool.exists() and not lines.exists() and log.segments() == []
    epoch = spool.parents[1]
    assert synced[0] == epoch  # the manifest is gone for good before its files go
    assert {epoch / "parts", epoch / "rejects"} <= set(synced)
    synced.clear()
    log.drop_epochs([7])
    log.drop_epochs([7])
    assert synced == [tmp_path / "epochs"] * 2
    FileLog(tmp_path / "none").drop_epochs([1])


def test_unreadable_part_is_an_error_of_the_log(tmp_path: Path) -> None:
    log = FileLog(tmp_path)
    (tmp_path / "p").mkdir()  # reading a folder is refused
    with pytest.raises(LogError) as caught:
        log.verify([PartRef("p", 1, 1, 1, 0)])
    assert caught.value.code == "log.io"


def test_hints_are_true(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = FileLog(tmp_path)
    with pytest.raises(LogError) as caught:
        log.verify([PartRef("gone", 1, 1, 1, 0)])
    assert "out of the log: the next run reads from the saved state" in str(caught.value.hint)

    def full(fd: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(LogError) as caught:
        log.claim(1, "me")
    assert (caught.value.code, caught.value.exit_code) == ("log.full", 6)
    assert "what was sealed is kept" in str(caught.value.hint)
    assert "move" not in str(caught.value.hint)


def test_l8_kept_rejects_are_durable_before_the_log_drops_its_own(
    tmp_path: Path, synced: list[Path]
) -> None:
    log, kept, notes = FileLog(tmp_path / "log"), tmp_path / "run" / "rejects", list[str]()
    of, spool, _ = sealed(log)
    synced.clear()
    keeper = RejectsKeeper(log.root, kept, notes.append)
    keeper.keep(of)
    assert sorted(p.name for p in kept.iterdir()) == sorted(map(kept_name, of.rejects))
    assert (kept / kept_name(of.rejects[0])).stat().st_mode & 0o777 == 0o600
    assert len([p for p in synced if p.parent == kept]) == 2 and synced[-1] == kept
    spool.unlink()
    keeper.keep(of)  # it was kept
    assert notes == []
    (kept / kept_name(of.rejects[0])).unlink()
    keeper.keep(of)
    assert len(notes) == 1 and str(spool) in notes[0]
    log.discard([of])
    (kept / kept_name(of.rejects[1])).unlink()
    keeper.keep(of)  # an earlier run kept and discarded them
    assert len(notes) == 1


def test_rejects_that_cannot_be_kept_are_an_error_of_the_log(tmp_path: Path) -> None:
    log = FileLog(tmp_path / "log")
    of, *_ = sealed(log)
    (tmp_path / "run").write_text("no folder")
    with pytest.raises(LogError) as caught:
        RejectsKeeper(log.root, tmp_path / "run" / "rejects", str).keep(of)
    assert caught.value.code == "log.io"


def test_a_mark_of_an_epoch_outlives_the_process_until_it_is_removed(tmp_path: Path) -> None:
    log = FileLog(tmp_path)
    assert log.unconfirmed() == {}
    log.mark_unconfirmed(7, "given")
    log.mark_unconfirmed(12, "other")
    assert FileLog(tmp_path).unconfirmed() == {7: "given", 12: "other"}
    assert log.epochs() == []
    assert (tmp_path / "unconfirmed" / "00000007").stat().st_mode & 0o777 == 0o600
    log.unmark([7, 8])
    assert FileLog(tmp_path).unconfirmed() == {12: "other"}


def test_a_draft_of_a_mark_is_no_mark(tmp_path: Path) -> None:
    log = FileLog(tmp_path)
    log.mark_unconfirmed(7, "given")
    (tmp_path / "unconfirmed" / ".00000008.abc").write_bytes(b"")
    assert log.unconfirmed() == {7: "given"}
