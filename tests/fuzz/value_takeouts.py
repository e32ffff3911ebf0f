"""What the fuzz of values must find again once it is taken out: a fix of issue 38 each, as a patch.

A patch brings back what the code did before the fix, or does without it. Neighbours:
``fuzz_takeouts`` (those of the planner), ``test_planner_fuzz``.
"""

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any, NamedTuple
from unittest import mock

import fuzz_values
import msgspec

import memory_tables
from penstock.codec import decode
from penstock.codec.delete_marks import JudgedMarks
from penstock.engine.plan import key_types, stream_columns
from penstock.engine.plan.table_types import TableTypes
from penstock.engine.worker import row_decoding
from penstock.model.types import DataType
from penstock.tables.delta import tables as delta_tables
from penstock.tables.files import newest_rows
from penstock.tables.frame import load_frame, soft_deletes
from penstock.tables.newest import OTHER, TIME
from penstock.tables.parquet import tables as parquet_tables


def _put(stack: ExitStack, place: Any, name: str, value: Any) -> None:
    stack.enter_context(mock.patch.object(place, name, value))


def _all_text_by_bytes(stack: ExitStack) -> None:
    """9 is newer than 10, and an ISO time than a later epoch."""
    real = newest_rows.order_of
    by_bytes = lambda *a, **k: real(*a, **{**k, "as_text": True})  # noqa: E731
    _put(stack, newest_rows, "order_of", by_bytes)


def _other_texts_have_an_order(stack: ExitStack) -> None:
    """1.10 after 1.9.0, 31.12.2023 and then 01.01.2024: compared as text."""
    real = newest_rows.order_of

    def order(sql: str, *given: Any, **more: Any) -> Any:
        found = real(sql, *given, **more)
        if not found.steps:
            return found
        text = f"({found.form} = {OTHER} AND {sql} IS NOT NULL)"
        return found._replace(
            form=f"CASE WHEN {text} THEN 9 ELSE {found.form} END",
            major=f"CASE WHEN {text} THEN 0 ELSE {found.major} END",
            minor=f"CASE WHEN {text} THEN {sql} ELSE {found.minor} END",
        )

    _put(stack, newest_rows, "order_of", order)


def _times_compare_as_text(stack: ExitStack) -> None:
    """12:00+02:00 is newer than 11:30Z."""
    real = newest_rows.order_of

    def order(sql: str, *given: Any, **more: Any) -> Any:
        found = real(sql, *given, **more)
        if not found.steps:
            return found
        time = f"({found.form} = {TIME})"
        major = f"CASE WHEN {time} THEN 0 ELSE {found.major} END"
        return found._replace(
            major=major, minor=f"CASE WHEN {time} THEN {sql} ELSE {found.minor} END"
        )

    _put(stack, newest_rows, "order_of", order)


def _forms_are_compared(stack: ExitStack) -> None:
    """A number is older than a time, whichever came later."""
    real = newest_rows.replaces
    same_form = lambda row, table, **k: real(row._replace(form=table.form), table, **k)  # noqa: E731
    _put(stack, newest_rows, "replaces", same_form)


def _two_forms_are_forgotten(stack: ExitStack) -> None:
    """5 in the table, then a text and 3 in one load: 3 is left out."""
    real = newest_rows.fold
    _put(stack, newest_rows, "fold", lambda *a, **k: real(*a, **k)._replace(two_forms="false"))


def _cut_cursors_are_equal(stack: ExitStack) -> None:
    """Of two cursors in one microsecond, or of one double, the later row wins."""
    for module in (newest_rows, load_frame):
        _put(stack, module, "exactly", lambda order, *a, **k: order)


def _text_has_forms(stack: ExitStack) -> None:
    """``cursor_order: text`` is not asked for."""
    real = newest_rows.order_of
    by_value = lambda *a, **k: real(*a, **{**k, "as_text": False})  # noqa: E731
    _put(stack, newest_rows, "order_of", by_value)


def _keys_are_their_first_field(stack: ExitStack) -> None:
    real = newest_rows.NewestRows.__init__

    def init(self: Any, *given: Any) -> None:
        real(self, *given)
        self._keys = self._keys[:1]

    _put(stack, newest_rows.NewestRows, "__init__", init)


def _a_reset_forgets_types(stack: ExitStack) -> None:
    """The table keeps its rows, and what is known of their types goes with the state."""
    real = fuzz_values.reset

    def reset(world: Any, stream: str) -> Any:
        done = real(world, stream)
        for known in world.home.store._all.values():
            known.schemas.clear()
        return done

    _put(stack, fuzz_values, "reset", reset)


def _number_keys_are_doubles(stack: ExitStack) -> None:
    """9007199254740993 and 9007199254740992 are one key."""
    _put(stack, key_types, "exact_keys", lambda schema, key, given=(): schema)
    _keys_are_cut(stack)


def _keys_are_cut(stack: ExitStack) -> None:
    """Keys that differ in nanoseconds, or past a decimal's scale, are one."""
    _put(stack, decode, "inexact_keys", lambda *a: ())


def _keys_follow_the_source(stack: ExitStack) -> None:
    """A key is decoded by today's type, whatever its column holds."""
    _put(stack, key_types, "kept_keys", lambda chosen, *a, **k: chosen)
    _text_follows_the_source("id")(stack)


def _text_follows_the_source(*columns: str) -> Callable[[ExitStack], None]:
    """A text column gets JSON once its property is declared a union ("A1" with its quotes), and
    NULL or another text of a time once it has ``format: date-time``."""
    real = TableTypes.kept

    def kept(*given: Any, **more: Any) -> dict[str, DataType]:
        return {n: t for n, t in real(*given, **more).items() if n not in columns}

    return lambda stack: _put(stack, TableTypes, "kept", kept)


def _misfits_lose_their_text(stack: ExitStack) -> None:
    real = row_decoding.StreamDecoders._made  # pyright: ignore[reportPrivateUsage]
    without = lambda *a, **k: real(*a, **{**k, "texts": False})  # noqa: E731
    _put(stack, row_decoding.StreamDecoders, "_made", without)


def _marks_are_cast(stack: ExitStack) -> None:
    """What the column makes of a mark decides: a text that is no time leaves the row."""
    _put(stack, decode, "judged", lambda mark, given, values, *a: JudgedMarks(values))


def _unknown_marks_pass(stack: ExitStack) -> None:
    real = decode.judged
    _put(stack, decode, "judged", lambda *a: real(*a)._replace(unknown=None))


def _bare_deletes_empty_the_row(stack: ExitStack) -> None:
    """No delete is bare: its key counts as a column of its own."""
    every = lambda load, names: list(names)  # noqa: E731
    for module in (memory_tables, soft_deletes):
        if hasattr(module, "own_columns"):
            _put(stack, module, "own_columns", every)


def _nested_names_begin_again(stack: ExitStack) -> None:
    """``zip_code`` takes over the field of ``zip code``."""
    _put(stack, stream_columns, "with_nested_names", lambda record, known: (record, {}))


def _left_out_is_not_counted(stack: ExitStack) -> None:
    for format in (parquet_tables, delta_tables):
        real = format.merged_result
        _put(stack, format, "merged_result", _without_superseded(real))


def _without_superseded(real: Any) -> Any:
    return lambda *a: msgspec.structs.replace(real(*a), superseded=0)


class TakenOut(NamedTuple):
    """``rules``: one of which a case breaks then; ``first``: the case to begin with; ``key``: only
    cases with a key of this kind count."""

    take_out: Callable[[ExitStack], None]
    rules: set[str]
    first: int = 0
    key: str | None = None


ROW, KEY, TYPE = {"lost", "told"}, {"lost", "doubled", "rejected"}, {"lost", "doubled", "value"}
VALUES_TAKEN_OUT = {
    "38.1 texts by bytes": TakenOut(_all_text_by_bytes, ROW, 3),
    "38.1 other texts": TakenOut(_other_texts_have_an_order, ROW, 3),
    "38.1 offsets": TakenOut(_times_compare_as_text, ROW, 22),
    "38.1 between forms": TakenOut(_forms_are_compared, ROW, 25),
    "38.1 two forms in a load": TakenOut(_two_forms_are_forgotten, ROW, 21),
    "38.1 text byte by byte": TakenOut(_text_has_forms, ROW, 22),
    "38.2 cut cursors": TakenOut(_cut_cursors_are_equal, ROW, 0),
    "38.2 keys of two fields": TakenOut(_keys_are_their_first_field, KEY, 1),
    "38.3 types after a reset": TakenOut(_a_reset_forgets_types, {*KEY, *TYPE}, 4),
    "38.2 numbers beyond 2^53": TakenOut(_number_keys_are_doubles, KEY, 7, "exact"),
    "38.2 decimals past the scale": TakenOut(_keys_are_cut, KEY, 5, "cents"),
    "38.2 nanoseconds": TakenOut(_keys_are_cut, KEY, 0, "time"),
    "38.2 types of keys": TakenOut(_keys_follow_the_source, KEY, 26),
    "38.3 keys in text": TakenOut(_text_follows_the_source("id"), KEY, 39),
    "38.3 cursors in text": TakenOut(_text_follows_the_source("at"), TYPE, 12),
    "38.3 values in text": TakenOut(_text_follows_the_source("w"), TYPE, 4),
    "38.4 text of misfits": TakenOut(_misfits_lose_their_text, {"told"}, 100),
    "38.5 spellings": TakenOut(_marks_are_cast, {*TYPE, "rejected"}, 11),
    "38.5 unknown marks": TakenOut(_unknown_marks_pass, {"rejected"}, 11),
    "38.5 bare deletes": TakenOut(_bare_deletes_empty_the_row, {"lost"}, 76),
    "38.6 nested names": TakenOut(_nested_names_begin_again, {"value"}, 55),
    "38.7 left out": TakenOut(_left_out_is_not_counted, {"told"}, 0),
}
"""A fix -> how it is taken out; ``first`` is the first case that shows it."""
BY_SPARK_TAKEN_OUT = {
    "38.2 cut cursors by Spark": TakenOut(_cut_cursors_are_equal, ROW, 0),
}
"""The same where Spark merges."""
