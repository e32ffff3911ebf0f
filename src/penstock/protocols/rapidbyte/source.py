"""A source's conversation: check, discover, and one stream at a time read into frames.

What is yielded is ``told``'s, in the order in which the connector said it, so that a checkpoint
covers exactly the frames before it. Not here: frames into columns and rows (the lane's business).
Source: the protocol, section 3.1.
"""

from collections.abc import Callable, Iterator

from penstock.protocols.rapidbyte.asking import ask, validated
from penstock.protocols.rapidbyte.conversation import converse
from penstock.protocols.rapidbyte.messages import (
    Catalog,
    RunRequest,
    StreamContext,
    ValidationReport,
)
from penstock.protocols.rapidbyte.patience import LONGEST_DISCOVER, Within
from penstock.protocols.rapidbyte.stage import Stage
from penstock.protocols.rapidbyte.told import Logged, Told


def check(
    stage: Stage, log: Callable[[Logged], None], within: Within | None = None
) -> ValidationReport:
    """Raises ``SourceError``; ``failed`` and ``warning`` are answers, not errors."""
    return validated(stage, log, within)


def discover(stage: Stage, log: Callable[[Logged], None], within: Within | None = None) -> Catalog:
    """Raises ``SourceError``."""
    bound = within or Within(LONGEST_DISCOVER)
    return ask(stage, lambda session: session.discover(), log, bound)


def read(
    stage: Stage,
    context: StreamContext,
    tick: float | None = None,
    *,
    dry_run: bool = False,
    max_records: int | None = None,
) -> Iterator[Told]:
    """The last item is ``Ended``, also after a failure. Closing the generator ends the connector:
    its next emit is refused, and what was yielded stands. ``tick``: see ``converse``."""
    request = RunRequest(phase="read", context=context, dry_run=dry_run, max_records=max_records)
    return converse(stage, request, tick=tick)
