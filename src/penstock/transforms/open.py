"""From the ``use`` of a pipeline file's transform to the transform.

Imports no engine: DataFusion is loaded when the first query is opened. Not here: transforms that
are connectors (``protocols.rapidbyte``), which are looked for under every other name.
"""

from collections.abc import Callable, Mapping
from typing import Any

from penstock.config.did_you_mean import hint
from penstock.config.sections import Limits
from penstock.transforms.config_errors import faulty
from penstock.transforms.contract import BatchTransform, OnFailure

SQL = "transform-sql"
VALIDATE = "transform-validate"
SPARK_SQL = "spark-sql"  # over whole streams: not opened here
BUILT_IN = (SQL, VALIDATE, SPARK_SQL)


def open_transform(
    use: str,
    config: Mapping[str, Any],
    *,
    where: str,
    on_failure: OnFailure = "dlq",
    limits: Limits | None = None,
    tick: Callable[[], None] = lambda: None,
) -> BatchTransform:
    """``where``: its place in the pipeline file (``transforms[0]``). ``on_failure``: the pipeline's
    ``on_data_error``: what a row that fails a rule becomes. ``limits``: of a query, for each batch.
    ``tick``: called every second while a query runs; may raise to give it up. Raises
    ``ConfigError`` with every fault of ``config``; whether it fits a stream is told by
    ``output``."""
    if use == SQL:
        from penstock.transforms.sql import SqlTransform
        from penstock.transforms.sql_bounds import QueryBounds

        asked = {} if limits is None else limits.asked()
        bounds = QueryBounds(
            memory=asked.get("max_memory", QueryBounds().memory),
            seconds=asked.get("timeout_seconds", QueryBounds().seconds),
        )
        return SqlTransform(config, where=where, bounds=bounds, tick=tick)
    if use == VALIDATE:
        from penstock.transforms.validate import ValidateTransform

        return ValidateTransform(config, where=where, on_failure=on_failure)
    raise faulty(
        [f"{where}.use: there is no built-in transform {use!r}; {hint(use, BUILT_IN)}"],
        use,
        where,
        advice=f"the built-in transforms are {', '.join(BUILT_IN)}",
    )
