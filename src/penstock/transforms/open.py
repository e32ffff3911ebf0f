"""Makes a built-in batch transform from the ``use`` and ``config`` of a pipeline file's entry.

Loads DataFusion only when the first query is opened. Not here: transforms that are connectors
(``protocols.rapidbyte``), to which every other name of ``use`` refers.
"""

from collections.abc import Callable, Mapping
from typing import Any

from penstock.config.did_you_mean import hint
from penstock.config.removable_packages import need
from penstock.config.sections import Limits
from penstock.transforms.config_errors import transform_error
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
    v4: bool = False,
    limits: Limits | None = None,
    tick: Callable[[], None] = lambda: None,
) -> BatchTransform:
    """Makes the transform ``use``. ``where``: its path in the pipeline file (``transforms[0]``).
    ``on_failure``: the pipeline's ``on_data_error``, applied to a row that breaks a rule. ``v4``:
    the file is Rapidbyte v4's, whose rules for NULL and repeated values hold.
    ``limits``: of a query, for each batch. ``tick``: called every second while a query runs; may
    raise to give it up. Raises ``ConfigError`` with every fault of ``config``;
    ``BatchTransform.output`` checks whether the transform fits a stream."""
    if use == SQL:
        need("datafusion")
        from penstock.transforms.sql import SqlTransform
        from penstock.transforms.sql_bounds import QueryBounds

        limit_values = {} if limits is None else limits.configured()
        bounds = QueryBounds(
            memory=limit_values.get("max_memory", QueryBounds().memory),
            seconds=limit_values.get("timeout_seconds", QueryBounds().seconds),
        )
        return SqlTransform(config, where=where, bounds=bounds, tick=tick)
    if use == VALIDATE:
        from penstock.transforms.validate import ValidateTransform

        return ValidateTransform(config, where=where, on_failure=on_failure, v4=v4)
    raise transform_error(
        [f"{where}.use: there is no built-in transform {use!r}; {hint(use, BUILT_IN)}"],
        use,
        where,
        advice=f"the built-in transforms are {', '.join(BUILT_IN)}",
    )
