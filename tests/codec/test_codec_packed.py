"""Bodies side by side: a sequence like any other, and one Arrow column without a copy of each."""

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.codec.bodies import column
from penstock.codec.packed_bodies import Packed
from penstock.errors import Defect

BODIES = st.lists(st.binary(max_size=6), max_size=8)


@settings(deadline=None)
@given(st.lists(BODIES, max_size=5))
def test_packed_is_the_sequence_of_its_bodies(parts: list[list[bytes]]) -> None:
    whole = [body for part in parts for body in part]
    packed = Packed.joined(Packed.of(part) for part in parts)
    assert len(packed) == len(whole) and list(packed) == whole
    assert [packed[i] for i in range(len(whole))] == whole
    assert [packed[i - len(whole)] for i in range(len(whole))] == whole
    assert packed[1:4] == whole[1:4] and packed[::-2] == whole[::-2]
    assert packed.size == sum(map(len, whole))
    with pytest.raises(IndexError):
        packed[len(whole)]
    with pytest.raises(IndexError):
        packed[-len(whole) - 1]


@settings(deadline=None)
@given(st.lists(st.lists(st.binary(min_size=1, max_size=6), max_size=8), max_size=5))
def test_first_bytes(parts: list[list[bytes]]) -> None:
    packed = Packed.joined(Packed.of(part) for part in parts)
    assert packed.first_bytes() == {body[0] for part in parts for body in part}


@settings(deadline=None)
@given(st.lists(st.lists(st.text(max_size=6), max_size=8), max_size=5))
def test_the_column_and_its_bytes_are_the_same_however_bodies_come(parts: list[list[str]]) -> None:
    whole = [text for part in parts for text in part]
    packed = Packed.joined(Packed.of([t.encode() for t in part]) for part in parts)
    assert column(packed).to_pylist() == whole
    assert column(Packed.of([t.encode() for t in whole])).to_pylist() == whole


@settings(deadline=None)
@given(st.lists(st.text('": \t\r\nul', max_size=9), max_size=5))
def test_keys_are_counted_while_bodies_are_packed(bodies: list[str]) -> None:
    (piece,) = Packed.of([b.encode() for b in bodies]).pieces
    whole = "".join(bodies)
    assert (piece.keys, piece.nulls) == (whole.count('":'), whole.count('":nul'))
    assert piece.spaced or re.search(r'"\s+:', whole) is None
    assert Packed((piece, piece)).occurrences(b'":') == 2 * piece.keys


@pytest.mark.parametrize("body", ['{"a": "b"}', '{"a":"b : c"}', '{\t"a": 1,\n"b":"  c"}'])
def test_white_space_elsewhere_is_not_taken_for_that_of_a_key(body: str) -> None:
    assert not Packed.of([body.encode()]).pieces[0].spaced


class Huge(bytes):
    """Says that it is larger than it is."""

    def __len__(self) -> int:
        return 1 << 30


def test_more_than_two_gigabytes_in_one_batch_is_refused() -> None:
    with pytest.raises(Defect, match="2147483648 bytes"):
        Packed.of([Huge(), Huge()])
    packed = Packed.of([b"x" * (1 << 20)])
    with pytest.raises(Defect) as refused:
        column(Packed.joined([packed] * 2048))
    assert refused.value.code == "codec.batch"
