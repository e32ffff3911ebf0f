"""One message a line (protocol, Interface Invariants): a quick check that agrees with the plain."""

from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.protocols.airbyte.record_reader import _one_a_line
from penstock.protocols.stdio.json_lines import one_a_line, split

PIECES = st.sampled_from([b"{", b"{}", b"\n", b" ", b"[", b"{1}\n", b"{2}\n", b"\r\n"])


@settings(deadline=None)
@given(st.lists(PIECES, max_size=8).map(b"".join), st.integers(0, 6))
def test_quick_check_agrees_with_the_plain_one(data: bytes, messages: int) -> None:
    assert _one_a_line(data, messages) == one_a_line(split(data), messages)


def test_what_decode_lines_takes_and_we_do_not() -> None:
    assert _one_a_line(b'{"a":1}\n{"b":2}\n', 2)
    assert _one_a_line(b'{"a":1}\n{"b":2}', 2)
    assert not _one_a_line(b'{"a":1}{"b":2}\n', 2)
    assert not _one_a_line(b'{"a":1}{"b":2}\n\n', 2)
    assert not _one_a_line(b'{"a":\n1}{"b":2}\n', 2)
    assert not _one_a_line(b'{"a":1}\n\n{"b":2}\n', 2)
    assert not _one_a_line(b' {"a":1}\n', 1)
