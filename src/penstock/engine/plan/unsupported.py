"""Finds the settings of a pipeline that this version does not support or cannot enforce, one
sentence each: they are refused, never ignored (L10).

Starts no connector. Neighbours: ``engine.plan.prepare`` raises the result,
``engine.inspect.plan_check`` lists it.
"""

from collections.abc import Iterable
from typing import Any

from penstock.config.pipeline import ConnectorSection, Pipeline, Transform
from penstock.config.protocol_spec import specs
from penstock.config.sections import ContainerSettings, Permissions
from penstock.connectors.reference import ConnectorRef, RefKind, parse_ref
from penstock.engine.plan.destination import DestinationEnd
from penstock.errors import ConfigError
from penstock.runtimes import limits as process_limits
from penstock.runtimes.container import restrictions
from penstock.spark.session import choose_master, is_cluster, is_remote, setting
from penstock.transforms.open import BUILT_IN, SPARK_SQL, SQL

_PROCESSES = (RefKind.path, RefKind.command, RefKind.package)


def refused(pipeline: Pipeline, place: DestinationEnd) -> list[str]:
    """Returns a problem for each key and combination that this version does not support."""
    return [
        *_unsupported(pipeline, place),
        *_built_in(pipeline),
        *_unprotected(pipeline),
        *_keys_unreachable(pipeline),
    ]


def permissions_asked(pipeline: Pipeline) -> tuple[dict[str, Any], dict[str, Any], list[str]]:
    """Returns (permissions, limits, problems); permissions and limits by endpoint, as far as the
    user narrowed them. A permission or limit that cannot be enforced on a process of this machine
    is a problem (L10)."""
    permissions: dict[str, Any] = {}
    limits: dict[str, Any] = {}
    problems: list[str] = []
    sections: list[tuple[str, ConnectorSection]] = [("source", pipeline.source)]
    sections += (
        (f"transform:{index}", section) for index, section in enumerate(pipeline.transforms)
    )
    sections += (
        (f"enrichment:{index}", section) for index, section in enumerate(pipeline.enrichments)
    )
    sections.append(("destination", pipeline.destination))
    for end, section in sections:
        if isinstance(section, Transform) and section.use in BUILT_IN:
            if section.use == SQL and section.limits and (bounds := section.limits.configured()):
                limits[end] = bounds
            continue  # see _built_in
        if section.permissions and (asked := section.permissions.configured()):
            permissions[end] = {name: list(allowed) for name, allowed in asked.items()}
        network = section.permissions.network if section.permissions else None
        if network is not None and network.allow_private is not None:
            permissions.setdefault(end, {})["network.allow_private"] = network.allow_private
        if section.limits and (bounds := section.limits.configured()):
            limits[end] = bounds
        problems += [f"{end}.{p}" for p in _unenforced(section)]
    table = parse_ref(pipeline.destination.use).kind is RefKind.table
    fails = pipeline.destination.schema_evolution.nullability_change == "fail"
    if table and fails and _speaks_lines(pipeline.source.use) is not None:
        problems.append(
            "destination.schema_evolution.nullability_change: fail cannot be carried out: the "
            "source's records are JSON, which does not define which columns may be null"
        )
    return permissions, limits, problems


def _built_in(pipeline: Pipeline) -> list[str]:
    """Returns problems for permissions and limits of built-in transforms, which nothing enforces. A
    built-in transform other than Spark SQL accesses nothing, so it needs no permission. Limits of a
    version 4 file are not refused, since such a file must run (:func:`not_enforced`)."""
    problems: list[str] = []
    for index, connector in enumerate(pipeline.transforms):
        if connector.use not in BUILT_IN:
            continue
        reaches = connector.permissions if connector.use == SPARK_SQL else None
        keys = [f"permissions.{k}" for k in (reaches.configured() if reaches else ())]
        keys += [
            f"limits.{k}" for k in _unenforced_limits(connector) if pipeline.dialect == "penstock"
        ]
        keys += ["assume_manifest"] if connector.assume_manifest is not None else []
        where, instead = (
            ("Spark", "bound Spark with the `spark` block")
            if connector.use == SPARK_SQL
            else ("Penstock, next to the source", "use a transform that is a WebAssembly component")
        )
        problems += [
            f"transforms[{index}].{key} cannot be enforced on {connector.use}, which runs inside "
            f"{where}: remove the key, or {instead}"
            for key in keys
        ]
    return problems


def not_enforced(pipeline: Pipeline) -> list[str]:
    """Returns a note, for plan and report, for each limit in a version 4 file that is not
    enforced."""
    return [
        f"transforms[{index}].limits.{key} is not held: {transform.use} runs inside Penstock"
        for index, transform in enumerate(pipeline.transforms)
        if pipeline.dialect != "penstock" and transform.use in BUILT_IN
        for key in _unenforced_limits(transform)
    ]


def _unenforced_limits(transform: Transform) -> Iterable[str]:
    """Returns the transform's limits that are not enforced. ``transform-sql`` enforces its memory
    and time, batch by batch."""
    enforced = ("max_memory", "timeout_seconds") if transform.use == SQL else ()
    return [
        name
        for name in (transform.limits.configured() if transform.limits else ())
        if name not in enforced
    ]


def _unenforced(connector: ConnectorSection) -> list[str]:
    """Returns what cannot be enforced on a process, or a container, of this machine."""
    ref = _speaks_lines(connector.use)
    if ref is None:
        return []
    if ref.kind is RefKind.image:
        return restrictions.unenforceable(
            connector.permissions, connector.limits, connector.container
        )
    return process_limits.unenforceable(connector.permissions, connector.limits)


def _speaks_lines(use: str) -> ConnectorRef | None:
    """Returns a connector that runs as a process or a container; None for any other, and for a
    reference that cannot be parsed, which is refused elsewhere."""
    try:
        ref = parse_ref(use)
    except ConfigError:
        return None
    stranger = ref.protocol is None or ref.kind in (RefKind.component, RefKind.query)
    return None if stranger else ref


def _is_query(use: str) -> bool:
    return parse_ref(use).kind is RefKind.query


def _keys_unreachable(pipeline: Pipeline) -> list[str]:
    """Returns a problem where connectors would keep their keys in a store that the workers of a
    cluster cannot reach."""
    remote = is_remote(choose_master(pipeline.spark.master, 1, 1))
    keepers = [where for where, connector in _connectors(pipeline) if _keeps_keys(connector)]
    if not remote or pipeline.state.backend == "postgres" or not keepers:
        return []
    return [
        f"{', '.join(keepers)} may keep keys of its own in the state store, which every worker of a"
        " cluster must reach: set state.backend: postgres"
    ]


def _unprotected(pipeline: Pipeline) -> list[str]:
    """Returns a problem for a cluster without authentication: anybody who reaches its ports can
    read the data of tasks, and have its processes run code. All users of this machine can reach a
    cluster on it."""
    master = choose_master(pipeline.spark.master, 1, 1)
    secured = setting(pipeline.spark.conf, "spark.authenticate") == "true"
    if not is_cluster(master) or secured or pipeline.spark.allow_unencrypted:
        return []
    return [
        f"the Spark master {master} would run connectors and carry their rows without "
        "spark.authenticate: turn that on in spark.conf, or set spark.allow_unencrypted: true"
    ]


def _of_tables(pipeline: Pipeline, place: DestinationEnd) -> dict[str, bool]:
    """Returns the keys that apply to tables only, and whether the pipeline sets them for a
    connector. A component gets ``schema_evolution``."""
    section = pipeline.destination
    default = type(section)(use=section.use)
    if place.has_tables or pipeline.dialect != "penstock":
        return {}
    return {
        f"destination.{name} on a destination connector": (
            getattr(section, name) != getattr(default, name)
        )
        for name in ("deletes", "schema_evolution", "metadata_columns")
        if name != "schema_evolution" or parse_ref(section.use).kind is not RefKind.component
    }


def _unsupported(pipeline: Pipeline, place: DestinationEnd) -> list[str]:
    """Returns problems for keys that are parsed but not supported."""
    destination, connector = pipeline.destination, not place.has_tables
    asked = {
        "destination.stream": destination.stream is not None and not _has_streams(destination),
        "destination.options": bool(destination.options) and not _has_streams(destination),
        "destination.mapping": bool(destination.mapping) and not _has_streams(destination),
        **{
            f"destination.permissions.{name}": not connector
            for name in _named(destination.permissions)
        },
        **{
            f"destination.limits.{name}": not connector
            for name in (destination.limits.configured() if destination.limits else ())
        },
        "source.permissions of a query, which Spark runs as yourself": (
            _is_query(pipeline.source.use) and pipeline.source.permissions is not None
        ),
        "source.limits of a query (bound Spark with the `spark` block)": (
            _is_query(pipeline.source.use) and pipeline.source.limits is not None
        ),
        **_of_tables(pipeline, place),
        **{
            f"{where}.assume_manifest on a connector that is not a component": (
                connector.assume_manifest is not None
                and parse_ref(connector.use).kind is not RefKind.component
            )
            for where, connector in _connectors(pipeline)
        },
        **{
            f"{where}.container on a connector that is not a container image": (
                connector.container != ContainerSettings()
                and parse_ref(connector.use).kind is not RefKind.image
            )
            for where, connector in _connectors(pipeline)
        },
        **{
            f"{where}.folder on a connector that is not a process of this machine": (
                connector.folder not in (None, pipeline.place and pipeline.place.folder)
                and parse_ref(connector.use).kind not in _PROCESSES
            )
            for where, connector in _connectors(pipeline)
        },
        "resources, which only components get, without a component": (
            pipeline.resources is not None
            and pipeline.dialect == "penstock"
            and not _has_component(pipeline)
        ),
    }
    return [f"{key} cannot be carried out yet" for key, needed in asked.items() if needed]


def _connectors(pipeline: Pipeline) -> list[tuple[str, ConnectorSection]]:
    return [
        ("source", pipeline.source),
        *(
            (f"transforms[{index}]", connector)
            for index, connector in enumerate(pipeline.transforms)
            if connector.use not in BUILT_IN
        ),
        *((f"enrichments[{index}]", item) for index, item in enumerate(pipeline.enrichments)),
        ("destination", pipeline.destination),
    ]


def _named(permissions: Permissions | None) -> list[str]:
    """Returns the permissions that the file sets, by their keys in the file."""
    if permissions is None:
        return []
    network = permissions.network
    private = network is not None and network.allow_private is not None
    return [*permissions.configured(), *(["network.allow_private"] if private else [])]


def _has_streams(destination: ConnectorSection) -> bool:
    spec = specs().get(parse_ref(destination.use).protocol or "")
    return spec is not None and spec.has_streams


def _keeps_keys(connector: ConnectorSection) -> bool:
    spec = specs().get(parse_ref(connector.use).protocol or "")
    return spec is not None and spec.keeps_keys


def _has_component(pipeline: Pipeline) -> bool:
    used = [pipeline.source.use, pipeline.destination.use]
    used += (t.use for t in pipeline.transforms if t.use not in BUILT_IN)
    return any(parse_ref(use).kind is RefKind.component for use in used)
