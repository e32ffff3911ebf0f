"""Cuts the lines of CSV files into records and the records into columns of texts (RFC 4180).

A quote in a quoted field is doubled, a backslash is an ordinary character, and a line break in a
quoted field belongs to the value. A field that is empty without quotes is NULL, one in quotes is an
empty text. Every record has as many fields as the header. Stricter than readers that guess: a quote
inside a field without quotes, text after a closing quote, and an unclosed quote make their line a
broken one, and the record after it begins at the next line.

Works on Arrow columns of lines. Not here: types (``codec.columns.fit_text``), which files are read
(``spark.text_files``)."""

import re
from bisect import bisect_right
from collections.abc import Sequence
from functools import cached_property

import msgspec

from penstock.codec.untyped import Array, pa
from penstock.codec.untyped import compute as pc

BROKEN_QUOTES = "a quote in this line is not closed, not doubled, or followed by text"
BARE_RETURN = "a carriage return in this line is not in quotes"
NO_UTF8 = "this line is not UTF-8"
MOST_OPEN_BYTES = 64 << 20
"""The longest quoted field; the quote of a longer one counts as not closed."""

_CR = r"\r\z"


class CsvDialect(msgspec.Struct, frozen=True):
    """How a file is written. ``separator``: one ASCII character. ``escape``: a character that makes
    the next one literal; empty: there is none, as in RFC 4180."""

    separator: str = ","
    escape: str = ""


class _Patterns:
    """The regular expressions (RE2, over bytes) of a dialect."""

    def __init__(self, dialect: CsvDialect) -> None:
        sep, inside, plain, pair = _code(dialect.separator), '[^"]', "", ""
        if dialect.escape:
            mark = _code(dialect.escape)
            pair = f"|{mark}(?s:.)"
            inside, plain = f'[^"{mark}]{pair}', mark
        inside = f'(?:{inside}|"")*'
        field = rf'(?:"{inside}"|(?:[^"\r\n{sep}{plain}]{pair})*)'
        more = f"(?:{sep}{field})*"
        self.quoted = f'"{inside}"{pair}'
        self.whole = rf"\A{field}{more}\z"
        self.opens = rf'\A(?:{field}{sep})*"{inside}\z'
        self.closes = rf'\A{inside}"{more}\z'
        self.stays = rf'\A{inside}(?:"{more}{sep}"{inside})?\z'


def _code(character: str) -> str:
    return f"\\x{ord(character):02x}"


class _Lines:
    """Lines with what each can be: ``whole``: a record by itself; ``opens``: the begin of a record
    whose last field continues in the next line; ``closes``: the end of such a field, and of the
    record; ``stays``: a line after which it still continues."""

    def __init__(self, lines: Array, patterns: _Patterns) -> None:
        self.lines, self._patterns = lines, patterns
        self._cut = pc.replace_substring_regex(lines, _CR, "")

    def __len__(self) -> int:
        return len(self.lines)

    @cached_property
    def whole(self) -> Array:
        return _matches(self._cut, self._patterns.whole)

    @cached_property
    def opens(self) -> Array:
        return pc.and_(pc.invert(self.whole), _matches(self.lines, self._patterns.opens))

    @cached_property
    def closes(self) -> Array:
        return _matches(self._cut, self._patterns.closes)

    @cached_property
    def stays(self) -> Array:
        return _matches(self.lines, self._patterns.stays)

    def joined(self, other: "_Lines") -> "_Lines":
        """Returns these lines followed by those of ``other``; keeps what is known about each."""
        made = _Lines(pa.concat_arrays([self.lines, other.lines]), self._patterns)
        for name in ("whole", "opens", "closes", "stays"):
            value = pa.concat_arrays([getattr(self, name), getattr(other, name)])
            setattr(made, name, value)
        return made

    def after(self, begin: int) -> "_Lines":
        made = _Lines(self.lines.slice(begin), self._patterns)
        for name in ("whole", "opens", "closes", "stays"):
            setattr(made, name, getattr(self, name).slice(begin))
        return made


class Records(msgspec.Struct):
    """Records in the order of the file. ``data``: their bytes, without the line break at the end;
    ``sound``: which of them conform to RFC 4180; ``at``: for each the number of the line at which
    it ended, among the lines given last; also 0 if it ended before."""

    data: Array
    sound: Array
    at: Sequence[int]


class CsvRecords:
    """Cuts the lines of one file, in order, into records. One thread at a time."""

    def __init__(self, dialect: CsvDialect) -> None:
        self._patterns = _Patterns(dialect)
        self._rest: _Lines | None = None
        self._seen = 0  # of the rest, the lines that are known to stay open

    def add(self, lines: Array, *, end: bool = False) -> Records:
        """Returns the records that end in ``lines`` (binary, without their line feeds). ``end``:
        the file ends here, so an open field stays open."""
        given = _Lines(lines, self._patterns)
        before = 0 if self._rest is None else len(self._rest)
        if before == 0 and not pc.any(pc.invert(given.whole)).as_py():
            return Records(given.lines, given.whole, range(len(lines)))
        every = given if self._rest is None else self._rest.joined(given)
        found, rest = self._cut(every, end)
        self._seen = len(every) - rest
        self._rest = every.after(rest) if rest < len(every) else None
        return _records(every, found, before)

    def _cut(self, lines: _Lines, end: bool) -> tuple[list[tuple[int, int, bool]], int]:
        """Returns records as (first line, last line, sound), and the first line of the record that
        has not ended. Each run of single-line records is one entry: (first, last) with ``sound`` by
        line."""
        found: list[tuple[int, int, bool]] = []
        opens: list[int] = pc.indices_nonzero(lines.opens).to_pylist()
        changes: list[int] = pc.indices_nonzero(pc.invert(lines.stays)).to_pylist()
        at, known = 0, self._seen
        while at < len(lines):
            place = bisect_right(opens, at - 1)
            first = opens[place] if place < len(opens) else len(lines)
            if first > at:
                found.append((at, first - 1, False))  # one a line
                at = first
                continue
            after = bisect_right(changes, max(first, known - 1))
            known = 0
            last = changes[after] if after < len(changes) else None
            if last is None and not end and _size(lines.lines.slice(first)) <= MOST_OPEN_BYTES:
                return found, first
            if last is not None and lines.closes[last].as_py():
                found.append((first, last, True))
                at = last + 1
            else:
                found.append((first, first, False))
                at = first + 1
        return found, len(lines)


def _records(lines: _Lines, found: Sequence[tuple[int, int, bool]], before: int) -> Records:
    """Makes the records of ``found``. ``before``: how many of the lines were given earlier."""
    data: list[Array] = []
    sound: list[Array] = []
    at: list[int] = []
    for first, last, joined in found:
        count = last - first + 1
        piece = lines.lines.slice(first, count)
        if joined:
            text = b"\n".join(piece.to_pylist())
            data.append(pa.array([text], pa.binary()))
            sound.append(pa.array([True]))
            at.append(max(last - before, 0))
        else:
            data.append(piece)
            sound.append(lines.whole.slice(first, count))
            at += [max(line - before, 0) for line in range(first, last + 1)]
    if not data:
        return Records(pa.array([], pa.binary()), pa.array([], pa.bool_()), ())
    return Records(pa.concat_arrays(data), pa.concat_arrays(sound), at)


def _matches(lines: Array, pattern: str) -> Array:
    return pc.match_substring_regex(lines, pattern)


def _size(lines: Array) -> int:
    return pc.sum(pc.binary_length(lines)).as_py() or 0


class CsvFields:
    """Cuts sound records into columns of texts. ``count``: the fields of the file's header."""

    def __init__(self, dialect: CsvDialect, count: int) -> None:
        self._dialect, self._count = dialect, count
        self._quoted = _Patterns(dialect).quoted

    def faults(self, records: Records) -> Array:
        """Returns for each record why it is broken; NULL: it is not."""
        data = records.data
        sep = self._dialect.separator
        bare = data
        if pc.any(pc.match_substring(data, '"')).as_py() or self._dialect.escape:
            bare = pc.replace_substring_regex(data, self._quoted, "")
        fields = pc.add(pc.count_substring(bare, sep), 1)
        other = pc.not_equal(fields, self._count)
        none = pa.scalar(None, pa.string())
        found: Array = pa.nulls(len(data), pa.string())
        if pc.any(other).as_py():
            counts = pc.cast(fields, pa.string())
            words = pc.if_else(pc.equal(fields, 1), " field", " fields")
            where = f" in this line, and {self._count} in the header"
            reasons = pc.binary_join_element_wise(counts, words, where, "")
            found = pc.if_else(other, reasons, none)
        unread = _no_utf8(data)
        if unread is not None:
            found = pc.if_else(unread, NO_UTF8, found)
        if not pc.all(records.sound).as_py():
            quotes = pc.match_substring(data, '"')
            found = pc.if_else(records.sound, found, pc.if_else(quotes, BROKEN_QUOTES, BARE_RETURN))
        return found

    def texts(self, records: Array) -> list[Array]:
        """Returns the fields of records that have no fault, as columns of texts."""
        from pyarrow import csv

        names = [str(index) for index in range(self._count)]
        if not len(records):
            return [pa.array([], pa.string()) for _ in names]
        data = b"\n".join([*_pieces(records), b""])
        table = csv.read_csv(
            pa.BufferReader(data),
            read_options=csv.ReadOptions(
                use_threads=False, column_names=names, block_size=len(data) + 1
            ),
            parse_options=csv.ParseOptions(
                delimiter=self._dialect.separator,
                quote_char='"',
                double_quote=True,
                escape_char=self._dialect.escape or False,
                newlines_in_values=True,
            ),
            convert_options=csv.ConvertOptions(
                check_utf8=False,
                column_types=dict.fromkeys(names, pa.string()),
                null_values=[""],
                strings_can_be_null=True,
                quoted_strings_can_be_null=False,
            ),
        )
        return [column.combine_chunks() for column in table.columns]


def _pieces(records: Array) -> list[bytes]:
    """Returns the bytes of all records with line feeds between them, in few pieces."""
    joined = pc.binary_join(pa.ListArray.from_arrays([0, len(records)], records), b"\n")
    return [joined[0].as_py()]


def blank(records: Array) -> Array:
    """Returns which records are empty lines."""
    return pc.equal(pc.binary_length(records), 0)


def without_return(records: Array) -> Array:
    """Records without the carriage return of their line break."""
    return pc.replace_substring_regex(records, _CR, "")


def _no_utf8(records: Array) -> Array | None:
    """Returns which records are not UTF-8; None: all are."""
    try:
        pc.cast(records, pa.string())
        return None
    except pa.ArrowInvalid:
        return pa.array([not _is_utf8(record) for record in records.to_pylist()])


def _is_utf8(record: bytes) -> bool:
    try:
        record.decode()
    except UnicodeDecodeError:
        return False
    return True


def header_names(record: bytes, dialect: CsvDialect) -> tuple[str, ...] | str:
    """Returns the names of the columns in a header, or its fault. An empty name becomes ``_c`` and
    its position; a duplicate gets its position (from 0) at its end."""
    record = re.sub(rb"\r\Z", b"", record.removeprefix(b"\xef\xbb\xbf"))
    found = CsvRecords(dialect).add(pa.array([record], pa.binary()), end=True)
    if _no_utf8(found.data) is not None:
        return "it is not UTF-8"
    if not found.sound[0].as_py():
        if b'"' not in record:
            return "lines end with a carriage return alone; convert the file"
        return "a quote in it is not closed, not doubled, or followed by text"
    bare = pc.replace_substring_regex(found.data, _Patterns(dialect).quoted, "")
    count = pc.count_substring(bare, dialect.separator)[0].as_py() + 1
    names = [column[0].as_py() for column in CsvFields(dialect, count).texts(found.data)]
    folded = [(name or "").lower() for name in names]
    return tuple(
        f"_c{index}" if not name else f"{name}{index}" if folded.count(low) > 1 else name
        for index, (name, low) in enumerate(zip(names, folded, strict=True))
    )


def other_separator(header: bytes, dialect: CsvDialect) -> str | None:
    """Returns the common separator that a header has more often than the dialect's, outside
    quotes; None if the dialect's is the most frequent."""
    bare = re.sub(rb'"[^"]*"', b"", header)
    counts = {each: bare.count(each.encode()) for each in dict.fromkeys(",;\t|")}
    most = max(counts, key=lambda each: counts[each])
    return most if counts[most] > bare.count(dialect.separator.encode()) else None


def goes_on(line: bytes, dialect: CsvDialect) -> bool:
    """Returns whether a record that begins with this line goes on in the next one."""
    return bool(_Lines(pa.array([line], pa.binary()), _Patterns(dialect)).opens[0].as_py())
