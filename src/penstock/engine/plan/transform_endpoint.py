"""Opens a pipeline's transform connectors and enrichments, and outlines their output columns before
a run.

Moves no record. Neighbours: ``engine.plan.source_endpoint`` and ``destination_endpoint``,
``transforms.chain`` plans with :class:`Outlines`, ``engine.plan.prepare`` puts the result into the
plan.
"""

from collections.abc import Sequence

import msgspec

from penstock.codec.arrow import arrow_type
from penstock.codec.columns import row_schema
from penstock.codec.untyped import pa
from penstock.config.did_you_mean import closest
from penstock.config.home import Home
from penstock.config.pipeline import Enrichment, Pipeline, Transform
from penstock.connectors.reference import parse_ref
from penstock.connectors.resolve import resolve
from penstock.connectors.transform import EnrichmentConnector, TransformConnector
from penstock.engine.plan.endpoint import Endpoint, component_settings, folder_of
from penstock.engine.specs.observer import RunObserver
from penstock.errors import ConfigError, SourceError
from penstock.model.catalog import CheckResult, ConfiguredStream
from penstock.model.types import RowSchema
from penstock.protocols.transforming import EnrichmentUse, TransformRequest
from penstock.store.contract import Store
from penstock.transforms.chain import with_current_names
from penstock.transforms.config_errors import join_errors
from penstock.transforms.contract import TransformJob
from penstock.transforms.open import BUILT_IN, SPARK_SQL, open_transform
from penstock.transforms.spark_sql import queries


class TransformEndpoint(Endpoint[TransformConnector]):
    """A transform connector, or an enrichment, with its configuration. ``index``: its position in
    the list ``key`` of the pipeline. ``place``: its name in the store and the log
    (``transform:0``)."""

    key, word, kind = "transforms", "transform", TransformConnector

    def __init__(
        self,
        pipeline: Pipeline,
        section: Transform | Enrichment,
        index: int,
        home: Home,
        store: Store,
        observer: RunObserver,
    ) -> None:
        self.index, self.place = index, f"{self.word}:{index}"
        where = f"{self.key}[{index}]"
        super().__init__(pipeline, section, self.place, store, observer, _keep_nothing, where)
        try:
            self.connector = resolve(
                self.kind,
                parse_ref(section.use),
                home.connectors,
                log=self.take,
                extra_secrets=sorted(pipeline.secret_values),
                permissions=section.permissions,
                limits=section.limits,
                settings=component_settings(pipeline, section, self.place),
                base=folder_of(section),
                builds=section.install.builds,
                container=section.container,
                constraints=section.install.constraints,
                timeouts=self.timeouts,
                **self.meant,
            )
        except ConfigError as e:
            near = closest(section.use, BUILT_IN)
            meant = f"; did you mean {near!r}?" if near is not None else ""
            message = f"{where}.use: {e.message}{meant}"
            raise ConfigError(message, code=e.code, hint=e.hint) from None

    def check(self) -> None:
        """Checks the configuration against the connector's own schema. Raises ``ConfigError``."""
        self.validate()

    def ask(self) -> CheckResult:
        """Runs the connector's check. Raises ``ConfigError``, ``SourceError``."""
        result = self.connector.check(self.config, self.timeouts)
        return CheckResult(result.succeeded, result.message, end=self.place)


class EnrichmentEndpoint(TransformEndpoint):
    """An enrichment with its configuration."""

    key, word, kind = "enrichments", "enrichment", EnrichmentConnector


def _keep_nothing(new: object) -> None:
    """Does nothing: a transform has no message that changes its configuration."""
    del new


def transforms_of(
    pipeline: Pipeline, home: Home, store: Store, observer: RunObserver
) -> list[TransformEndpoint]:
    """Opens the transform connectors, and validates the built-in transforms. Raises one
    ``ConfigError`` with the problems of all transforms."""
    found: list[TransformEndpoint] = []
    faults: list[ConfigError] = []
    for index, section in enumerate(pipeline.transforms):
        try:
            if section.use not in BUILT_IN:
                found.append(TransformEndpoint(pipeline, section, index, home, store, observer))
            elif section.use != SPARK_SQL:
                open_transform(section.use, section.config, where=f"transforms[{index}]")
        except ConfigError as e:
            faults.append(e)
    for index, section in enumerate(pipeline.enrichments):
        try:
            found.append(EnrichmentEndpoint(pipeline, section, index, home, store, observer))
        except ConfigError as e:
            faults.append(e)
    try:
        queries(pipeline.transforms)
    except ConfigError as e:
        faults.append(e)
    if faults:
        raise join_errors(faults)
    return found


class Outlines:
    """Implements ``transforms.chain.Outline``: runs each transform over one empty batch, under the
    permissions and limits of a run, once per set of columns. ``notes``: failures, for plan and
    report."""

    def __init__(self, ends: Sequence[TransformEndpoint]) -> None:
        self._ends = {e.place: e for e in ends}
        self._known: dict[tuple[str, str, RowSchema], RowSchema | None] = {}
        self.notes: list[str] = []

    def __call__(
        self, job: TransformJob, configured: ConfiguredStream, given: RowSchema
    ) -> RowSchema | None:
        key = (job.place, configured.id.key, given)
        if key not in self._known:
            self._known[key] = self._asked(job, configured, given)
        return self._known[key]

    def _asked(
        self, job: TransformJob, configured: ConfiguredStream, given: RowSchema
    ) -> RowSchema | None:
        end = self._ends[job.place]
        request = TransformRequest(
            config=end.config,
            stream=with_current_names(configured, given),
            scope=configured.id.key,
            enriching=job.enriching,
        )
        columns = pa.schema([pa.field(f.name, arrow_type(f.type)) for f in given.fields])
        try:
            found = end.connector.outline(request, columns)
        except SourceError as e:
            self.notes.append(
                f"{job.where}: it failed on an empty batch of stream {configured.id}, so its "
                f"columns are taken to be its input's: {e.message}"
            )
            return None
        return None if found is None else row_schema(found)


def transform_jobs(
    pipeline: Pipeline, connectors: Sequence[TransformEndpoint], deleted_at: str | None
) -> tuple[TransformJob, ...]:
    """Returns the jobs of the transforms that work on batches, in the pipeline's order, followed by
    those of its enrichments. ``connectors``: the endpoints of transform connectors. ``deleted_at``:
    the property by which the source marks a deleted row."""
    ends = {end.place: end for end in connectors}

    def job(index: int, section: Transform) -> TransformJob:
        end = ends.get(f"transform:{index}")
        plain = TransformJob(
            use=section.use,
            config=section.config if end is None else end.config,
            where=f"transforms[{index}]",
            on_failure=pipeline.destination.on_data_error,
            v4=pipeline.dialect == "rapidbyte-v4",
            limits=section.limits if end is None else None,
        )
        if end is None:
            return plain
        return _run_by(plain, end)

    def enriched(index: int, section: Enrichment) -> TransformJob:
        end = ends[f"enrichment:{index}"]
        plain = TransformJob(
            use=section.use,
            config=end.config,
            where=f"enrichments[{index}]",
            on_failure=pipeline.destination.on_data_error,
            streams=section.streams,
            enriching=EnrichmentUse(
                use=section.use,
                pipeline=pipeline.pipeline,
                options=section.options,
                processes=section.processes,
                ahead=section.ahead,
                on_error=section.on_error,
                columns=section.adds,
                cache_seconds=None if section.cache is None else section.cache.ttl,
                cache_key=() if section.cache is None else section.cache.by,
                kept=() if deleted_at is None else (deleted_at,),
            ),
        )
        return _run_by(plain, end)

    return (
        *(
            job(index, section)
            for index, section in enumerate(pipeline.transforms)
            if section.use != SPARK_SQL
        ),
        *(enriched(index, section) for index, section in enumerate(pipeline.enrichments)),
    )


def _run_by(job: TransformJob, end: TransformEndpoint) -> TransformJob:
    return msgspec.structs.replace(
        job,
        launch=msgspec.to_builtins(end.connector.launch()),
        place=end.place,
        timeouts=end.timeouts,
    )
