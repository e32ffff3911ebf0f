"""The error tree between processes and in reports (``penstock.errors``)."""

import json

import pytest

from penstock.engine.worker.sealer import FatalReject
from penstock.errors import (
    Cancelled,
    ConfigError,
    Defect,
    DestinationError,
    LogError,
    PenstockError,
    SchemaError,
    SourceError,
    StateError,
)
from penstock.tables.contract import TableAhead, TableBehind


def tree(kind: type[PenstockError] = PenstockError) -> list[type[PenstockError]]:
    found = [x for below in kind.__subclasses__() for x in tree(below)]
    return found if kind is PenstockError else [kind, *found]


CLASSES = [kind for kind in tree() if kind.__module__.startswith("penstock.")]


BRANCHES = [
    ConfigError, SchemaError, SourceError, DestinationError, StateError, Cancelled, Defect,
]  # fmt: skip


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)
def test_every_class_comes_back_as_itself_with_all_of_its_fields(kind: type[PenstockError]) -> None:
    error = kind.__new__(kind)
    told = {"code": "a.b", "hint": "h", "where": "w", "stream": "s", "connector": {"x": [1]}}
    PenstockError.__init__(error, "it broke", **told)  # type: ignore[arg-type]
    own = kind.fields[len(PenstockError.fields) :]
    for name in own:
        setattr(error, name, ["one", "two"])
    back = PenstockError.from_dict(json.loads(json.dumps(error.as_dict())))
    assert type(back) is kind and back.message == "it broke"
    assert back.as_dict() == error.as_dict()
    assert all(getattr(back, name) == ["one", "two"] for name in own)


def test_no_two_classes_have_one_name() -> None:
    names = [kind.__name__ for kind in CLASSES]
    assert len(set(names)) == len(names) and {TableAhead, TableBehind, FatalReject} < set(CLASSES)


def test_a_log_error_is_not_taken_for_a_state_error() -> None:
    assert type(PenstockError.from_dict(LogError("x").as_dict())) is LogError


def test_a_class_that_the_reader_has_not_loaded_is_its_nearest_base() -> None:
    told = FatalReject("a record is refused", code="source.data").as_dict()
    told["class"][0] = "OfAnotherProcess"
    back = PenstockError.from_dict(told)
    assert type(back) is SourceError and back.code == "source.data"


@pytest.mark.parametrize("kind", BRANCHES)
def test_an_error_of_an_older_version_is_known_by_its_exit_code(kind: type[PenstockError]) -> None:
    told = kind("x", hint="h").as_report()
    assert "class" not in told
    back = PenstockError.from_dict(told)
    assert type(back) is kind and (back.message, back.hint) == ("x", "h")


def test_the_text_of_an_error_has_its_problems_once() -> None:
    error = ConfigError("it cannot run", problems=["a", "of two\nlines"])
    assert str(error) == "it cannot run\n  - a\n  - of two lines"
    assert error.as_report()["message"] == error.message == "it cannot run"
    again = PenstockError.from_dict(json.loads(json.dumps(error.as_dict())))
    assert str(again) == str(error)
    assert str(PenstockError.from_dict(ConfigError("x").as_report())) == "x"
    assert str(ConfigError("a", problems=["a"])) == "a"
    many = str(ConfigError("x", problems=[f"{n} {'y' * 100_000}" for n in range(3_000)]))
    assert many.endswith("and 2,980 more, in .problems") and len(many) < 110_000


def test_a_report_names_no_class_and_every_problem() -> None:
    """docs/cli.md: the object of a report and of --json."""
    keys = {"code", "message", "hint", "where", "stream", "connector", "exit_code"}
    assert DestinationError("x").as_report().keys() == keys
    assert ConfigError("x").as_report().keys() == keys
    assert ConfigError("x", problems=["a", "b"]).as_report()["problems"] == ["a", "b"]
