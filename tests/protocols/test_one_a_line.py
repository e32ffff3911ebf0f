"""One message a line (Airbyte: Interface Invariants; Singer: Output): a quick check of a whole
chunk that agrees with a plain one of its lines."""

from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.protocols.stdio.json_lines import one_a_line, split

PIECES = st.sampled_from(
    [b"{", b"{}", b"\n", b" ", b"[", b"{1}\n", b"{2}\n", b"\r\n", b"}\n", b"} \r\n"]
)


def plainly(data: bytes, messages: int) -> bool:
    lines = split(data)
    begin = all(line.startswith(b"{") for line in lines)
    end = all(line.rstrip(b" \t\r").endswith(b"}") for line in lines[:-1])
    return len(lines) == messages > 0 and begin and end


@settings(deadline=None)
@given(st.lists(PIECES, max_size=8).map(b"".join), st.integers(0, 6))
def test_quick_check_agrees_with_the_plain_one(data: bytes, messages: int) -> None:
    assert one_a_line(data, messages) == plainly(data, messages)


def test_what_decode_lines_takes_and_we_do_not() -> None:
    assert one_a_line(b'{"a":1}\n{"b":2}\n', 2)
    assert one_a_line(b'{"a":1}\n{"b":2}', 2)
    assert one_a_line(b'{"a":1}\r\n{"b":2} \r\n{"c":3}\n{"d":4}\r\n', 4)
    assert not one_a_line(b'{"a":1}{"b":2}\n', 2)
    assert not one_a_line(b'{"a":1}{"b":2}\n\n', 2)
    assert not one_a_line(b'{"a":\n1}{"b":2}\n', 2)
    assert not one_a_line(b'{"a":1}\n\n{"b":2}\n', 2)
    assert not one_a_line(b' {"a":1}\n', 1)


def test_two_messages_on_a_line_and_one_over_two_lines_do_not_make_up_for_each_other() -> None:
    for after in b"", b" ", b"\r":
        assert not one_a_line(b'{"a":1}{"b":2}\n{"c":' + after + b'\n{"d":3}}\n', 3)
        assert not one_a_line(b'{"c":[' + after + b'\n{"d":3}]}\n{"a":1}{"b":2}\n', 3)
        assert not one_a_line(b'{"c":[{},' + after + b'\n{"d":3}]}\n{"a":1}{"b":2}', 3)
