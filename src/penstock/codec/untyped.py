"""Names PyArrow's types, which have no type information, so that signatures can name them.

All are ``Any``; also ``compute``, the module whose functions a type checker cannot see.
"""

from typing import Any

import pyarrow.compute as _compute

Array = Any  # pyarrow.Array
ArrowType = Any  # pyarrow.DataType
ArrowField = Any  # pyarrow.Field
ArrowSchema = Any  # pyarrow.Schema
ChunkedArray = Any  # pyarrow.ChunkedArray
Table = Any  # pyarrow.Table

compute: Any = _compute
