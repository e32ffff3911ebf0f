"""A label never claims more than the table shows: what the report says of a column whose table has
another type than the load (L9). No Spark: the notes are decided by the types alone."""

from typing import Any

import pytest

from penstock.tables.frame.load_frame import cast_notes
from penstock.tables.frame.schema_evolution import evolve, widened

NULLS, TEXT = "become NULL", "are written as text"


@pytest.mark.parametrize(
    ("load", "table", "said"),
    [
        ((10, 2), (12, 4), None),
        ((12, 4), (10, 4), NULLS),
        ((12, 4), (12, 2), NULLS),
        ("integer", (19, 0), None),
        ("integer", (21, 2), None),
        ("integer", (18, 0), NULLS),
        ((18, 0), "integer", None),
        ((19, 0), "integer", NULLS),
        ((18, 1), "integer", NULLS),
        ((15, 2), "number", None),
        ((16, 2), "number", NULLS),
        ("integer", "number", NULLS),
        ("number", (38, 9), NULLS),
        ("date", "timestamp_ntz", None),
        ("timestamp_ntz", "date", NULLS),
        ("integer", "string", TEXT),
        ("binary", "string", TEXT),
        ({"a": "integer"}, "string", TEXT),
        ("string", "integer", NULLS),
        ("boolean", "integer", NULLS),
        ({"a": (10, 2)}, {"a": (12, 4)}, None),
        ({"a": (12, 4)}, {"a": (10, 2)}, NULLS),
        ([(10, 2)], [(12, 2)], None),
        (["string"], ["integer"], NULLS),
        ("string", "string", None),
    ],
)
def test_values_become_null_is_said_only_where_they_may(
    loads: Any, load: Any, table: Any, said: str | None
) -> None:
    target = loads.load(1, [], {"v": table}).schema.fields
    notes = cast_notes(loads.load(2, [], {"v": load}), target)
    assert [(NULLS in note, TEXT in note) for note in notes] == (
        [] if said is None else [(said == NULLS, said == TEXT)]
    )
    nulled = loads.load(3, [], {"v": load}, evolution={"type_change": "null"})
    assert bool(cast_notes(nulled, target)) == (load != table)  # it makes NULL of all of them


def test_a_column_that_was_widened_has_no_such_note(loads: Any) -> None:
    old = loads.load(1, [], {"v": (20, 2)}).schema.fields
    new = loads.load(2, [], {"v": (10, 4)})
    (field,) = new.schema.fields
    wide = widened(old[0].type, field.type)
    assert (wide.precision, wide.scale) == (22, 4)
    evolved = evolve("t", old, new.schema.fields, new.policy.evolution)
    assert cast_notes(new, evolved.fields) == ()
