"""Converts the values of keys with a syntax of their own: sizes, durations, modes, paths, hosts.

Each converter takes the reader, a node and its dotted path, and returns a value, or :data:`BAD`
after it has reported the fault to the reader. ``config.sections`` and ``config.pipeline`` refer to
converters by their names in :data:`LITERALS` (``literal=...``). Not here: rules between keys
(``cross_checks``).
"""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec.inspect as mi

from penstock.config import modes, pipeline, scalars
from penstock.config.did_you_mean import closest, hint
from penstock.config.protocol_spec import specs
from penstock.config.reader import BAD, Literal, NodeReader, is_variable, quoted, shown
from penstock.config.yaml_nodes import Mapping, Node, Scalar, Sequence
from penstock.model import rejected
from penstock.model.hosts import pattern_of
from penstock.model.rejected import MaxRejected
from penstock.model.targets import KEEP, LEAVE, SOURCE_NAMESPACE
from penstock.model.type_words import FORMS, MEANT, WORDS, UnknownType, parse_type
from penstock.model.variables import withheld

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_CAPABILITY = re.compile(r"[A-Z][A-Z_]+")
_STREAM_INFO = mi.type_info(pipeline.StreamOptions)
_FLUSH_BYTES = (1 << 20, 32 << 20)
_HISTORY_FORMS = "true, false or keyed"


def _measure(
    parse: Callable[[scalars.Plain], Any], what: str, least: float, exclusive: bool
) -> Literal:
    def read(reader: NodeReader, node: Node, path: str) -> Any:
        found = reader.plain(node, path, what, (str, int, float))
        if found is BAD:
            return BAD
        amount = parse(found)
        if amount is None:
            return reader.wrong(node, path, what)
        if amount < least or (exclusive and amount == least):
            return reader.problem(node, f"{path} must be more than {least:g}, not {shown(node)}")
        return amount

    return read


def _whole(least: int) -> Literal:
    what = f"a whole number of at least {least}"

    def read(reader: NodeReader, node: Node, path: str) -> Any:
        found = reader.plain(node, path, what, int)
        return found if found is BAD or found >= least else reader.wrong(node, path, what)

    return read


def _flush_bytes(reader: NodeReader, node: Node, path: str) -> Any:
    low, high = _FLUSH_BYTES
    what = f"a whole number from {low} to {high}"
    found = reader.plain(node, path, what, int)
    return found if found is BAD or low <= found <= high else reader.wrong(node, path, what)


def _lanes(reader: NodeReader, node: Node, path: str) -> Any:
    what = "'auto' or a whole number of at least 1"
    found = reader.plain(node, path, what, (str, int))
    if found is BAD or found == "auto" or (isinstance(found, int) and found >= 1):
        return found
    return reader.wrong(node, path, what)


def _max_rejected(reader: NodeReader, node: Node, path: str) -> Any:
    text = reader.text(node, path, rejected.FORMS)
    try:
        return BAD if text is BAD else MaxRejected.parse(text)
    except ValueError:
        return reader.wrong(node, path, rejected.FORMS)


def _history(reader: NodeReader, node: Node, path: str) -> Any:
    text = reader.text(node, path, _HISTORY_FORMS)
    if text is BAD:
        return BAD
    found = {"true": "on", "false": "off", "keyed": "keyed"}.get(text.strip().lower())
    return found or reader.wrong(node, path, _HISTORY_FORMS)


def _version(reader: NodeReader, node: Node, path: str) -> Any:
    text = reader.text(node, path)
    if text is BAD or text == "1.0":
        return text
    return reader.problem(node, f"version is {shown(node)}; this Penstock reads version '1.0'")


def name(reader: NodeReader, node: Node, path: str) -> Any:
    """Reads a text of one line that is not blank."""
    text = reader.text(node, path)
    if text is BAD:
        return BAD
    if not text.strip():
        return reader.problem(node, f"{path} is blank")
    if _has_controls(text):
        return reader.problem(node, f"{path} has a line break or another control character")
    return text


def _connector(reader: NodeReader, node: Node, path: str) -> Any:
    """Reads a reference to a connector: a name, or a query, which may have several lines."""
    text = reader.text(node, path)
    spec = None if text is BAD else specs().get(text.partition(":")[0].strip())
    return text if spec is not None and spec.queries else name(reader, node, path)


def _prefix(reader: NodeReader, node: Node, path: str) -> Any:
    text = reader.text(node, path)
    if text is not BAD and _has_controls(text):
        return reader.problem(node, f"{path} has a line break or another control character")
    return text


def _namespace(reader: NodeReader, node: Node, path: str) -> Any:
    """Reads ``source``, ``destination`` or a namespace's name. An unquoted word that nearly equals
    one of the two is a fault (a typo); in quotes it is a name."""
    text = reader.text(node, path, kept=(SOURCE_NAMESPACE,))
    if text is BAD:
        return BAD
    if _has_controls(text):
        return reader.problem(node, f"{path} has a line break or another control character")
    near = closest(text, (KEEP, LEAVE)) if text not in (KEEP, LEAVE) else None
    if near is not None and isinstance(node, Scalar) and node.plain and not is_variable(node):
        return reader.problem(
            node,
            f"{path} is '{text}': did you mean '{near}'? A namespace of that name is written in "
            "quotes",
        )
    return text


def _file(reader: NodeReader, node: Node, path: str) -> Any:
    """Reads the path of an existing file; absolute where the reader knows the pipeline file's
    folder, else as written and unchecked."""
    text = name(reader, node, path)
    if text is BAD or reader.folder is None:
        return text
    file = (reader.folder / Path(text).expanduser()).absolute()
    if file.is_file():
        return str(file)
    near = None if is_variable(node) else _similar_file(file)
    meant = f"; did you mean '{near}'?" if near else ""
    return reader.problem(node, f"{path}: there is no file {shown(node)}{meant}")


def _folder(reader: NodeReader, node: Node, path: str) -> Any:
    """Reads the path of an existing folder, like :func:`_file`."""
    text = name(reader, node, path)
    if text is BAD or reader.folder is None:
        return text
    folder = (reader.folder / Path(text).expanduser()).absolute()
    if folder.is_dir():
        return str(folder)
    return reader.problem(node, f"{path}: there is no folder {shown(node)}")


def _similar_file(file: Path) -> str | None:
    try:
        return closest(file.name, [p.name for p in file.parent.iterdir() if p.is_file()])
    except OSError:
        return None


def _has_controls(text: str) -> bool:
    return any(ord(c) < 32 or ord(c) == 127 for c in text)


def _texts(what: str, sound: Callable[[str], Any]) -> Literal:
    def item(reader: NodeReader, node: Node, path: str) -> Any:
        text = name(reader, node, path)
        if text is BAD or sound(text):
            return text
        return reader.wrong(node, path, what)

    def read(reader: NodeReader, node: Node, path: str) -> Any:
        return reader.items(node, path, lambda n, p: item(reader, n, p))

    return read


def _variable(reader: NodeReader, node: Node, path: str) -> Any:
    text = name(reader, node, path)
    if text is BAD:
        return BAD
    if _VARIABLE.fullmatch(text) is None:
        return reader.wrong(node, path, "the name of an environment variable")
    if withheld(text):
        return reader.problem(
            node, f"{path}: {text} is a variable of Spark's or of Penstock's own, which no "
            "connector gets",
        )  # fmt: skip
    return text


def _host(text: str) -> bool:
    return pattern_of(text.strip()) is not None


def _names(reader: NodeReader, node: Node, path: str) -> Any:
    found = reader.items(node, path, lambda n, p: name(reader, n, p))
    if found == ():
        return reader.problem(node, f"{path} is empty: list names, or remove the key")
    return found


def _hook(reader: NodeReader, node: Node, path: str) -> Any:
    """Reads a URL, or a command as a list of words. A word from a variable is refused, as it would
    appear in the process list (L10)."""
    if isinstance(node, Sequence):
        found = _names(reader, node, path)
        for index, word in enumerate(node.items):
            if is_variable(word):
                return reader.problem(
                    word,
                    f"{path}[{index}]: other users see the arguments of a command; let the program "
                    f"read {quoted(word)} itself",
                )
        return found
    what = "a URL (https://...), or a command as a list of words ([./notify.sh, shop])"
    text = name(reader, node, path)
    if text is BAD:
        return BAD
    try:
        url = urlsplit(text)
        good = url.scheme in ("http", "https") and bool(url.hostname) and url.port != 0
    except ValueError:
        good = False
    return text if good else reader.wrong(node, path, what)


def _columns(reader: NodeReader, node: Node, path: str) -> Any:
    """Reads a list of columns: each is a path, or a name whose dots may lead into an object."""

    def column(node: Node, path: str) -> Any:
        return (_names if isinstance(node, Sequence) else name)(reader, node, path)

    found = reader.items(node, path, column)
    if found == ():
        return reader.problem(node, f"{path} is empty: list names, or remove the key")
    return found


def _mode_word(look_up: Callable[[str], Any], what: str, keep_word: bool) -> Literal:
    def read(reader: NodeReader, node: Node, path: str) -> Any:
        text = reader.text(node, path, what)
        if text is BAD:
            return BAD
        try:
            found = look_up(text)
        except modes.UnknownMode as unknown:
            if is_variable(node):
                return reader.problem(node, f"{path}: {quoted(node)} holds no such mode")
            return reader.problem(node, f"{path}: {unknown}")
        return modes.canonical(text) if keep_word else found

    return read


def field_path(reader: NodeReader, node: Node, path: str) -> Any:
    """Reads a field path: a list of names, or one name, which may contain dots."""
    if isinstance(node, Sequence):
        return _names(reader, node, path)
    text = name(reader, node, path)
    return BAD if text is BAD else (text,)


def _key_paths(reader: NodeReader, node: Node, path: str) -> Any:
    """Reads a primary key: ``id``, ``[a, b]`` (two fields) or ``[[meta, id]]`` (paths); ``[]``: no
    key."""
    if not isinstance(node, Sequence):
        text = name(reader, node, path)
        return BAD if text is BAD else ((text,),)
    return reader.items(node, path, lambda n, p: field_path(reader, n, p))


def _type(reader: NodeReader, node: Node, path: str) -> Any:
    if not isinstance(node, Scalar):
        return reader.wrong(node, path, FORMS)
    text = name(reader, node, path)
    if text is BAD:
        return BAD
    try:
        return parse_type(text)
    except UnknownType as unknown:
        if is_variable(node):
            return reader.problem(node, f"{path}: {quoted(node)} holds no type")
        advice = "" if unknown.word is None else f"; {_type_meant(unknown.word)}"
        return reader.problem(node, f"{path}: {unknown}{advice}")


def _type_meant(word: str) -> str:
    if word.startswith("decimal("):
        return "write decimal(DIGITS,DIGITS_AFTER_THE_POINT), inside { } in quotes"
    meant = MEANT.get(word.lower())
    return f"did you mean '{meant}'?" if meant else hint(word, WORDS, "types")


def _streams(reader: NodeReader, node: Node, path: str) -> Any:
    if isinstance(node, Sequence) and not node.items:
        return reader.problem(
            node, f"{path} is empty: list streams, or remove the key to sync every stream"
        )
    return reader.items(node, path, lambda n, p: _stream(reader, n, p))


def _stream(reader: NodeReader, node: Node, path: str) -> Any:
    if isinstance(node, Scalar):
        node = Mapping(node.line, [(Scalar("name", True, node.line), node)])
    assert isinstance(_STREAM_INFO, mi.StructType)
    return reader.struct(node, _STREAM_INFO, path)


LITERALS: dict[str, Literal] = {
    "size": _measure(scalars.parse_size, scalars.SIZE_FORMS, 0, exclusive=False),
    "positive_size": _measure(scalars.parse_size, scalars.SIZE_FORMS, 0, exclusive=True),
    "positive_duration": _measure(
        scalars.parse_duration, scalars.DURATION_FORMS, 0, exclusive=True
    ),
    "time_kept": _measure(
        lambda value: scalars.parse_duration(value) if isinstance(value, str) else None,
        "a duration with its unit, such as 30d or 12h",
        0,
        exclusive=True,
    ),
    "count": _whole(0),
    "positive_int": _whole(1),
    "flush_bytes": _flush_bytes,
    "lanes": _lanes,
    "max_rejected": _max_rejected,
    "history": _history,
    "version": _version,
    "name": name,
    "connector": _connector,
    "file": _file,
    "folder": _folder,
    "namespace": _namespace,
    "prefix": _prefix,
    "names": _names,
    "hook": _hook,
    "columns": _columns,
    "hosts": _texts("a host such as db.internal, or *.domain", _host),
    "variable_names": lambda reader, node, path: reader.items(
        node, path, lambda n, p: _variable(reader, n, p)
    ),
    "folders": _texts("a folder", bool),
    "capabilities": _texts("a capability such as CHOWN", _CAPABILITY.fullmatch),
    "requirements": _texts("a requirement such as pydantic<2", bool),
    "mode": _mode_word(modes.mode, "a mode", keep_word=True),
    "sync_mode": _mode_word(modes.sync_mode, "a sync mode", keep_word=False),
    "destination_sync_mode": _mode_word(
        modes.destination_sync_mode, "a destination sync mode", keep_word=False
    ),
    "field_path": field_path,
    "key_paths": _key_paths,
    "type": _type,
    "streams": _streams,
}
