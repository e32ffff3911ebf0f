"""A destination's conversation: check, and one stream at a time written from frames.

A frame larger than the stream's ``max_batch_bytes`` is cut before it, because a connector refuses
it. A feed that fails reaches the connector as an error of ``next-batch``, so that it rolls back;
only a feed that ended well ends its stream. Source: the protocol, sections 3.2 and 7.
"""

from collections.abc import Callable, Iterable, Iterator

from penstock.protocols.rapidbyte.asking import validated
from penstock.protocols.rapidbyte.conversation import converse
from penstock.protocols.rapidbyte.ipc import fitting
from penstock.protocols.rapidbyte.messages import (
    RunRequest,
    StreamContext,
    StreamLimits,
    ValidationReport,
)
from penstock.protocols.rapidbyte.narrow import narrowed
from penstock.protocols.rapidbyte.patience import Within
from penstock.protocols.rapidbyte.squeeze import Bytes
from penstock.protocols.rapidbyte.stage import Stage
from penstock.protocols.rapidbyte.told import Logged, Told


def check(
    stage: Stage, log: Callable[[Logged], None], within: Within | None = None
) -> ValidationReport:
    """Raises ``DestinationError``; ``failed`` and ``warning`` are answers, not errors."""
    return validated(stage, log, within)


def write(
    stage: Stage, context: StreamContext, feed: Iterable[Bytes], *, narrow: bool = False
) -> Iterator[Told]:
    """``narrow``: cast the types that v4's own destination refuses (``narrow``).
    ``feed``: complete Arrow IPC streams, drawn from another thread as the connector asks. What
    is yielded are its checkpoints, logs and dead letters; the last item is ``Ended``. Closing the
    generator ends the connector."""
    limit = (context.limits or StreamLimits()).max_batch_bytes
    given = narrowed(feed) if narrow else feed
    return converse(stage, RunRequest(phase="write", context=context), fitting(given, limit))
