"""Names the table that an unnamed query gets at a destination connector: the pipeline's name, where
a user chose one.

The stream of such a query is ``query`` in every pipeline, so two of them would write to one table
of the destination. Pipelines that ran before keep that name there; the store has the name of each
pipeline. Neighbours: ``destination_endpoint`` calls, ``prepare`` stores the answer.
"""

import re
from pathlib import Path

import msgspec

from penstock.config.command_line import pipeline_name
from penstock.config.pipeline import Pipeline
from penstock.connectors.reference import RefKind, parse_ref
from penstock.errors import ConfigError
from penstock.model.catalog import StreamId
from penstock.store.contract import Store
from penstock.transforms.spark_model import NAME, is_unnamed

QUERY = StreamId(None, NAME)
KEPT_NAME = (
    f"the table at the destination is called {NAME}, as in the runs before; that of a new pipeline"
    " has the pipeline's name. With another one, `config: {stream: NAME}` of the source, the stream"
    " begins again"
)


class ModelTarget(msgspec.Struct, frozen=True):
    """The name at the destination of the query's stream. ``note``: shown once, in the run that
    stores the name first."""

    name: str
    note: str | None = None

    def of(self, stream: StreamId) -> StreamId:
        """Returns the stream under which a connector gets this one, before its prefix."""
        return StreamId(None, self.name) if stream == QUERY else stream


def model_target(pipeline: Pipeline, store: Store) -> ModelTarget | None:
    """Returns the name of an unnamed query's table; None: the source is no unnamed query, or the
    user did not name the pipeline."""
    ref = parse_ref(pipeline.source.use)
    if ref.kind is not RefKind.query or pipeline.source.config.get("stream"):
        return None
    try:
        if not is_unnamed(ref.target or "", Path.cwd()):
            return None
    except ConfigError:
        return None  # a fault of the query, which the source reports
    had = store.remembered(pipeline.pipeline, ()).model_name
    if had is not None:
        return ModelTarget(had)
    if QUERY in store.known_streams(pipeline.pipeline):
        return ModelTarget(NAME, KEPT_NAME)
    if pipeline.pipeline == pipeline_name(pipeline.source, pipeline.destination):
        return None
    return ModelTarget(re.sub(r"\W+", "_", pipeline.pipeline).strip("_") or NAME)
