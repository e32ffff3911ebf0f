"""Loads whose parts have the shape of their table, made of the loads of ``conftest``."""

from pathlib import Path

import msgspec
import pyarrow.parquet as pq

from penstock.codec.parquet_parts import write_part
from penstock.model.types import SEQ, MetadataNames
from penstock.tables.contract import TableLoad
from penstock.tables.files.direct_parts import layout


def shaped(
    load: TableLoad, *, generation: int | None = None, names: MetadataNames | None = None
) -> TableLoad:
    """``load`` with its parts written as a lane writes them, in the table's shape. ``generation``,
    ``names``: others than the load has by now."""
    names = names or load.policy.metadata
    assert names is not None
    generation = load.load.generation if generation is None else generation
    form = layout(load.schema, names, load.sync_id, generation)
    paths, parts = [], []
    for path, part in zip(load.parts, load.load.parts, strict=True):
        file = Path(path).with_suffix(".shaped.parquet")
        rows = pq.read_table(path)
        size, crc = write_part(file, rows, form)
        paths.append(str(file))
        first = rows[SEQ][0].as_py() if rows.num_rows else None
        about = {"path": file.name, "size": size, "crc": crc, "shape": form.shape, "first": first}
        parts.append(msgspec.structs.replace(part, **about))
    inner = msgspec.structs.replace(load.load, parts=tuple(parts))
    return msgspec.structs.replace(load, load=inner, parts=tuple(paths))


def inodes(files: list[Path] | tuple[str, ...]) -> set[int]:
    return {Path(f).stat().st_ino for f in files}
