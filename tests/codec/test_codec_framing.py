"""Blocks to lines: cuts anywhere, half a last line, lines of 50 MB, lines that are too long."""

import time
from collections.abc import Iterable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.codec.framing import HEAD_BYTES, LineFramer, Lines, Oversized
from penstock.errors import SourceError

MARK = b"\xef\xbb\xbf"


def frame(
    blocks: Iterable[bytes], limit: int, folder: Path | None = None
) -> list[Lines | Oversized]:
    framer = LineFramer(limit, folder)
    items = [item for block in blocks for item in framer.feed(block)]
    return [*items, *framer.finish()]


def framed(blocks: Iterable[bytes], limit: int) -> bytes:
    """The bytes that come out."""
    out = bytearray()
    for item in frame(blocks, limit):
        if isinstance(item, Oversized):
            assert item.size > limit and len(item.head) == item.size
            out += item.head + (b"\n" if item.terminated else b"")
        else:
            out += item.data
            assert item.terminated == bytes(item.data).endswith(b"\n")
            assert all(len(line) <= limit + 1 for line in bytes(item.data).splitlines(True))
    return bytes(out)


def cut(data: bytes, size: int) -> list[bytes]:
    return [data[i : i + size] for i in range(0, len(data), size)]


@pytest.mark.parametrize("size", range(1, 12))
def test_a_cut_anywhere_changes_nothing(size: int) -> None:
    data = b'{"a":1}\r\n\n  \nhello\n\xc3\xa9\n'
    items = frame(cut(data, size), 100)
    assert all(isinstance(i, Lines) and i.terminated for i in items)
    assert b"".join(bytes(i.data) for i in items) == data
    assert all(bytes(i.data).endswith(b"\n") for i in items)


@given(st.lists(st.binary(max_size=12)), st.integers(1, 9), st.integers(0, 10))
def test_every_byte_comes_out_in_order(blocks: list[bytes], size: int, limit: int) -> None:
    data = b"\n".join(blocks)
    assert framed(cut(data, size), limit) == data.removeprefix(MARK)


@pytest.mark.parametrize("size", range(1, 9))
@pytest.mark.parametrize("limit", [2, 100])
def test_a_byte_order_mark_at_the_beginning_is_dropped(size: int, limit: int) -> None:
    for data in b'{"a":1}\n' + MARK + b"b\n", b"\n", b"", MARK, MARK[:2], MARK[:1] + b"\n":
        assert framed(cut(MARK + data, size), limit) == data
    for data in MARK[:2], MARK[:1] + b"\n", b"\n" + MARK, MARK[1:] + b"\n":
        assert framed(cut(data, size), limit) == data


def test_half_a_last_line_is_flagged() -> None:
    first, last = frame([b'{"a":1}\n{"b"'], 100)
    assert isinstance(first, Lines) and bytes(first.data) == b'{"a":1}\n' and first.terminated
    assert isinstance(last, Lines) and bytes(last.data) == b'{"b"' and not last.terminated


def test_a_whole_block_is_not_copied() -> None:
    block = b"x\n" * 1000
    (item,) = frame([block], 1 << 20)
    assert isinstance(item, Lines) and item.data is block
    item, rest = frame([block + b"half"], 1 << 20)
    assert isinstance(item, Lines) and isinstance(item.data, memoryview)
    assert isinstance(rest, Lines) and bytes(rest.data) == b"half"


def test_a_line_that_is_too_long_goes_to_a_file_in_order(tmp_path: Path) -> None:
    long = b"y" * 200_000
    data = b"a\n" + long + b"\nb\n" + long
    items = frame(cut(data, 65_536), 100_000, tmp_path)
    kinds = [type(i) for i in items]
    assert kinds == [Lines, Oversized, Lines, Oversized]
    for item, ended in ((items[1], True), (items[3], False)):
        assert isinstance(item, Oversized) and item.path is not None
        assert item.path.read_bytes() == long and item.size == len(long)
        assert item.head == long[:HEAD_BYTES] and item.terminated is ended
        assert item.path.stat().st_mode & 0o777 == 0o600


def test_too_long_lines_inside_one_block(tmp_path: Path) -> None:
    data = b"ok\n" + b"z" * 50 + b"\nfine\n" + b"w" * 11 + b"\n" + b"v" * 10 + b"\n"
    items = frame([data], 10, tmp_path)
    assert [i.size if isinstance(i, Oversized) else bytes(i.data) for i in items] == [
        b"ok\n",
        50,
        b"fine\n",
        11,
        b"v" * 10 + b"\n",
    ]


def test_close_removes_the_file_of_an_unfinished_line(tmp_path: Path) -> None:
    framer = LineFramer(10, tmp_path)
    assert list(framer.feed(b"q" * 100)) == [] and list(tmp_path.iterdir())
    framer.close()
    framer.close()
    assert list(tmp_path.iterdir()) == [] and list(framer.finish()) == []


def test_a_50_mb_line_in_small_blocks_takes_linear_time() -> None:
    def seconds(size: int) -> float:
        blocks = cut(b"x" * size + b"\n", 16_384)
        best = 9.0
        for _ in range(3):
            began = time.process_time()
            (item,) = frame(blocks, 64 << 20)
            best = min(best, time.process_time() - began)
            assert isinstance(item, Lines) and len(item.data) == size + 1
        return best

    small, large = seconds(5 << 20), seconds(50 << 20)
    # Copied again for each block, the large one would take ten seconds and more.
    assert large < max(40 * small, 1.0), "ten times the bytes: far below a hundred times the time"


def test_a_line_without_an_end_does_not_fill_the_disk(tmp_path: Path) -> None:
    """Issue 9: a bound on what is spooled; its file is gone."""
    framer = LineFramer(10, tmp_path, longest=100)
    with pytest.raises(SourceError) as caught:
        for _ in range(20):
            assert list(framer.feed(b"x" * 10)) == []
    assert caught.value.code == "source.endless_line"
    assert list(tmp_path.iterdir()) == []
