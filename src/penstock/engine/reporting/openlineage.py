"""Makes OpenLineage events of a run and sends them: START, then COMPLETE, FAIL or ABORT, with what
was read and written.

The library's own environment variables and files configure it. A run's id is the UUID of the 128
bits in Penstock's own id, with the version and variant bits of a UUID of version 7. Not here:
whether it is requested, its bounded time (``engine.reporting.telemetry``). Source:
https://openlineage.io/spec/2-0-2/OpenLineage.json.
"""

import os
import uuid
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

from openlineage.client import OpenLineageClient
from openlineage.client.event_v2 import (
    InputDataset,
    Job,
    OutputDataset,
    Run,
    RunEvent,
    RunState,
)
from openlineage.client.facet_v2 import (
    InputDatasetFacet,
    OutputDatasetFacet,
    error_message_run,
    input_statistics_input_dataset,
    job_type_job,
    output_statistics_output_dataset,
    processing_engine_run,
    schema_dataset,
    tags_run,
)

from penstock.config.pipeline import Pipeline
from penstock.connectors.reference import RefKind, parse_ref
from penstock.connectors.same_connector import shown
from penstock.engine.reporting.run_end import RunEnd
from penstock.engine.specs.plan import PlannedStream
from penstock.errors import ConfigError
from penstock.model.catalog import StreamId
from penstock.model.report import RunStatus, StreamReport
from penstock.model.type_words import type_text
from penstock.model.types import Field, Kind, RowSchema

_PRODUCER = "urn:penstock"
_Facet = TypeVar("_Facet")
_DIGITS = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_STATES: dict[RunStatus, RunState] = {
    "succeeded": RunState.COMPLETE,
    "partial": RunState.FAIL,
    "failed": RunState.FAIL,
    "cancelled": RunState.ABORT,
}


class Lineage:
    """The events of one run."""

    def __init__(self, pipeline: Pipeline) -> None:
        self._pipeline = pipeline
        self._client: OpenLineageClient | None = None

    def start(
        self,
        run: str,
        began: float,
        planned: Mapping[StreamId, PlannedStream],
        into: Mapping[StreamId, str],
    ) -> None:
        """Sends START. ``into``: the location of each stream's rows. Raises what the library
        raises."""
        inputs, outputs = self._datasets(planned, into, {})
        self._emit(RunState.START, run, began, inputs, outputs)

    def end(self, end: RunEnd) -> None:
        """Sends the last event. Raises what the library raises."""
        streams = end.report.streams if end.report is not None else []
        lines = {StreamId(s.namespace, s.name): s for s in streams}
        into = {key: at for key, s in lines.items() if (at := s.table or s.target) is not None}
        inputs, outputs = self._datasets(end.planned, into, lines)
        self._emit(_STATES[end.status], end.run, end.ended, inputs, outputs, end.error)

    def close(self) -> None:
        """Closes the transport; a buffering one sends its remaining events."""
        if self._client is not None:
            self._client.close()

    def _emit(
        self,
        state: RunState,
        run: str,
        at: float,
        inputs: list[InputDataset],
        outputs: list[OutputDataset],
        error: str | None = None,
    ) -> None:
        if self._client is None:
            self._client = OpenLineageClient()
        version = metadata.version("penstock")
        facets: dict[str, Any] = {
            "processing_engine": _ours(
                processing_engine_run.ProcessingEngineRunFacet, version=version, name="penstock"
            ),
            "tags": _ours(
                tags_run.TagsRunFacet, tags=[tags_run.TagsRunFacetFields("run", run, "PENSTOCK")]
            ),
        }
        if error is not None:
            facets["errorMessage"] = _ours(
                error_message_run.ErrorMessageRunFacet, message=error, programmingLanguage="python"
            )
        kind = _ours(
            job_type_job.JobTypeJobFacet,
            processingType="BATCH",
            integration="PENSTOCK",
            jobType="PIPELINE",
        )
        job = Job(
            os.environ.get("OPENLINEAGE_NAMESPACE") or "default",
            self._pipeline.pipeline,
            {"jobType": kind},
        )
        self._client.emit(
            RunEvent(
                eventTime=datetime.fromtimestamp(at, UTC).isoformat(),
                producer=_PRODUCER,
                run=Run(uuid_of(run), facets),
                job=job,
                eventType=state,
                inputs=inputs,
                outputs=outputs,
            )
        )

    def _datasets(
        self,
        planned: Mapping[StreamId, PlannedStream],
        into: Mapping[StreamId, str],
        lines: Mapping[StreamId, StreamReport],
    ) -> tuple[list[InputDataset], list[OutputDataset]]:
        source = _system(self._pipeline.source.use)
        inputs: list[InputDataset] = []
        outputs: list[OutputDataset] = []
        for stream in sorted(planned.keys() | into.keys(), key=lambda s: s.key):
            plan, line = planned.get(stream), lines.get(stream)
            read: dict[str, InputDatasetFacet] = {}
            wrote: dict[str, OutputDatasetFacet] = {}
            if line is not None:
                read["inputStatistics"] = _ours(
                    input_statistics_input_dataset.InputStatisticsInputDatasetFacet,
                    rowCount=line.read,
                )
                wrote["outputStatistics"] = _ours(
                    output_statistics_output_dataset.OutputStatisticsOutputDatasetFacet,
                    rowCount=line.written,
                    size=line.bytes,
                )
            of_input = _schema_facet(None if plan is None else plan.given or plan.schema, True)
            inputs.append(InputDataset(source, str(stream), facets=of_input, inputFacets=read))
            if stream in into:
                namespace, name = _place(self._pipeline.destination.use, into[stream])
                of_output = _schema_facet(None if plan is None else plan.schema, False)
                outputs.append(OutputDataset(namespace, name, facets=of_output, outputFacets=wrote))
        return inputs, outputs


def uuid_of(run: str) -> str:
    """Returns the UUID of a run's id (a ULID)."""
    number = 0
    for letter in run:
        number = number << 5 | _DIGITS.index(letter)
    number = number & ~(0xF << 76) | 7 << 76
    return str(uuid.UUID(int=number & ~(0b11 << 62) | 0b10 << 62))


def _ours(facet: Callable[..., _Facet], **about: Any) -> _Facet:
    """Returns a facet that shows who made it."""
    return facet(**about, producer=_PRODUCER)


def _schema_facet(schema: RowSchema | None, at_source: bool) -> dict[str, Any]:
    """Returns the facet of a schema. ``at_source``: with the properties' original names."""
    if schema is None:
        return {}
    fields = _fields(schema.fields, at_source)
    return {"schema": _ours(schema_dataset.SchemaDatasetFacet, fields=fields)}


def _fields(
    fields: Iterable[Field], at_source: bool
) -> list[schema_dataset.SchemaDatasetFacetFields]:
    return [
        schema_dataset.SchemaDatasetFacetFields(
            name=field.source if at_source else field.name,
            type=field.type.kind.value if field.type.fields else type_text(field.type),
            ordinal_position=number,
            fields=_fields(field.type.fields, at_source) if field.type.kind is Kind.struct else [],
        )
        for number, field in enumerate(fields, 1)
    ]


def _system(use: str) -> str:
    """Returns the namespace of a connector's datasets: the connector without its version, and
    without the words of its command, which may hold a secret."""
    try:
        ref = parse_ref(use)
    except ConfigError:  # an unknown connector: the run reports it
        return shown(use)
    if ref.kind is RefKind.query or ref.kind is RefKind.table:
        return str(ref.protocol or ref.format)
    return f"{ref.protocol}:{ref.name}" if ref.name else shown(use)


def _place(use: str, location: str) -> tuple[str, str]:
    """Returns namespace and name of a dataset, for files as in
    https://openlineage.io/docs/spec/naming; for connectors and catalogs the connector and the name
    that they know."""
    system = _system(use)
    if "://" in location:
        parts = urlsplit(location)
        user, at, host = parts.netloc.rpartition("@")
        netloc = host if ":" in user else user + at + host  # abfss: container@account
        return f"{parts.scheme}://{netloc}", parts.path.lstrip("/") or "/"
    if ":" not in system and os.sep in location:
        return "file", str(Path(location).absolute())
    return system, location
