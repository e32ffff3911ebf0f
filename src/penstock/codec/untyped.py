"""Names for what PyArrow has no type information for, so that signatures can say what they mean.

Types only, and ``compute``, whose functions a checker cannot see.
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
