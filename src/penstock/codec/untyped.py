"""Names PyArrow and its types, which have no type information, so that signatures can name them.

All are ``Any``. The first use of a name imports the modules ``pa`` and ``compute``: a command that
moves no rows does without them (a tenth of its processor time)."""

from importlib import import_module
from typing import Any

Array = Any  # pyarrow.Array
ArrowType = Any  # pyarrow.DataType
ArrowField = Any  # pyarrow.Field
ArrowSchema = Any  # pyarrow.Schema
ChunkedArray = Any  # pyarrow.ChunkedArray
Table = Any  # pyarrow.Table


class _Module:
    """A module that is imported at the first access to one of its names; each name is looked up
    once."""

    def __init__(self, name: str) -> None:
        self._module = name

    def __getattr__(self, name: str) -> Any:
        found = getattr(import_module(self._module), name)
        setattr(self, name, found)
        return found


pa: Any = _Module("pyarrow")
compute: Any = _Module("pyarrow.compute")
