"""Frames that a hostile guest makes: each is refused as one, and the process goes on (L10, issue 5
part 4)."""

import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import rapidbyte_guests

from penstock.codec.columns import Columns
from penstock.errors import SourceError
from penstock.model.catalog import Stream, StreamId
from penstock.model.events import Batch, ConnectorExited, Error, LogEvent, Status, StreamStatus
from penstock.protocols.rapidbyte.package import PACKAGE
from penstock.protocols.rapidbyte.wire.arrow_ipc import frame_of
from penstock.protocols.rapidbyte.wire.frame_check import MAX_BYTES, MAX_ROWS, decode_frame
from penstock.protocols.rapidbyte.wire.messages import Refusal
from penstock.protocols.reading import ReadRequest, StreamOverrides
from penstock.protocols.transforming import TransformedRows, TransformRequest
from penstock.runtimes.contract import Component
from penstock.runtimes.wasm.component import ComponentRuntime, digest_of

MEGABYTE = 1 << 20


def frame(array: Any = None, *, codec: str | None = None, **columns: Any) -> bytes:
    given = columns if array is None else {"x": array}
    batch = pa.RecordBatch.from_arrays(list(given.values()), names=list(given))
    sink: Any = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression=codec)
    with pa.ipc.new_stream(sink, batch.schema, options=options) as writer:
        writer.write_batch(batch)
    return sink.getvalue().to_pybytes()


def strings(offsets: list[int], data: bytes) -> Any:
    packed = pa.py_buffer(struct.pack(f"<{len(offsets)}i", *offsets))
    return pa.Array.from_buffers(pa.string(), len(offsets) - 1, [None, packed, pa.py_buffer(data)])


def twice() -> bytes:
    batch = pa.RecordBatch.from_arrays([pa.array([1]), pa.array([2])], names=["id", "id"])
    return bytes(frame_of(batch))


def nested_twice() -> bytes:
    inner = pa.StructArray.from_arrays([pa.array([1]), pa.array([2])], names=["a", "a"])
    return frame(pa.ListArray.from_arrays(pa.array([0, 1], pa.int32()), inner))


def claiming(size: int) -> bytes:
    """A compressed column that says it will be ``size`` bytes."""
    made = bytearray(frame(pa.array([7] * 1000, pa.int64()), codec="zstd"))
    at = made.rfind(struct.pack("<q", 8000))
    made[at : at + 8] = struct.pack("<q", size)
    return bytes(made)


def views() -> Any:
    """600 times the same megabyte."""
    view = struct.pack("<i4sii", MEGABYTE, b"xxxx", 0, 0)
    buffers = [None, pa.py_buffer(view * 600), pa.py_buffer(b"x" * MEGABYTE)]
    return pa.Array.from_buffers(pa.string_view(), 600, buffers)


def list_views() -> Any:
    return pa.ListViewArray.from_arrays(
        pa.array([0] * 1000, pa.int32()),
        pa.array([MEGABYTE] * 1000, pa.int32()),
        pa.repeat(pa.scalar(0, pa.int8()), MEGABYTE),
    )


def null_view() -> Any:
    """The view of a null value lies: Arrow's validation passes it over, its casts do not."""
    sound = struct.pack("<i4sii", 20, b"xxxx", 0, 0)
    lies = struct.pack("<iiii", -(1 << 31), -1, 0, 0)
    buffers = [pa.py_buffer(b"\x01"), pa.py_buffer(sound + lies), pa.py_buffer(b"x" * 20)]
    return pa.Array.from_buffers(pa.string_view(), 2, buffers)


class Forgery:
    """A stream whose one record batch can be rewritten: a reader of flatbuffers (Arrow's
    Message.fbs). ``records``: where its table is; ``body``: where its buffers begin."""

    def __init__(self, stream: bytes) -> None:
        self.data = bytearray(stream)
        (size,) = struct.unpack_from("<i", self.data, 4)
        begin = 16 + size  # behind the schema, which has no body
        (size,) = struct.unpack_from("<i", self.data, begin - 4)
        self.message = self._target(begin)
        self.records = self._target(self.slot(self.message, 2))
        self.body = begin + size

    def slot(self, table: int, number: int) -> int:
        return table + struct.unpack_from("<H", self.data, self.entry(table, number))[0]

    def entry(self, table: int, number: int) -> int:
        """Where the vtable says whether the table has this field; 0 says that it has not."""
        return table - struct.unpack_from("<i", self.data, table)[0] + 4 + 2 * number

    def fill(self, vector: int, pairs: list[tuple[int, int]]) -> None:
        """Overwrites a vector of pairs of the batch: its nodes (1) or its buffers (2)."""
        at = self._target(self.slot(self.records, vector)) + 4
        for i, pair in enumerate(pairs):
            struct.pack_into("<qq", self.data, at + 16 * i, *pair)

    def _target(self, at: int) -> int:
        return at + struct.unpack_from("<I", self.data, at)[0]


def as_arrow_0_17(size: int) -> bytes:
    """A column that is compressed by metadata of its message alone, as Arrow 0.17 wrote it
    (https://github.com/apache/arrow/pull/7571), and claims to be ``size`` bytes."""
    batch = pa.record_batch({"x": pa.array([7] * 1000, pa.int64())})
    sink: Any = pa.BufferOutputStream()
    version = pa.ipc.MetadataVersion.V4
    options = pa.ipc.IpcWriteOptions(metadata_version=version, compression="zstd")
    with pa.ipc.new_stream(sink, batch.schema, options=options) as writer:
        writer.write_batch(batch, custom_metadata={"ARROW:experimental_compression": "ZSTD"})
    made = Forgery(sink.getvalue().to_pybytes())
    struct.pack_into("<H", made.data, made.entry(made.records, 3), 0)
    struct.pack_into("<q", made.data, made.body, size)
    return bytes(made.data)


def one_buffer(columns: int, rows: int) -> bytes:
    """Columns that all name the same buffer of ``rows`` numbers."""
    made = Forgery(frame(**{f"c{i}": pa.array([0], pa.int64()) for i in range(columns)}))
    struct.pack_into("<q", made.data, made.slot(made.records, 0), rows)
    made.fill(1, [(rows, 0)] * columns)
    made.fill(2, [(0, 0), (0, 8 * rows)] * columns)
    struct.pack_into("<q", made.data, made.slot(made.message, 3), 8 * rows)
    return bytes(made.data[: made.body]) + bytes(8 * rows) + b"\xff\xff\xff\xff\0\0\0\0"


def without_its_schema() -> bytes:
    """The page, Data Exchange, speaks of "Arrow IPC stream fragments": here of the second one."""
    return pa.record_batch({"x": [1]}).serialize().to_pybytes()


EMPTY_STRUCTS = pa.StructArray.from_buffers(pa.struct([]), MAX_ROWS, [None])
FORGED: dict[str, tuple[Callable[[], bytes], str]] = {
    "no stream": (lambda: b"not arrow", ""),
    "cut off": (lambda: frame(pa.array([1, 2, 3]))[:-60], ""),
    "offsets": (lambda: frame(strings([0, 2_000_000_000, 10], b"0123456789")), "2000000000"),
    "no utf-8": (lambda: frame(strings([0, 2], b"\xff\xfe")), "UTF8"),
    "a name": (
        lambda: frame(some_name=pa.array([1])).replace(b"some_name", b"some\xffname"), "codec",
    ),
    "a zone": (
        lambda: frame(pa.array([1], pa.timestamp("us", tz="Mars/X"))).replace(b"Mars", b"M\xffrs"),
        "codec",
    ),
    "an index": (
        lambda: frame(
            pa.DictionaryArray.from_arrays(pa.array([0, 7]), pa.array(["a"]), safe=False)
        ),
        "",
    ),
    "rows of nothing": (lambda: frame(pa.nulls(2**31 - 1)), f"{MAX_ROWS} rows"),
    "lists of nothing": (
        lambda: frame(pa.LargeListArray.from_arrays(pa.array([0, 1 << 30]), pa.nulls(1 << 30))),
        f"{MAX_BYTES} bytes",
    ),
    "a claim": (lambda: claiming(10**13), "claims"),
    "a claim of Arrow 0.17": (lambda: as_arrow_0_17(10**13), "claims"),
    "one buffer": (lambda: one_buffer(1000, 100_000), f"{MAX_BYTES} bytes"),
    "columns of nothing": (
        lambda: frame(**{f"c{i}": pa.nulls(MAX_ROWS) for i in range(40)}), f"{MAX_BYTES} bytes",
    ),
    "columns of empty structs": (
        lambda: frame(**{f"c{i}": EMPTY_STRUCTS for i in range(40)}), f"{MAX_BYTES} bytes",
    ),
    "a null's view": (lambda: frame(null_view()), "negative size"),
    "a null's view in a list": (
        lambda: frame(pa.ListArray.from_arrays(pa.array([0, 2], pa.int32()), null_view())),
        "negative size",
    ),
    "a decimal's scale": (
        lambda: frame(pa.array([1], pa.decimal128(10)).view(pa.decimal128(10, 200))), "scale",
    ),
    "a dictionary": (
        lambda: frame(
            pa.DictionaryArray.from_arrays(pa.array([0] * 600), pa.array(["x" * MEGABYTE]))
        ),
        f"{MAX_BYTES} bytes",
    ),
    "a run": (
        lambda: frame(
            pa.RunEndEncodedArray.from_arrays(
                pa.array([1_000_000], pa.int32()), pa.array(["x" * 1000])
            )
        ),
        f"{MAX_BYTES} bytes",
    ),
    "views of one text": (lambda: frame(views()), f"{MAX_BYTES} bytes"),
    "views of one list": (lambda: frame(list_views()), f"{MAX_BYTES} bytes"),
    "two streams": (lambda: frame(x=pa.array([1])) + frame(x=pa.array([2])), "follow the end"),
    "more behind its end": (lambda: frame(x=pa.array([1])) + bytes(8) + b"x", "9 bytes follow"),
    "a fragment": (without_its_schema, "schema"),
    "two columns": (twice, "'id'"),
    "two fields": (nested_twice, "'x.item.a'"),
}  # fmt: skip


@pytest.mark.parametrize("how", FORGED)
def test_what_is_wrong_with_a_frame_is_one_kind_of_refusal(how: str):
    make, words = FORGED[how]
    data = make()
    assert len(data) < 3 * MEGABYTE
    with pytest.raises(Refusal) as caught:
        decode_frame(data)
    fault = caught.value.fault
    assert (fault.category, fault.code) == ("frame", "FRAME_DECODE")
    assert "Arrow IPC" in fault.message and words in fault.message


NO_UNIONS = pa.UnionArray.from_sparse(pa.array([], pa.int8()), [pa.array([], pa.int8())])
HONEST: list[Any] = [
    NO_UNIONS,
    pa.ListArray.from_arrays(pa.array([0, 0, 0], pa.int32()), NO_UNIONS),
    pa.RunEndEncodedArray.from_arrays(pa.array([], pa.int32()), NO_UNIONS),
    pa.array([1, None]),
    pa.array(["żółć", None, ""]),
    pa.array(["a", None], pa.string_view()),
    pa.array(["a", "a"]).dictionary_encode(),
    pa.array([[1], None], pa.list_view(pa.int8())),
    pa.array([{"a": [1]}, None]),
    pa.array([[("k", 1)]], pa.map_(pa.string(), pa.int8())),
    pa.RunEndEncodedArray.from_arrays(pa.array([2, 3]), pa.array([{"a": "x"}, None])),
    pa.UnionArray.from_dense(pa.array([0], pa.int8()), pa.array([0], pa.int32()), [pa.array([1])]),
    pa.nulls(3),
    pa.array([], pa.string()),
]


@pytest.mark.parametrize("codec", [None, "lz4", "zstd"])
@pytest.mark.parametrize("array", HONEST, ids=lambda a: f"{a.type}-{len(a)}")
def test_a_sound_frame_is_its_rows(array: Any, codec: str | None):
    data = frame(array, codec=codec)
    table, size = decode_frame(data)
    assert table.column("x").combine_chunks().equals(array)
    assert size >= len(data)


AROUND: dict[str, Callable[[Any], Any]] = {
    "column": lambda a: a,
    "struct": lambda a: pa.StructArray.from_arrays([a], names=["a"]),
    "runs": lambda a: pa.RunEndEncodedArray.from_arrays(pa.array([2, 3, 4]), a),
    "three": lambda a: pa.FixedSizeListArray.from_arrays(a, 3),
    "list": lambda a: pa.ListArray.from_arrays(pa.array([0, 1, 3], pa.int32()), a),
    "large": lambda a: pa.LargeListArray.from_arrays(pa.array([0, 3]), a),
    "view": lambda a: pa.ListViewArray.from_arrays(
        pa.array([1], pa.int32()), pa.array([2], pa.int32()), a
    ),
    "map": lambda a: pa.MapArray.from_arrays(
        pa.array([0, 3], pa.int32()), pa.array(["a", "b", "c"]), a
    ),
    "union": lambda a: pa.UnionArray.from_sparse(pa.array([0, 0, 0], pa.int8()), [a]),
}


@pytest.mark.parametrize("around", AROUND)
def test_an_extension_type_is_what_it_is_stored_as(around: str):
    """v4 knows none: such a column ended the whole lane, with every stream of it (L7)."""
    stored = pa.array([bytes(range(200, 216)), None, bytes(16)], pa.binary(16))
    uuids = pa.ExtensionArray.from_storage(pa.uuid(), stored)
    table, _ = decode_frame(frame(AROUND[around](uuids)))
    found, wanted = table.column("x").combine_chunks(), AROUND[around](stored)
    assert found.type == wanted.type and found.to_pylist() == wanted.to_pylist()


def test_a_frame_of_arrow_0_17_is_its_rows():
    table, size = decode_frame(as_arrow_0_17(8000))
    assert table.column("x").to_pylist() == [7] * 1000
    assert size == 8000


def test_columns_of_one_buffer_are_their_rows():
    table, size = decode_frame(one_buffer(3, 100))
    assert table.num_columns == 3 and table.num_rows == 100
    assert size == 2400


def test_zeros_behind_the_end_of_a_stream_are_no_data():
    """A guest may give the whole of a buffer that its stream did not fill."""
    table, _ = decode_frame(frame(x=pa.array([1, 2])) + bytes(3 * MEGABYTE))
    assert table.column("x").to_pylist() == [1, 2]


def test_a_frame_counts_as_what_it_is_once_expanded():
    """So that buffers are drained by what they take."""
    data = frame(pa.array([0] * 1_000_000, pa.int64()), codec="zstd")
    assert len(data) < 10_000
    assert decode_frame(data)[1] == 8_000_000


# -- through the roles

Make = Callable[..., ComponentRuntime]


@pytest.fixture
def runtime(tmp_path: Path) -> Make:
    def make(role: str, file: str = "guest.c") -> ComponentRuntime:
        binary = rapidbyte_guests.c_guest(role, file)
        path = tmp_path / f"{role}.wasm"
        path.write_bytes(binary)
        cache = str(rapidbyte_guests.CACHE / "compiled")
        return ComponentRuntime(Component(path=str(path), digest=digest_of(binary), cache=cache))

    return make


def configured(name: str, mode: str = "full_refresh") -> Any:
    stream = Stream(id=StreamId.of(None, name), json_schema={})
    overrides = StreamOverrides(sync_mode=mode, destination_sync_mode="append")
    return PACKAGE.source.configure(stream, overrides)


ENDING = [
    "a fragment",
    "offsets",
    "a name",
    "an index",
    "rows of nothing",
    "two columns",
    "two streams",
]


@pytest.mark.parametrize("how", ENDING)
def test_a_bad_frame_fails_its_stream_alone_and_for_good(runtime: Make, how: str):
    config = {
        "bad": "frame d0", "good": "frame d1",
        "d0": FORGED[how][0]().hex(), "d1": frame(id=pa.array([1, 2])).hex(),
    }  # fmt: skip
    asked = ReadRequest(config=config, streams=(configured("bad"), configured("good")))
    events = list(PACKAGE.source.read(runtime("source", "script.c"), asked))
    (error,) = (e for e in events if isinstance(e, Error))
    assert error.stream == StreamId.of(None, "bad") and error.retry is None
    assert error.code == "source.bad_frame" and "Arrow IPC" in error.message
    assert "each frame is one whole Arrow IPC stream" in str(error.hint)
    ends = [(e.stream and e.stream.name, e.status) for e in events if isinstance(e, StreamStatus)]
    assert ends[-1] == ("good", Status.complete) and ("bad", Status.incomplete) in ends
    (batch,) = (e for e in events if isinstance(e, Batch))
    assert batch.stream.name == "good" and len(batch.bodies) == 2
    assert events[-1] == ConnectorExited(1)


def test_a_transform_s_bad_frame_is_its_own(runtime: Make):
    """The C transform gives each frame as it came: here a table that Arrow did not check."""
    transform = PACKAGE.transform
    assert transform is not None
    asked = TransformRequest(config={}, stream=configured("s"), scope="s")
    bad = pa.table({"x": strings([0, 2], b"\xff\xfe")})
    answers = transform.apply(runtime("transform"), asked, iter([pa.table({"x": ["a"]}), bad]))
    assert next(a for a in answers if isinstance(a, TransformedRows)).table.to_pylist() == [
        {"x": "a"}
    ]
    with pytest.raises(SourceError) as caught:
        list(answers)
    assert caught.value.code == "transform.bad_frame"
    assert caught.value.stream == "s"


def test_a_change_row_whose_operation_is_no_text_is_a_bad_frame(runtime: Make):
    data = frame(id=pa.array([1]), _rb_op=pa.array([{"a": 1}]))
    config = {"s": "frame d0", "d0": data.hex()}
    asked = ReadRequest(config=config, streams=(configured("s", "cdc"),))
    events = list(PACKAGE.source.read(runtime("source", "script.c"), asked))
    (error,) = (e for e in events if isinstance(e, Error))
    assert error.code == "source.bad_frame"


def test_a_compressed_frame_weighs_what_it_expands_to(runtime: Make):
    data = frame(pa.array([0] * 1_000_000, pa.int64()), codec="zstd")
    asked = ReadRequest(config={"s": "frame d0", "d0": data.hex()}, streams=(configured("s"),))
    events = list(PACKAGE.source.read(runtime("source", "script.c"), asked))
    (batch,) = (e for e in events if isinstance(e, Batch))
    assert isinstance(batch.bodies, Columns) and batch.size == 8_000_000


# -- what a guest is told of a dry run


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        ({}, "phase 0 dry 0 max 0"),
        ({"dry_run": True}, "phase 0 dry 1 max 0"),
        ({"dry_run": True, "limit": 5}, "phase 0 dry 1 max 1"),
    ],
)
def test_a_run_request_says_what_is_kept_and_how_much_is_wanted(
    runtime: Make, asked: dict[str, Any], told: str
):
    config = {"mode": "context", "frames": 0}
    request = ReadRequest(config=config, streams=(configured("numbers"),), **asked)
    events = PACKAGE.source.read(runtime("source"), request)
    lines = [e.message for e in events if isinstance(e, LogEvent)]
    assert told in lines
    assert ('"max_records":5' in lines[0]) is ("limit" in asked)


def test_a_transform_of_a_dry_run_is_told_so(runtime: Make):
    transform = PACKAGE.transform
    assert transform is not None
    for dry in (False, True):
        asked = TransformRequest(
            config={"mode": "context"}, stream=configured("s"), scope="s", dry_run=dry
        )
        answers = transform.apply(runtime("transform"), asked, iter([]))
        lines = [a.message for a in answers if isinstance(a, LogEvent)]
        assert f"phase 2 dry {int(dry)} max 0" in lines
