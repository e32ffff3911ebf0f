"""Rapidbyte v4: connectors that are WebAssembly components. ``PACKAGE`` is all that the layers
above use, but for ``lookup`` (where a component lies).

``reading``, ``writing``, ``transforming`` (the roles, as the engine asks for them) with ``reader``
and ``writer`` (their streams), ``answers``, ``catalog``, ``context``, ``run_errors``; ``state``,
``schema``, ``configure``, ``settings`` (what a pipeline says). Beneath them ``source``,
``destination``, ``transform`` (conversations), ``messages`` (the documents), and what is decided
before any runs: ``manifest``, ``permissions``, ``overrides``, ``retries``. From the outside in:
``asking`` and ``conversation`` with ``running``, ``patience``, ``stage``, ``verdict`` (threads and
queues), ``lifecycle`` (open to close), ``host`` (the 19 functions) with ``frames``,
``pipe``, ``squeeze``, ``ipc``, ``narrow``, ``keys``, ``metrics``, ``sockets``, ``network``;
``binding``, ``adapter``, ``packing``, ``records`` (how values cross). The interface itself is
``wit/rapidbyte-connector.wit``.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from penstock.protocols.rapidbyte.package import PACKAGE

__all__ = ["PACKAGE"]


def __getattr__(name: str) -> Any:
    """wasmtime takes a tenth of a second to import; whoever looks a file up does not need it."""
    if name != "PACKAGE":
        raise AttributeError(name)
    from penstock.protocols.rapidbyte.package import PACKAGE

    return PACKAGE
