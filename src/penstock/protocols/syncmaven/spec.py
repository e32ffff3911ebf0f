"""Describes the protocol to the layers above, without loading any of it (``ProtocolSpec``)."""

from typing import Annotated, Literal

from penstock.config.protocol_spec import ProtocolSpec
from penstock.config.sections import Section, key


class DestinationKeys(Section, frozen=True, kw_only=True):
    checkpoint_every: Annotated[
        int | None,
        key("Rows after which a Syncmaven destination ends the stream and reports how many it "
            "took; those are not sent again. Each checkpoint is a new process and a new stream to "
            "it. Default: one, at the end.", literal="positive_int"),
    ] = None  # fmt: skip
    on_failed_rows: Annotated[
        Literal["fail", "isolate", "accept"],
        key("A Syncmaven destination reports that rows failed, not which: the run fails and they "
            "are sent again (`fail`), they are sent again in ever smaller checkpoints until those "
            "that fail alone are rejects (`isolate`), or they count as left out (`accept`)."),
    ] = "fail"  # fmt: skip
    nulls: Annotated[
        Literal["auto", "send", "omit"],
        key("A NULL in a row for a Syncmaven destination: sent as null, left out, or (`auto`) left "
            "out where the stream's row type does not take null."),
    ] = "auto"  # fmt: skip
    parallelism: Annotated[
        int,
        key("Processes of a Syncmaven destination that the rows of a stream are divided among, by "
            "primary key. Only for a destination that does not treat a stream as a whole.",
            literal="positive_int"),
    ] = 1  # fmt: skip
    rows_per_second: Annotated[
        int | None,
        key("The most rows that a Syncmaven destination is sent in a second, over a pipeline's "
            "streams. Default: as many as it takes.", literal="positive_int"),
    ] = None  # fmt: skip


SPEC = ProtocolSpec(
    name="syncmaven",
    destination="a Syncmaven destination",
    roles=("destination",),
    own_names=True,
    registry="npm",
    variables={"SYNCMAVEN_VERSION": "0.0.0"},  # no look for a newer one, no telemetry
    has_streams=True,
    enriches=True,
    keeps_keys=True,
    project_folders=("syncs", "models", "connections"),
    destination_keys=DestinationKeys,
)
