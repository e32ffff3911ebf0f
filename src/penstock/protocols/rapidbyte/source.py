"""A source's conversation: check, discover, and one stream at a time read into frames.

What is yielded is ``told``'s, in the order in which the connector said it, so that a checkpoint
covers exactly the frames before it. Not here: frames into columns and rows (the lane's business).
Source: the protocol, section 3.1.
"""

from collections.abc import Callable, Iterator

from penstock.protocols.rapidbyte.conversation import Stage, ask, converse, validated
from penstock.protocols.rapidbyte.messages import (
    Catalog,
    RunRequest,
    StreamContext,
    ValidationReport,
)
from penstock.protocols.rapidbyte.told import Logged, Told


def check(
    stage: Stage, log: Callable[[Logged], None], seconds: float | None = None
) -> ValidationReport:
    """Raises ``SourceError``; ``failed`` and ``warning`` are answers, not errors."""
    return validated(stage, log, seconds)


def discover(stage: Stage, log: Callable[[Logged], None], seconds: float | None = None) -> Catalog:
    """Raises ``SourceError``."""
    return ask(stage, lambda session: session.discover(), log, seconds)


def read(stage: Stage, context: StreamContext, tick: float | None = None) -> Iterator[Told]:
    """The last item is ``Ended``, also after a failure. Closing the generator ends the connector:
    its next emit is refused, and what was yielded stands. ``tick``: see ``converse``."""
    return converse(stage, RunRequest(phase="read", context=context), tick=tick)
