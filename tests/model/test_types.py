"""Row schemas as the store keeps them."""

import msgspec

from penstock.model.types import DataType, Field, Kind, RowSchema

ID, NAME = Field("id", "I D", DataType(Kind.integer)), Field("n", "n", DataType(Kind.string))
STORED = (
    b'{"fields":[{"name":"id","source":"I D","type":{"kind":"integer","precision":null,'
    b'"scale":null,"item":null,"fields":[]}},{"name":"n","source":"n","type":{"kind":"string",'
    b'"precision":null,"scale":null,"item":null,"fields":[]}}],"version":3}'
)


def test_l9_a_schema_stored_before_more_was_kept_is_read_and_written_as_it_was() -> None:
    """An upgrade makes no new version of a stream of which nothing new is known."""
    found = msgspec.json.decode(STORED, type=RowSchema)
    assert found == RowSchema((ID, NAME), 3)
    assert (found.required, found.frame_types) == (frozenset(), {}), "of frames: those of the kinds"
    assert msgspec.json.encode(found) == STORED


def test_l9_what_is_never_null_is_told_by_original_names() -> None:
    one = RowSchema((ID, NAME), 3).with_required({"I D", "no column"})
    assert [f.nullable for f in one.fields] == [False, True] and one.version == 3
    assert one.required == {"I D"}
    assert msgspec.json.decode(msgspec.json.encode(one), type=RowSchema) == one
    assert one.with_required(()) == RowSchema((ID, NAME), 3)
    assert one.with_required({"I D"}) is one


def test_l9_frame_types_are_told_by_original_names() -> None:
    one = RowSchema((ID, NAME), 3).with_frame_types({"I D": "int32", "no column": "int8"})
    assert [f.frame_type for f in one.fields] == ["int32", None] and one.version == 3
    assert one.frame_types == {"I D": "int32"}
    assert msgspec.json.decode(msgspec.json.encode(one), type=RowSchema) == one
    assert one.with_frame_types({}) == RowSchema((ID, NAME), 3)
    assert one.with_frame_types({"I D": "int32"}) is one
