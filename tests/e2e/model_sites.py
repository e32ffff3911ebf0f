"""Pipelines whose source is a query of Spark SQL over a Parquet file that tests rewrite."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pipelines import NAME, Ran, Site

from penstock.protocols import load as load_protocol


class ModelSite(Site):
    """A pipeline from a query of Spark SQL."""

    def __init__(self, folder: Path, format: str = "parquet") -> None:
        super().__init__(folder, format)
        self.users = folder / "users.parquet"

    def give(self, *rows: dict[str, Any], schema: list[tuple[str, str]] | None = None) -> None:
        """What the query ``{users}`` reads from now on. ``schema``: where the rows do not tell."""
        types = None if schema is None else pa.schema(schema)
        pq.write_table(pa.Table.from_pylist(list(rows), types), self.users)

    def read(self, query: str, **parts: Any) -> Ran:
        text = query.replace("{users}", f"parquet.`{self.users}`")
        return self.run(use=f"spark:{text}", **parts)

    def described(self) -> dict[str, Any]:
        with self.store() as store:
            return load_protocol("spark").state.describe(store.states(NAME))
