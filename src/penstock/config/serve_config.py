"""Defines and reads the configuration of ``penstock serve``, and builds its pipeline.

Not here: the messages to the host platform (``protocols/*/serve``).
"""

from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from msgspec.structs import replace

from penstock.config.command_line import pipeline_from_arguments
from penstock.config.pipeline import Pipeline, StreamOptions
from penstock.config.protocol_spec import spec_of
from penstock.config.table_formats import table_formats
from penstock.errors import ConfigError


class ServeSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Every key of the configuration."""

    destination: Annotated[
        str, msgspec.Meta(description="parquet:PATH or delta:PATH.", examples=["delta:./lake"])
    ]
    destination_config: Annotated[
        dict[str, Any], msgspec.Meta(description="Options of that table format.")
    ] = {}
    pipeline: Annotated[
        str | None,
        msgspec.Meta(description="The name under which its runs are kept; give each flow its own."),
    ] = None
    destination_sync_mode: Annotated[
        Literal["append", "overwrite", "append_dedup"] | None,
        msgspec.Meta(
            description="Singer target: what happens to existing rows. append_dedup keeps the "
            "newest row of each key_properties; it is the default into delta where those are "
            "sent, else append. Airbyte's configured catalog sets it for each stream."
        ),
    ] = None
    metadata_columns: Annotated[
        Literal["native", "neutral", "none"],
        msgspec.Meta(description="Names of the columns that Penstock adds."),
    ] = "native"
    on_data_error: Annotated[
        Literal["fail", "dlq"] | None,
        msgspec.Meta(
            description="A record that cannot be taken ends the run (fail) or is kept as a reject "
            "(dlq). Default: fail for a Singer target, dlq for an Airbyte destination."
        ),
    ] = None
    undeclared: Annotated[
        Literal["keep", "columns", "drop"] | None,
        msgspec.Meta(
            description="Properties of records that their schema does not declare: kept in one "
            "JSON column (keep), a JSON column each (columns), left out (drop). Default: keep for "
            "a Singer target, drop for an Airbyte destination."
        ),
    ] = None
    batch_config: Annotated[
        dict[str, Any],
        msgspec.Meta(
            description="Of a Singer target: storage.root is the folder in which the tap of the "
            "host writes the files of its BATCH messages, as in the tap's own configuration; files "
            "below the working folder are read without it.",
            examples=[{"storage": {"root": "file:///var/batches"}}],
        ),
    ] = {}
    load_bytes: Annotated[
        int, msgspec.Meta(description="A load begins once this many bytes wait.", ge=1)
    ] = 128 << 20
    load_seconds: Annotated[
        float, msgspec.Meta(description="A load begins after at most this many seconds.", gt=0)
    ] = 60.0

    def pipeline_of(
        self, protocol: str, streams: tuple[StreamOptions, ...] | None = None
    ) -> Pipeline:
        """Builds the pipeline whose source is the host. ``protocol``: the host's; ``streams``: its
        streams; None: not known yet. Raises ``ConfigError``."""
        served = spec_of(protocol).served
        assert served is not None
        options: dict[str, str | None] = {
            "name": self.pipeline,
            "destination_sync_mode": self.destination_sync_mode,
        }
        format = table_formats().get(self.destination.partition(":")[0])
        if served.appends and format is not None and format.merges_at_end:
            options["destination_sync_mode"] = self.destination_sync_mode or "append"
        if self.destination_config:
            options["destination_config"] = msgspec.json.encode(self.destination_config).decode()
        made = pipeline_from_arguments(f"{protocol}:input", self.destination, **options)
        return replace(
            made,
            source=replace(
                made.source,
                config={"batch_config": self.batch_config} if self.batch_config else {},
                streams=streams,
                defaults=replace(made.source.defaults, undeclared=self.undeclared),
            ),
            destination=replace(
                made.destination,
                metadata_columns=self.metadata_columns,
                on_data_error=self.on_data_error or served.on_data_error,
            ),
            load=replace(
                made.load, max_pending_bytes=self.load_bytes, max_pending_time=self.load_seconds
            ),
        )


def schema() -> dict[str, Any]:
    """Returns the JSON Schema (draft-07) of the configuration."""
    found = msgspec.json.schema(ServeSettings)["$defs"]["ServeSettings"]
    return {
        "$schema": "http://json-schema.org/draft-07/schema#",
        **found,
        "title": "Penstock",
        "description": "Rows go into Parquet or Delta tables.",
    }


def read_settings(path: str | None, to: str | None) -> ServeSettings:
    """Reads the configuration file ``path`` (None: no file). ``to``: the destination from the
    command line, which overrides the file's. Raises ``ConfigError``."""
    raw: dict[str, Any] = {}
    if path is not None:
        try:
            raw = msgspec.json.decode(Path(path).read_bytes(), type=dict[str, Any])
        except OSError as e:
            raise ConfigError(
                f"the configuration {path} cannot be read: {e.strerror or e}",
                code="config.not_found",
                hint="give --config FILE",
            ) from e
        except msgspec.MsgspecError as e:
            raise _wrong(f"{path}: {e}") from e
    if to is not None:
        raw["destination"] = to
    if "destination" not in raw:
        raise _wrong("no destination is given")
    try:
        return msgspec.convert(raw, ServeSettings)
    except msgspec.ValidationError as e:
        raise _wrong(str(e)) from e


def _wrong(what: str) -> ConfigError:
    return ConfigError(
        f"the configuration of serve: {what}",
        code="config.schema",
        hint='write {"destination": "delta:./lake"}; `penstock serve target --about` shows '
        "every key",
    )
