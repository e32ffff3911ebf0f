"""Describes the protocol to the layers above, without loading any of it (``ProtocolSpec``)."""

from typing import Annotated, Literal

from penstock.config.protocol_spec import ProtocolSpec, ServeSpec
from penstock.config.sections import Section, key

_KNOWN = (
    "tap-csv", "tap-facebook", "tap-github", "tap-gitlab", "tap-google-sheets", "tap-hubspot",
    "tap-jira", "tap-mongodb", "tap-mssql", "tap-mysql", "tap-postgres", "tap-s3-csv",
    "tap-salesforce", "tap-shopify", "tap-slack", "tap-smoke-test", "tap-snowflake", "tap-stripe",
    "tap-zendesk", "meltanolabs-tap-postgres", "meltanolabs-tap-snowflake",
    "pipelinewise-tap-mysql", "pipelinewise-tap-postgres", "meltanolabs-target-postgres",
    "meltanolabs-target-snowflake", "target-csv", "target-jsonl", "target-parquet",
    "target-postgres", "target-redshift", "target-snowflake", "z3-target-bigquery",
)  # fmt: skip


class TapKeys(Section, frozen=True, kw_only=True):
    catalog_argument: Annotated[
        Literal["auto", "catalog", "properties", "none"],
        key("How a Singer tap takes its catalog: `--catalog`, `--properties`, or not at all. "
            "`auto`: by its own description, else by trying."),
    ] = "auto"  # fmt: skip


class TargetKeys(Section, frozen=True, kw_only=True):
    activate_version: Annotated[
        Literal["auto", "always", "never"],
        key("Send a Singer target ACTIVATE_VERSION. `auto`: if it has that capability."),
    ] = "auto"


SPEC = ProtocolSpec(
    name="singer",
    source="a Singer tap",
    destination="a Singer target",
    sources=("tap-",),
    destinations=("target-",),
    own_names=True,
    known=_KNOWN,
    catalog_file=True,
    source_keys=TapKeys,
    destination_keys=TargetKeys,
    served=ServeSpec(verb="target", on_data_error="fail", appends=True),
)
