"""Implements ``transform-validate``: checks the rows of each batch against rules.

Columns pass unchanged. By the pipeline's ``on_data_error``, a row that breaks a rule is dropped and
counted (skip), fails the run (fail), or becomes a reject (dlq). Neighbours: ``validate_rules``
reads the configuration, ``validate_checks`` finds the rows that break a rule.
"""

from collections.abc import Mapping, Set
from typing import Any

import pyarrow as pa

from penstock.codec.system_columns import ascending
from penstock.codec.untyped import Array, ChunkedArray, Table
from penstock.codec.untyped import compute as pc
from penstock.config.did_you_mean import hint
from penstock.errors import Defect, SourceError
from penstock.model.types import Field, RowSchema
from penstock.transforms.config_errors import transform_error
from penstock.transforms.contract import OnFailure, RowReject, TransformResult, metric
from penstock.transforms.validate_checks import RuleCheck, build_check
from penstock.transforms.validate_rules import RULE_KINDS, read_rules

_USE = "transform-validate"
_ADVICE = f"config takes rules: a list of {', '.join(RULE_KINDS)}"
_MAX_RULES_SHOWN = 10

FAILURES = "validation_failures_total"
VALID = "validation_rows_valid_total"
INVALID = "validation_rows_invalid_total"


class ValidateTransform:
    """The rules of one entry of ``transforms``. ``where``: its path in the pipeline file. ``v4``:
    see ``validate_checks.build_check``. Raises ``ConfigError`` (``config.transform``) with all
    problems of its config."""

    def __init__(
        self, config: Mapping[str, Any], *, where: str, on_failure: OnFailure, v4: bool = False
    ) -> None:
        self._rules, problems = read_rules(config, f"{where}.config")
        if problems:
            raise transform_error(problems, _USE, where, advice=_ADVICE)
        self._where, self._v4 = where, v4
        self._on_failure: OnFailure = on_failure
        self._checks: list[RuleCheck] | None = None

    @property
    def same_columns(self) -> bool:
        return True

    def keeps(self, columns: Set[str]) -> bool:
        return True

    def output(self, schema: RowSchema) -> RowSchema:
        """Builds the checks for ``schema`` and returns it unchanged. Raises ``ConfigError`` if a
        column is missing or a rule does not fit its type."""
        by_name = {f.name: f for f in schema.fields}
        by_source = {f.source: f for f in schema.fields}
        checks: list[RuleCheck] = []
        problems: list[str] = []
        for rule in self._rules:
            field: Field | None = by_name.get(rule.field) or by_source.get(rule.field)
            if field is None:
                near = hint(rule.field, by_name, "columns")
                problems.append(f"{rule.path}: there is no column '{rule.field}'; {near}")
                continue
            check = build_check(rule, field, v4=self._v4)
            if isinstance(check, RuleCheck):
                checks.append(check)
            else:
                problems.append(check)
        if problems:
            raise transform_error(problems, _USE, self._where, advice=_ADVICE)
        self._checks = checks
        return schema

    def apply(self, batch: Table, deletes: Array | None = None) -> TransformResult:
        """Checks ``batch``. A delete breaks no rule: if it would, it is left out. Raises
        ``SourceError`` (``transform.validation_failed``) if a row breaks a rule and
        ``on_data_error`` is fail."""
        if self._checks is None:
            raise Defect("transform-validate was given a batch before its schema")
        if deletes is not None and pc.any(deletes).as_py():
            return self._around(batch, deletes, self._checks)
        broken: list[tuple[RuleCheck, ChunkedArray, int]] = []
        for check in self._checks:
            failing = check.failing(batch.column(check.field.name))
            count = pc.sum(failing, min_count=0).as_py()
            if count:
                broken.append((check, failing, count))
        if broken and self._on_failure == "fail":
            raise self._failed(broken, batch.num_rows)
        return self._kept(batch, broken)

    def _around(self, batch: Table, deletes: Array, checks: list[RuleCheck]) -> TransformResult:
        """Checks the rows other than deletes by themselves: a delete does not count as a repeated
        value."""
        places = ascending(0, batch.num_rows)
        live, gone = places.filter(pc.invert(deletes)), places.filter(deletes)
        done, dead = self.apply(batch.take(live)), batch.take(gone)
        good: Array = pa.repeat(pa.scalar(True), len(gone))
        for check in checks:
            failing = check.failing(dead.column(check.field.name)).combine_chunks()
            good = pc.and_(good, pc.invert(failing))
        kept = pa.concat_arrays([live.take(done.origin), gone.filter(good)])
        kept = kept.take(pc.sort_indices(kept))
        rejects = [RowReject(live[r.index].as_py(), r.reason, r.field) for r in done.rejects]
        return TransformResult(batch.take(kept), rejects, kept, done.counts)

    def _kept(
        self, batch: Table, broken: list[tuple[RuleCheck, ChunkedArray, int]]
    ) -> TransformResult:
        counts: dict[str, int] = {}
        bad: ChunkedArray = pa.chunked_array([pa.repeat(pa.scalar(False), batch.num_rows)])
        for check, failing, count in broken:
            name = metric(FAILURES, rule=check.rule.kind, field=check.rule.field)
            counts[name] = counts.get(name, 0) + count
            bad = pc.or_(bad, failing)
        good = pc.invert(bad)
        kept = batch.filter(good) if broken else batch
        counts[VALID], counts[INVALID] = kept.num_rows, batch.num_rows - kept.num_rows
        rejects = _rejects(broken) if self._on_failure == "dlq" else []
        return TransformResult(kept, rejects, _row_indexes(good), counts)

    def _failed(self, broken: list[tuple[RuleCheck, ChunkedArray, int]], rows: int) -> SourceError:
        rules = [
            f"{check.rule.kind} on {check.rule.field} ({count} {'row' if count == 1 else 'rows'})"
            for check, _, count in broken
        ]
        if len(rules) > _MAX_RULES_SHOWN:
            more = f"and {len(rules) - _MAX_RULES_SHOWN} more rules"
            rules = [*rules[:_MAX_RULES_SHOWN], more]
        return SourceError(
            f"{_USE}: in a batch of {rows} rows, some fail {', '.join(rules)}",
            code="transform.validation_failed",
            where=self._where,
            hint="destination.on_data_error: dlq keeps such rows as rejects, skip drops them",
            connector={
                "category": "data",
                "code": "VALIDATION_FAILED",
                "failures": [
                    {"rule": check.rule.kind, "field": check.rule.field, "rows": count}
                    for check, _, count in broken
                ],
            },
        )


def _rejects(broken: list[tuple[RuleCheck, ChunkedArray, int]]) -> list[RowReject]:
    """Makes one reject per row: its reason names the broken rules in their order, its field is the
    first rule's."""
    rejects: dict[int, RowReject] = {}
    for check, failing, _ in broken:
        message = f"{check.rule.kind}: {check.message}"
        for index in pc.indices_nonzero(failing).to_pylist():
            before = rejects.get(index)
            if before is None:
                rejects[index] = RowReject(index, message, check.field.source)
            else:
                rejects[index] = RowReject(index, f"{before.reason}; {message}", before.field)
    return [rejects[index] for index in sorted(rejects)]


def _row_indexes(good: ChunkedArray) -> Array:
    return pc.indices_nonzero(good).cast(pa.int64())
