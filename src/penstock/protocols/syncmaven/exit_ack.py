"""Decides whether exit code 0 after ``end-stream`` acknowledges a destination's rows.

The page has no ``stream-result``: a destination written from it answers ``end-stream`` by exiting.
The code behind other connectors has one, and also exits with 0 on SIGTERM and on an empty line, so
those must give a result, and so must any destination that has ever given one. Not here: what a
clean end is (``session``, ``ByteChannel.ended_well``), who has given a result (``writer``,
``store.remembered``). Source: the page, Destination flow; reference §1.1, §1.4.
"""

from enum import StrEnum

from penstock.errors import DestinationError
from penstock.model.catalog import StreamId
from penstock.protocols.writing import Acks


class ExitAck(StrEnum):
    """Whether exit code 0 after ``end-stream`` acknowledges the rows."""

    never = "never"  # a result is required
    itself = "itself"  # if it exits by itself
    closed = "closed"  # also if it exits once its input has ended


def exit_ack(acks: Acks, *, by_page: bool, gives_results: bool) -> ExitAck:
    """Decides for one destination. ``by_page``: it answers in the page's dialect.
    ``gives_results``: it has ever given a result."""
    if gives_results or acks is Acks.strict:
        return ExitAck.never
    if by_page:
        return ExitAck.closed if acks is Acks.at_end else ExitAck.itself
    # When its input ends, a program in the code's dialect may exit before it has written
    # everything.
    return ExitAck.itself if acks is Acks.at_end else ExitAck.never


def lacks_result(stream: StreamId) -> DestinationError:
    """Returns why the exit code of a process does not count: another process of the destination has
    given a result meanwhile."""
    return DestinationError(
        f"{stream}: a process of the destination ended with exit code 0 and without the"
        " stream-result that another one gave",
        code="destination.no_result",
        hint="what it was sent counts as not written; see its last output in the log",
        stream=str(stream),
    )
