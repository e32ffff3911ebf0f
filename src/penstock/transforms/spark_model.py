"""Parses what follows ``spark:`` in a pipeline: a SELECT, a table's name, files.

Finds faults without a JVM, and refuses queries that would run programs, as for ``spark-sql``. Paths
(``./users.parquet``, ``parquet.`./users` `` in a query) are relative to a folder that the caller
names: a JVM may run elsewhere. Text files may be compressed by gzip; a folder of one of Penstock's
tables is read by its format. Not here: whether Spark can read it (``spark.model``). Neighbours:
``spark_tokens`` cuts a query, ``spark_sql`` has the refusals."""

import re
import shlex
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path, PurePosixPath

from penstock.codec.csv_lines import CsvDialect
from penstock.config.table_formats import format_of, queried_format
from penstock.errors import ConfigError
from penstock.spark.model import CURSOR, Model, TextFiles
from penstock.transforms.spark_sql import BEGINS, refusal
from penstock.transforms.spark_tokens import Token, TokenKind, tokenize

NAME = "query"
"""The stream of a SELECT that nobody named."""

_WHERE = "source.use"
_PATH_STARTS = ("./", "../", "/", "~/")
_ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:/")
_BY_PATH = ("PARQUET", "DELTA", "CSV", "JSON", "ORC", "TEXT", "AVRO", "BINARYFILE")
_ALL_COLUMNS = {"mergeSchema": "true"}  # of all files, not of one
_FILES: dict[str, tuple[str, dict[str, str]]] = {
    ".parquet": ("parquet", _ALL_COLUMNS),
    ".orc": ("orc", _ALL_COLUMNS),
    ".csv": ("csv", {"header": "true", "inferSchema": "true", "multiLine": "true"}),
    ".tsv": ("csv", {"header": "true", "inferSchema": "true", "sep": "\t"}),
    ".json": ("json", {}),
    ".jsonl": ("json", {}),
    ".ndjson": ("json", {}),
}
_GZIP = ".gz"
_PACKED = {  # other endings of compressed files, and what unpacks them
    ".bz2": "bzip2 -dc",
    ".xz": "xz -dc",
    ".zst": "zstd -dc",
    ".zip": "unzip -p",
    ".lz4": "lz4 -dc",
}
_ADVICE = (
    "write spark:'SELECT ...', a table of Spark's catalog (spark:db.users) or files "
    "(spark:./users.parquet, spark:./query.sql)"
)


def model_of(target: str, here: Path, name: str | None = None) -> Model:
    """Parses a reference's target. ``here``: the folder for relative paths; ``name``: the user's
    name for the stream. Raises ``ConfigError`` (``source.query``)."""
    target = target.strip()
    if not target.startswith("/*") and _is_path(target):
        return _of_path(target, here, name)
    return _of_text(target, here, name)


def is_unnamed(target: str, here: Path) -> bool:
    """Returns whether the target is a query whose stream has no name but :data:`NAME`. Raises
    ``ConfigError`` like :func:`model_of`."""
    target = target.strip()
    path = not target.startswith("/*") and _is_path(target)
    return not path and model_of(target, here).name == NAME and re.search(r"\s", target) is not None


def _is_path(target: str) -> bool:
    if re.search(r"\s", target):
        return target.startswith(_PATH_STARTS)
    known = _ending(PurePosixPath(target)) in {*_FILES, ".sql"}
    return target.startswith(_PATH_STARTS) or _ADDRESS.match(target) is not None or known


def _of_path(target: str, here: Path, name: str | None) -> Model:
    remote = _ADDRESS.match(target) is not None
    path = target if remote else str(_absolute(target, here))
    pure = PurePosixPath(path.rstrip("/"))
    suffix = _ending(pure)
    stem = (
        name or (PurePosixPath(pure.stem) if suffix != pure.suffix.lower() else pure).stem or NAME
    )
    if suffix == ".sql" and not remote:
        try:
            text = Path(path).read_text("utf-8-sig")
        except (OSError, UnicodeDecodeError) as e:
            said = e.strerror if isinstance(e, OSError) else "it is not text"
            raise _refused(f"the query's file {path} cannot be read: {said}") from None
        return _of_text(text, here, stem)
    if not remote and not Path(path).exists() and not re.search(r"[*?\[{]", path):
        raise _refused(f"there is no file or folder {path}")
    if suffix in _FILES:
        format, options = _FILES[suffix]
        if (packed := pure.suffix) != _GZIP and packed.lower() != suffix:
            raise _refused(_cannot_unpack(path, packed))
        text = _text_files(format, options)
        return Model(name=stem, format=format, path=path, options=options, text=text, where=_WHERE)
    tables = None if remote else format_of(path)
    if tables is not None and tables.query is not None:
        return Model(name=stem, format=tables.query, path=path, tables=tables.name, where=_WHERE)
    if not remote and any(Path(path).glob("*.parquet")):
        format, options = _FILES[".parquet"]
        return Model(name=stem, format=format, path=path, options=options, where=_WHERE)
    raise _refused(
        f"what {path} holds is not shown by its name: give its format, as in "
        f"spark:'SELECT * FROM parquet.`{target}`'"
    )


def _ending(path: PurePosixPath) -> str:
    """Returns the ending that shows what a file holds, in lower case: for a compressed text file
    (`.csv.gz`) the one before the last."""
    ending = path.suffix.lower()
    inner = PurePosixPath(path.stem).suffix.lower()
    text = inner in _FILES and _text_files(*_FILES[inner]) is not None
    return inner if text and ending in (_GZIP, *_PACKED) else ending


def _cannot_unpack(path: str, packed: str) -> str:
    if packed.lower() == _GZIP:  # Spark recognises compression by the file name, case-sensitively
        return f"{path} is compressed and its name must end with {_GZIP}: rename it"
    name = path.removesuffix(packed)
    command = f"{_PACKED[packed.lower()]} {shlex.quote(path)} > {shlex.quote(name)}"
    return (
        f"{path} is compressed in a way that is not read here, {_GZIP} alone is: unpack it with "
        f"`{command}` and read spark:{name}"
    )


def _text_files(format: str, options: Mapping[str, str]) -> TextFiles | None:
    if format not in ("csv", "json"):
        return None
    return TextFiles(format, CsvDialect(separator=options.get("sep", ",")))


def _of_text(text: str, here: Path, name: str | None) -> Model:
    text = text.strip()
    tokens, problem = tokenize(text)
    while tokens and tokens[-1].text == ";":
        tokens.pop()
    if problem is not None:
        raise _refused(problem)
    if not tokens:
        raise _refused("the query is empty")
    text = text[: tokens[-1].end]
    found = name or NAME
    if _is_table(tokens):
        found = name or _last(tokens[-1])
        text = f"SELECT * FROM {text}"
        tokens, problem = tokenize(text)
    problem = problem or refusal(tokens)
    if problem is not None:
        raise _refused(problem)
    return Model(
        name=found,
        query=_with_absolute_paths(text, tokens, here),
        cursor=_has_cursor(tokens),
        tables=next(filter(None, (_format_of(a, b) for a, b in _pairs(tokens))), None),
        where=_WHERE,
    )


def _format_of(word: Token, after: Token) -> str | None:
    """Returns the table format that ``delta.`` names before a place; None: Spark reads it by
    itself."""
    found = queried_format(word.name) if after.text == "." else None
    return None if found is None else found.name


def _is_table(tokens: Sequence[Token]) -> bool:
    """Returns whether the text is ``users``, ``shop.users``, ``delta.`./users` ``: names and dots
    only."""
    names, dots = tokens[::2], tokens[1::2]
    return (
        len(tokens) % 2 == 1
        and all(t.kind in (TokenKind.word, TokenKind.quoted) for t in names)
        and all(t.text == "." for t in dots)
        and not (len(tokens) == 1 and tokens[0].name in BEGINS)
    )


def _last(token: Token) -> str:
    text = token.text[1:-1].replace("``", "`") if token.kind is TokenKind.quoted else token.text
    return PurePosixPath(text.rstrip("/")).stem or NAME


def _has_cursor(tokens: Sequence[Token]) -> bool:
    """Returns whether ``:cursor`` is a parameter somewhere. A path into a VARIANT (``a:cursor``)
    does not count."""
    for index, (sign, word) in enumerate(_pairs(tokens)):
        if sign.text != ":" or word.name != CURSOR.upper() or word.end - len(word.text) != sign.end:
            continue
        before = tokens[index - 1] if index else None
        attached = before is not None and before.end == sign.end - 1
        if not attached or before is None or (before.kind is TokenKind.sign and before.text != ")"):
            return True
    return False


def _pairs(tokens: Sequence[Token]) -> list[tuple[Token, Token]]:
    return list(pairwise(tokens))


def _with_absolute_paths(text: str, tokens: Sequence[Token], here: Path) -> str:
    """Returns the query with the paths of files (``csv.`./a.csv` ``) made absolute."""
    pieces: list[str] = []
    done = 0
    for format, dot, path in zip(tokens, tokens[1:], tokens[2:], strict=False):
        if format.name not in _BY_PATH or dot.text != "." or path.kind is not TokenKind.quoted:
            continue
        name = path.text[1:-1].replace("``", "`")
        if name.startswith("/") or _ADDRESS.match(name):
            continue
        absolute = str(_absolute(name, here)).replace("`", "``")
        pieces.append(text[done : path.end - len(path.text)] + f"`{absolute}`")
        done = path.end
    return "".join(pieces) + text[done:]


def _absolute(path: str, here: Path) -> Path:
    return here / Path(path).expanduser()


def _refused(problem: str) -> ConfigError:
    return ConfigError(
        f"{_WHERE}: {problem}",
        code="source.query",
        where=_WHERE,
        problems=[f"{_WHERE}: {problem}"],
        hint=_ADVICE,
    )
