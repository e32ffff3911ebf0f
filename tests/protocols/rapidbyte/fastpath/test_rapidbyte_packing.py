"""Packed bytes come back exactly; every length around every boundary (issue 5, part 2)."""

import random

import pytest

from penstock.protocols.rapidbyte.fastpath.packing import PIECE, Packer, packed_size, unpacked_size
from penstock.runtimes.wasm.clock import clocked


@pytest.fixture(scope="module")
def packer() -> Packer:
    return Packer(clocked().engine)


LENGTHS = [*range(260), 1000, 4095, 4096, 65535, 65536, PIECE - 7, PIECE - 1, PIECE]


def by_hand(data: bytes) -> bytes:
    """The form as the module's text describes it."""
    m = -(-len(data) // 7)
    top = bytearray(m)
    for k, byte in enumerate(data):
        top[k % m] |= (byte >> 7) << (k // m)
    return bytes(b & 127 for b in data) + bytes(top)


def test_every_length_comes_back(packer: Packer):
    rng = random.Random(5)
    for n in LENGTHS:
        data = rng.randbytes(n)
        text = packer.pack(data)
        assert text.isascii() and len(text) == packed_size(n)
        assert unpacked_size(len(text)) == n
        assert bytes(packer.unpack(text)) == data, n


@pytest.mark.parametrize("n", [1, 6, 7, 8, 105, 106, 112, 119, 1000])
def test_the_form_is_the_one_described(packer: Packer, n: int):
    data = random.Random(n).randbytes(n)
    low, top = n, -(-n // 7)
    packed = packer.pack(data).encode()
    expected = by_hand(data)
    assert packed[:low] == expected[:low]
    # Beyond the last byte the top bits of the last lane say nothing.
    for j in range(top):
        valid = sum(1 << i for i in range(7) if i * top + j < n)
        assert packed[low + j] & valid == expected[low + j] & valid


def test_all_bytes_and_views(packer: Packer):
    data = bytes(range(256)) * 4
    assert bytes(packer.unpack(packer.pack(data))) == data
    assert bytes(packer.unpack(packer.pack(memoryview(bytearray(data))[3:900]))) == data[3:900]


def test_what_nothing_packs_to_is_refused(packer: Packer):
    for length in (1, 9, 17):
        with pytest.raises(ValueError):
            packer.unpack("a" * length)
    with pytest.raises(ValueError):
        packer.unpack("é" * 8)
    with pytest.raises(ValueError):
        packer.pack(bytes(PIECE + 1))
    with pytest.raises(ValueError):
        packer.unpack("a" * packed_size(PIECE + 7))
