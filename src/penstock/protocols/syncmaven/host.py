"""Says where a connector's processes run: each phase of a conversation is a process of its own.

A connector may exit after each answer (reference §1.5), so that one process a phase is the only
rule that holds for all. Not here: what a phase says (``probe``, ``session``).
"""

from collections.abc import Callable, Mapping

from penstock.runtimes.contract import Runtime

RuntimeIn = Callable[[Mapping[str, str]], Runtime]
"""The runtime with these variables in the environment of what it starts."""


class Host:
    """``runtime_in``: makes the runtime for a phase."""

    def __init__(self, runtime_in: RuntimeIn) -> None:
        self._runtime_in = runtime_in

    def runtime(self, environment: Mapping[str, str] | None = None) -> Runtime:
        return self._runtime_in(environment or {})
