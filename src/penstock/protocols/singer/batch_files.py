"""Reads the files of a BATCH message and yields the JSON bodies of their rows, block by block.

``jsonl`` (gzip or not) is read unchanged; rows of ``parquet`` are converted to JSON
(``batch_parquet``). Only files in granted folders are opened (``runtimes.granted_files``): those
that the tap shares with Penstock, and for a process also the root of its ``batch_config``. Files
are never deleted, since the message does not name their owner. Not here: decoding bodies
(``codec.decode``, as for records). Source: the Singer SDK's BATCH message (``encoding`` and
``manifest``; a preview, not part of the specification).
"""

import gzip
import os
import re
import zlib
from collections.abc import Iterator, Mapping, Sequence
from typing import IO, Any, cast
from urllib.parse import unquote

from penstock.codec.framing import LineFramer
from penstock.protocols.singer.batch_parquet import parquet_rows
from penstock.protocols.singer.batch_rows import BatchError, MalformedRow, Rows, rows_of
from penstock.runtimes.contract import SharedFolders
from penstock.runtimes.granted_files import GrantedFiles, NotGranted

_BLOCK = 4 * 1024 * 1024
_GZIP = b"\x1f\x8b"
_PACKINGS = (None, "", "none", "gzip")
_LOCAL = re.compile(r"(?:file|osfs):(?://(?:localhost(?=/))?|(?=/))", re.IGNORECASE)  # RFC 8089
_SHOWN = 300  # characters of a file's name in a message


def batch_folders(shared: SharedFolders, config: Mapping[str, Any]) -> GrantedFiles:
    """Returns the folders in which a tap may name files. The root that the user configured
    (``batch_config.storage.root`` of the Singer SDK) counts only for a process: a container sees
    only mounted folders."""
    at: Any = config
    for name in ("batch_config", "storage", "root"):
        at = cast(dict[str, Any], at).get(name) if isinstance(at, dict) else None
    root = _local(at) if isinstance(at, str) and shared.cwd is not None else None
    return GrantedFiles(shared, () if root is None else (os.path.expanduser(root),))


def read_batch(
    files: GrantedFiles,
    encoding: Any,
    manifest: Any,
    max_record_bytes: int,
    spool_folder: str | None,
) -> Iterator[Rows | MalformedRow]:
    """Yields JSON objects, some thousands at a time, in the order of the files; an empty sequence
    where a block ended inside a row. Raises :class:`BatchError`."""
    words = cast(dict[str, Any], encoding) if isinstance(encoding, dict) else {}
    form, packing = words.get("format"), words.get("compression")
    if not isinstance(manifest, list):
        raise BatchError("a BATCH message without a manifest")
    names = [_names(m) for m in cast(list[Any], manifest)]
    for name, spellings in names:
        if form != "parquet" and (form != "jsonl" or packing not in _PACKINGS):
            raise BatchError(f"{name}: format {form!r} with compression {packing!r} is not known")
        framer = LineFramer(max_record_bytes, spool_folder)
        try:
            with _opened(files, name, spellings) as file:
                if form == "jsonl":
                    yield from _json_lines(name, file, packing == "gzip", framer)
                else:
                    yield from parquet_rows(name, file, max_record_bytes, framer)
        finally:
            framer.close()


def _names(entry: Any) -> tuple[str, tuple[str, ...]]:
    """Returns the name of an entry for messages, and the paths that it may mean."""
    if not isinstance(entry, str):
        raise BatchError("a BATCH manifest that holds other things than paths")
    path = _local(entry)
    if path is None:
        raise BatchError(f"{entry[:_SHOWN]}: only batches in local files are read")
    if path == entry:
        return entry[:_SHOWN], (entry,)
    return path[:_SHOWN], tuple(dict.fromkeys((path, unquote(path))))


def _local(name: str) -> str | None:
    """Returns the path of a name or an address, unchanged; None: it is not a local file."""
    local = _LOCAL.match(name)
    if local is None:
        return None if "://" in name else name
    return name[local.end() :]


def _opened(files: GrantedFiles, name: str, spellings: Sequence[str]) -> IO[bytes]:
    """Opens the first of the paths that exists."""
    for path in spellings:
        try:
            return files.open(path)
        except NotGranted as e:
            raise BatchError(f"{name}: {e}", _hint(files)) from e
        except FileNotFoundError as e:
            if path == spellings[-1]:
                raise BatchError(f"{name}: {e.strerror}") from e
        except OSError as e:
            raise BatchError(f"{name}: {e.strerror or e}") from e
    raise BatchError(f"{name}: it names no file")


def _hint(files: GrantedFiles) -> str:
    given = ", ".join(files.folders) or "none"
    if files.isolated:
        return (
            f"let the tap write its batches below a folder of permissions.fs.allowed_preopens "
            f"(given: {given}), which is mounted at the same path"
        )
    return (
        f"the tap may name files below its working folder and below batch_config.storage.root of "
        f"its config (now: {given}); set that root to the folder of its batches"
    )


def _json_lines(
    name: str, plain: IO[bytes], gzipped: bool, framer: LineFramer
) -> Iterator[Rows | MalformedRow]:
    """Yields the rows of a file of JSON lines. ``gzipped``: by the message; the file's first bytes
    decide, if it has any."""
    try:
        start = plain.read(len(_GZIP))
        if gzipped and len(start) < len(_GZIP):  # gzip writes more, even for no rows
            raise EOFError("the file ends before the header of gzip does")
        plain.seek(0)
        file: Any = gzip.GzipFile(fileobj=plain) if start == _GZIP else plain
        while block := file.read(_BLOCK):
            rows = False
            for item in framer.feed(block):
                rows = True
                yield from rows_of(item)
            if not rows:
                yield ()
        if block is None:
            raise BatchError(f"{name}: it gives no bytes although it has not ended")
        for item in framer.finish():
            yield from rows_of(item)
    except (OSError, EOFError, zlib.error) as e:
        raise BatchError(f"{name}: {getattr(e, 'strerror', None) or e}") from e
