"""From the ``use`` of a pipeline file's transform to the transform.

Imports no engine: DataFusion is loaded when the first query is opened. Not here: transforms that
are connectors (``protocols.rapidbyte``), which are looked for under every other name.
"""

from collections.abc import Mapping
from typing import Any

from penstock.config.suggest import hint
from penstock.transforms.contract import BatchTransform, OnFailure
from penstock.transforms.settings import faulty

SQL = "transform-sql"
VALIDATE = "transform-validate"
SPARK_SQL = "spark-sql"  # over whole streams: not opened here
BUILT_IN = (SQL, VALIDATE, SPARK_SQL)


def open_transform(
    use: str, config: Mapping[str, Any], *, where: str, on_failure: OnFailure = "dlq"
) -> BatchTransform:
    """``where``: its place in the pipeline file (``transforms[0]``). ``on_failure``: the pipeline's
    ``on_data_error``: what a row that fails a rule becomes. Raises ``ConfigError`` with every fault
    of ``config``; whether it fits a stream is told by ``output``."""
    if use == SQL:
        from penstock.transforms.sql import SqlTransform

        return SqlTransform(config, where=where)
    if use == VALIDATE:
        from penstock.transforms.validate import ValidateTransform

        return ValidateTransform(config, where=where, on_failure=on_failure)
    raise faulty(
        [f"{where}.use: there is no built-in transform {use!r}; {hint(use, BUILT_IN)}"],
        use,
        where,
        advice=f"the built-in transforms are {', '.join(BUILT_IN)}",
    )
