"""Which files of a Delta commit this machine does not see (L3, L8)."""

import json
from pathlib import Path
from typing import Any

import pytest

from penstock.model.catalog import DestinationSyncMode, StreamId
from penstock.model.segments import Load, WriteDisposition
from penstock.tables.contract import NotSeen
from penstock.tables.delta.commit import missing_files


def commit(folder: Path, version: int, *actions: dict[str, Any]) -> None:
    log = folder / "_delta_log"
    log.mkdir(exist_ok=True)
    lines = [{"commitInfo": {"operation": "WRITE"}}, *actions]
    body = "".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines)
    (log / f"{version:020d}.json").write_text(body)


def add(path: str, size: int = 4, **more: Any) -> dict[str, Any]:
    return {"add": {"path": path, "size": size, "dataChange": True, **more}}


def test_L8_each_file_of_a_commit_is_looked_for_with_its_size(tmp_path: Path) -> None:
    outside = tmp_path / "outside.parquet"
    commit(tmp_path, 0, add("old.parquet"))
    commit(
        tmp_path,
        1,
        add("here.parquet"),
        add("of%20two%20words.parquet"),
        add("day=2026-01-01/gone.parquet"),
        add("short.parquet"),
        add(f"file://{outside}"),
        add("s3a://lake/elsewhere.parquet"),
        {"cdc": {"path": "_change_data/changes.parquet", "size": 4}},
    )
    for name in ("here.parquet", "of two words.parquet", "outside.parquet"):
        (tmp_path / name).write_bytes(b"rows")
    (tmp_path / "short.parquet").write_bytes(b"row")
    found = missing_files(tmp_path, 0, 1)
    assert found is not None
    assert [str(f.relative_to(tmp_path)) for f in found.files] == [
        "_change_data/changes.parquet",
        "day=2026-01-01/gone.parquet",
        "short.parquet",
    ]
    assert (found.version, found.newest) == (1, 1)
    every = missing_files(tmp_path, -1, 1)
    assert every is not None and (every.version, len(every.files)) == (0, 4)


def test_the_files_of_deletion_vectors_are_looked_for(tmp_path: Path) -> None:
    """The descriptor is the example of Delta's protocol."""
    vector = {"storageType": "u", "pathOrInlineDv": "ab^-aqEH.-t@S}K{vb[*k^", "sizeInBytes": 40}
    inline = {"storageType": "i", "pathOrInlineDv": "wi5b=000010000siXQKl0rr91000f55c8Xg0@@D72lk"}
    commit(
        tmp_path,
        0,
        add("rows.parquet", deletionVector=vector),
        add("more.parquet", deletionVector=inline),
    )
    for name in ("rows.parquet", "more.parquet"):
        (tmp_path / name).write_bytes(b"rows")
    found = missing_files(tmp_path, -1, 0)
    file = tmp_path / "ab" / "deletion_vector_d2c639aa-8816-431a-aaf6-d3fe2512ff61.bin"
    assert found is not None and found.files == [file]
    file.parent.mkdir()
    file.touch()
    assert missing_files(tmp_path, -1, 0) is None


def test_what_a_later_commit_removed_is_not_missed(tmp_path: Path) -> None:
    """An OPTIMIZE and a VACUUM came before the load was repeated."""
    commit(tmp_path, 0, add("one.parquet"), add("two.parquet"))
    commit(tmp_path, 1, {"remove": {"path": "one.parquet"}}, add("both.parquet"))
    found = missing_files(tmp_path, -1, 0)
    assert found is not None and [f.name for f in found.files] == ["two.parquet"]
    commit(tmp_path, 2, {"remove": {"path": "two.parquet"}})
    assert missing_files(tmp_path, -1, 0) is None


@pytest.mark.parametrize(
    ("version", "newest", "way", "not_way"),
    [(0, 0, "`rm -r ", "restore("), (3, 3, ".restore(2)", "rm -r"), (3, 4, "bring", "restore(")],
)
def test_the_way_back_never_takes_the_rows_of_another_commit(
    tmp_path: Path, version: int, newest: int, way: str, not_way: str
) -> None:
    load = Load(
        key="k/s",
        number=3,
        stream=StreamId(None, "s"),
        disposition=WriteDisposition(mode=DestinationSyncMode.append),
        segments=(),
        parts=(),
        schema_version=1,
        generation=1,
    )
    error = NotSeen(load, tmp_path, [tmp_path / "a"], version, newest, "worker w (executor 1)")
    error.add_hint("shop")
    assert way in str(error.hint) and not_way not in str(error.hint)
