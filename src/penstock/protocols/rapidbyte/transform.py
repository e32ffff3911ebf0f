"""A transform's conversation: check, and one stream at a time from frames to frames.

Frames go in and come out through bounded queues; how many come out for one that goes in is the
connector's business. Whoever iterates lands what comes as parts, so that no retry asks twice.
Source: the protocol, section 3.3.
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
from penstock.protocols.rapidbyte.patience import Within
from penstock.protocols.rapidbyte.squeeze import Bytes
from penstock.protocols.rapidbyte.stage import Stage
from penstock.protocols.rapidbyte.told import Logged, Told


def check(
    stage: Stage, log: Callable[[Logged], None], within: Within | None = None
) -> ValidationReport:
    """Raises ``SourceError``; ``failed`` and ``warning`` are answers, not errors."""
    return validated(stage, log, within)


def apply(
    stage: Stage, context: StreamContext, feed: Iterable[Bytes], *, dry_run: bool = False
) -> Iterator[Told]:
    """As ``destination.write``, with the frames that it emits among what is yielded."""
    limit = (context.limits or StreamLimits()).max_batch_bytes
    request = RunRequest(phase="transform", context=context, dry_run=dry_run)
    return converse(stage, request, fitting(feed, limit))
