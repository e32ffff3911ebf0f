"""A warning comes once a run, not once a stream (issue 40 part 3)."""

from penstock.engine.plan.notes_of_streams import NotesOfStreams, joined_notes

CUT = "values of at were cut to the microsecond"


def test_what_is_noted_of_several_streams_is_one_note() -> None:
    given = [f"users: {CUT}", "nobody: else", f"a.b: {CUT}", f"users: {CUT}", f"orders: {CUT}"]
    assert joined_notes(given, ["users", "orders", "a.b"]) == [
        f"users, a.b, orders: {CUT}",
        "nobody: else",
    ]


def test_a_word_before_the_name_stays() -> None:
    given = ["stream a: kept", "stream b: kept", "a: kept", "the table a: kept"]
    assert joined_notes(given, ["a", "b"]) == ["streams a, b: kept", "a: kept", "the table a: kept"]


def test_many_names_are_counted() -> None:
    names = [f"s{i}" for i in range(25)]
    (note,) = joined_notes([f"{name}: {CUT}" for name in names], names)
    assert note == f"{', '.join(names[:10])} and 15 more: {CUT}"


def test_the_second_stream_takes_the_place_of_the_note_before() -> None:
    notes = NotesOfStreams()
    assert notes.joined("a: x", ["a", "b"]) == (None, "a: x")
    assert notes.joined("b: x", ["a", "b"]) == ("a: x", "a, b: x")
    assert notes.joined("c: x", ["a", "b"]) == (None, "c: x")  # no stream of the run
