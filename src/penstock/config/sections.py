"""Defines the small sections of the pipeline file: permissions, limits, state, log, Spark,
timeouts, load.

Types, defaults and descriptions only. Sizes are bytes, durations seconds. Neighbours:
``config.pipeline`` combines the sections, ``config.reader`` fills them, ``config.schema`` publishes
docstrings and descriptions.
"""

from typing import Annotated, Any, Literal

import msgspec

from penstock.config.scalars import DURATION_FORMS, SIZE_FORMS


def key(
    description: str,
    *,
    literal: str | None = None,
    null: str | None = None,
    declared: str | None = None,
    examples: list[Any] | None = None,
) -> msgspec.Meta:
    """Describes a key. ``literal``: the converter in ``config.converters`` that reads it; ``null``:
    the advice where the key has no value (absent: its default applies); ``declared``: this field is
    not a key, but holds the keys that protocols declare for this role; ``examples``: for
    editors."""
    options = (("literal", literal), ("null", null), ("declared", declared))
    extra = {k: v for k, v in options if v is not None}
    return msgspec.Meta(
        description=description,
        extra=extra or None,
        extra_json_schema={
            **({"x-literal": literal} if literal else {}),
            **({"x-declared": declared} if declared else {}),
            **({"examples": examples} if examples else {}),
        }
        or None,
    )


_ALL_OR_NOTHING = "write [] to allow nothing, or remove the key to restrict nothing"
_SAY_WHAT = "list what is allowed, or remove the key to restrict nothing"
_DEFAULTS_HOLD = "remove the key, or give a value"


class Section(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Base of every section of the pipeline file. The repr has keys without values, any of which
    may be a secret (L10)."""

    def __repr__(self) -> str:
        given = (f for f in self.__struct_fields__ if getattr(self, f) is not None)
        return f"{type(self).__name__}({', '.join(given)})"


class NetworkPermissions(Section, frozen=True, kw_only=True):
    allowed_hosts: Annotated[
        tuple[str, ...] | None,
        key(
            "Hosts it may reach: exact names, addresses or `*.domain`, with an optional `:PORT`. "
            "`[]` allows none; absent restricts nothing.",
            literal="hosts",
            null=_ALL_OR_NOTHING,
            examples=[["db.internal:5432", "*.example.com"]],
        ),
    ] = None
    allow_private: Annotated[
        bool | None,
        key(
            "Every allowed host may lie in a private network or on this machine. Default: only "
            "hosts that this file names, in full or by domain (`*.corp`).",
        ),
    ] = None


class EnvironmentPermissions(Section, frozen=True, kw_only=True):
    allowed_vars: Annotated[
        tuple[str, ...] | None,
        key(
            "Environment variables it may see. `[]` allows none; absent restricts nothing.",
            literal="variable_names",
            null=_ALL_OR_NOTHING,
        ),
    ] = None


class FilesystemPermissions(Section, frozen=True, kw_only=True):
    allowed_preopens: Annotated[
        tuple[str, ...] | None,
        key(
            "Folders it may open, with `:ro` where it may only read. `[]` allows none; absent "
            "restricts nothing.",
            literal="folders",
            null=_ALL_OR_NOTHING,
        ),
    ] = None


class Install(Section, frozen=True, kw_only=True):
    """How a connector's environment is made, where it is a package."""

    builds: Annotated[
        bool,
        key(
            "Packages that exist as source only may be built, which runs their code under the "
            "connector's own `permissions` and `limits`."
        ),
    ] = True
    constraints: Annotated[
        tuple[str, ...],
        key(
            "Requirements that bound its dependencies, for an old connector that a newer one "
            "broke.",
            literal="requirements",
            examples=[["pydantic<2"]],
        ),
    ] = ()


class ContainerSettings(Section, frozen=True, kw_only=True):
    """How a connector runs where it is a container image."""

    pull: Annotated[
        Literal["missing", "always", "never"],
        key("When its image is pulled: where it is not on the machine, each time, or never."),
    ] = "missing"
    network: Annotated[
        str | None,
        key(
            "The engine's network that it joins, as `docker network ls` shows it. Default: the "
            "engine's own.",
            literal="name",
            examples=["host", "databases"],
        ),
    ] = None
    read_only: Annotated[
        bool, key("Its image's files cannot be changed; `/tmp` can, and is in memory.")
    ] = False
    capabilities: Annotated[
        tuple[str, ...],
        key(
            "Linux capabilities that it has. Without any, root inside is no more than a user.",
            literal="capabilities",
            examples=[["CHOWN", "SETUID", "SETGID"]],
        ),
    ] = ()
    max_processes: Annotated[
        int, key("Processes and threads that it may have.", literal="positive_int")
    ] = 4096


class Permissions(Section, frozen=True, kw_only=True):
    """What a connector may reach. A pipeline can only restrict what a connector requests."""

    network: Annotated[
        NetworkPermissions | None, key("Which hosts it may reach.", null=_SAY_WHAT)
    ] = None
    env: Annotated[
        EnvironmentPermissions | None, key("Which variables it may see.", null=_SAY_WHAT)
    ] = None
    fs: Annotated[
        FilesystemPermissions | None, key("Which folders it may open.", null=_SAY_WHAT)
    ] = None

    def configured(self) -> dict[str, tuple[str, ...]]:
        """Returns the permissions that the file sets, by dotted key. Each must be enforced, or the
        run refused (L10)."""
        network, env, fs = self.network, self.env, self.fs
        entries = {
            "network.allowed_hosts": network.allowed_hosts if network else None,
            "env.allowed_vars": env.allowed_vars if env else None,
            "fs.allowed_preopens": fs.allowed_preopens if fs else None,
        }
        return {name: allowed for name, allowed in entries.items() if allowed is not None}


MAX_DEAD_LETTERS = 1 << 30
"""The default of ``Limits.max_dead_letters``, in bytes."""


class Limits(Section, frozen=True, kw_only=True):
    """How much a connector may use. The smaller of this and the connector's own limit holds."""

    max_memory: Annotated[
        int | None,
        key(
            f"Memory it may use: {SIZE_FORMS}.",
            literal="positive_size",
            null=_DEFAULTS_HOLD,
            examples=["512mb"],
        ),
    ] = None
    timeout_seconds: Annotated[
        int | None,
        key(
            "Seconds that one conversation with it may take.",
            literal="positive_int",
            null=_DEFAULTS_HOLD,
        ),
    ] = None

    max_dead_letters: Annotated[
        int | None,
        key(
            "Bytes of records that may be put aside, or rejected, in one run of a stream. Default: "
            "1gb.",
            literal="positive_size",
            null=_DEFAULTS_HOLD,
        ),
    ] = None
    max_keys: Annotated[
        int | None,
        key(
            "Bytes of keys of its own that a component may write in one run of a stream. Default: "
            "64mb.",
            literal="positive_size",
            null=_DEFAULTS_HOLD,
        ),
    ] = None

    def configured(self) -> dict[str, int]:
        """Returns the limits that the file sets, by key. Each must be enforced, or the run refused
        (L10)."""
        entries = {name: getattr(self, name) for name in self.__struct_fields__}
        return {name: limit for name, limit in entries.items() if limit is not None}


class SchemaEvolution(Section, frozen=True, kw_only=True):
    """What happens where a stream's schema and its table differ."""

    new_column: Annotated[
        Literal["add", "ignore", "fail"], key("A column the table does not have.")
    ] = "add"
    removed_column: Annotated[
        Literal["ignore", "fail"], key("A column the stream no longer has.")
    ] = "ignore"
    type_change: Annotated[
        Literal["coerce", "fail", "null"],
        key("A column of another type. A Rapidbyte file's default is `fail`."),
    ] = "coerce"
    nullability_change: Annotated[
        Literal["allow", "fail"], key("A column that may be null and could not before.")
    ] = "allow"


class StateSettings(Section, frozen=True, kw_only=True):
    """Where states and the ledger are kept."""

    backend: Annotated[Literal["sqlite", "postgres"], key("The kind of store.")] = "sqlite"
    url: Annotated[
        str | None,
        key(
            "The store's URL, for a Postgres store.",
            examples=["postgresql://user@db.internal/penstock"],
        ),
    ] = None
    path: Annotated[str | None, key("The SQLite file. Default: `state.db` in Penstock's home.")] = (
        None
    )
    connection: Annotated[
        str | None,
        key(
            "Rapidbyte's key: a libpq string or URI, or a SQLite file, next to which Penstock "
            "keeps its own (`NAME.penstock.db`)."
        ),
    ] = None


class LogSettings(Section, frozen=True, kw_only=True):
    """Where the write-ahead log lies."""

    path: Annotated[
        str | None,
        key(
            "A folder. On a cluster the driver and every worker must see it under this path. "
            "Default: `log` in Penstock's home."
        ),
    ] = None


class HookSettings(Section, frozen=True, kw_only=True):
    """Who is notified when a run ends."""

    on_success: Annotated[
        str | tuple[str, ...] | None,
        key(
            "Gets the report as JSON when all is well: a URL by POST, a command (a list of words, "
            "no shell) on stdin.",
            literal="hook",
            examples=["https://hooks.example.com/done", ["./notify.sh", "shop"]],
        ),
    ] = None
    on_failure: Annotated[
        str | tuple[str, ...] | None,
        key("The same at any other end: partial, failed, cancelled, not begun.", literal="hook"),
    ] = None
    timeout: Annotated[float, key("How long a hook may take.", literal="positive_duration")] = 30.0


class SparkSettings(Section, frozen=True, kw_only=True):
    """The Spark session."""

    master: Annotated[
        str | None,
        key(
            "Spark master. Default: `PENSTOCK_SPARK_MASTER`, else `local[N]`.",
            examples=["local[4]", "spark://host:7077"],
        ),
    ] = None
    conf: Annotated[dict[str, str], key("Spark settings by name.")] = {}
    allow_unencrypted: Annotated[
        bool,
        key("Use a cluster that has no `spark.authenticate`."),
    ] = False


class Timeouts(Section, frozen=True, kw_only=True):
    """How long to wait for a connector. ``None``: for ever."""

    start: Annotated[
        float, key(f"Until its first output: {DURATION_FORMS}.", literal="positive_duration")
    ] = 300.0
    heartbeat: Annotated[
        float, key("Between two records or states.", literal="positive_duration")
    ] = 10800.0
    total: Annotated[
        float | None, key("For the whole conversation.", literal="positive_duration")
    ] = None
    stop: Annotated[
        float, key("From the request to stop until the kill.", literal="positive_duration")
    ] = 10.0


class LoadBounds(Section, frozen=True, kw_only=True):
    """When a long sync loads before its end."""

    max_pending_bytes: Annotated[
        int, key("Load when this much is waiting.", literal="positive_size")
    ] = 1024**3
    max_pending_time: Annotated[
        float, key("Load when something has waited this long.", literal="positive_duration")
    ] = 600.0


class Autotune(Section, frozen=True, kw_only=True):
    """Rapidbyte's tuning hints."""

    enabled: Annotated[bool, key("Let the host tune.")] = True
    pin_parallelism: Annotated[
        int | None,
        key(
            "Instead of `resources.parallelism`: streams at a time, and parts of a stream that its "
            "source is known to divide.",
            literal="positive_int",
        ),
    ] = None
    pin_source_partition_mode: Annotated[
        Literal["mod", "range"] | None, key("How a source divides a stream.")
    ] = None
    pin_copy_flush_bytes: Annotated[
        int | None, key("Flush size of a destination.", literal="flush_bytes")
    ] = None


class Resources(Section, frozen=True, kw_only=True):
    """Rapidbyte's resources, with its defaults. Only its connectors see most of them."""

    max_memory: Annotated[
        int | None,
        key("Most memory of each component, with what is held for it.", literal="size"),
    ] = None
    max_batch_bytes: Annotated[int, key("Largest batch.", literal="size")] = 64 * 1024**2
    parallelism: Annotated[
        Literal["auto"] | int, key("Streams at a time; Penstock's `lanes`.", literal="lanes")
    ] = "auto"
    checkpoint_interval_bytes: Annotated[
        int, key("A checkpoint after so many bytes; 0: never.", literal="size")
    ] = 64 * 1024**2
    checkpoint_interval_rows: Annotated[int, key("Rows; 0: never.", literal="count")] = 0
    checkpoint_interval_seconds: Annotated[int, key("Seconds; 0: never.", literal="count")] = 0
    max_retries: Annotated[int, key("How often a run is tried again.", literal="count")] = 3
    compression: Annotated[Literal["lz4", "zstd"] | None, key("Of batches between stages.")] = None
    max_inflight_batches: Annotated[
        int, key("Batches between two stages.", literal="positive_int")
    ] = 16
    autotune: Annotated[Autotune, key("Tuning hints.")] = Autotune()
