"""Describes the protocol to the layers above, without loading any of it (``ProtocolSpec``)."""

from typing import Annotated, Literal

from penstock.config.protocol_spec import ManifestFiles, ProtocolSpec, ServeSpec
from penstock.config.sections import Section, key

_KNOWN = (
    "source-airtable", "source-amplitude", "source-asana", "source-amazon-ads", "source-braintree",
    "source-chargebee", "source-facebook-marketing", "source-faker", "source-file",
    "source-freshdesk", "source-github", "source-gitlab", "source-google-ads",
    "source-google-analytics-data-api", "source-google-drive", "source-google-sheets",
    "source-hubspot", "source-instagram", "source-intercom", "source-iterable", "source-jira",
    "source-klaviyo", "source-linkedin-ads", "source-mailchimp", "source-mixpanel", "source-monday",
    "source-notion", "source-okta", "source-pokeapi", "source-s3", "source-salesforce",
    "source-sentry", "source-sftp-bulk", "source-shopify", "source-slack", "source-smartsheets",
    "source-stripe", "source-surveymonkey", "source-tiktok-marketing", "source-twilio",
    "source-typeform", "source-zendesk-chat", "source-zendesk-support", "source-zendesk-talk",
    "source-zenloop", "destination-duckdb", "destination-motherduck", "destination-sqlite",
)  # fmt: skip
_IMAGES: dict[str, str | None] = {
    "source-mongodb-v2": "singer:tap-mongodb",
    "destination-azure-blob-storage": None,
    "destination-bigquery": "singer:z3-target-bigquery",
    "destination-clickhouse": None,
    "destination-databricks": None,
    "destination-iceberg": None,
    "destination-mssql": None,
    "destination-mysql": None,
    "destination-postgres": "singer:meltanolabs-target-postgres",
    "destination-redshift": None,
    "destination-s3": None,
    "destination-snowflake": "singer:meltanolabs-target-snowflake",
}


class SourceKeys(Section, frozen=True, kw_only=True):
    complete_on: Annotated[
        Literal["status", "exit"],
        key("What completes a stream without a status from an Airbyte source. `status`: exit code "
            "0, unless the source logged an ERROR: then its table stays as it was and the stream "
            "is incomplete. `exit`: exit code 0, whatever was logged."),
    ] = "status"  # fmt: skip


SPEC = ProtocolSpec(
    name="airbyte",
    source="an Airbyte source",
    destination="an Airbyte destination",
    sources=("source-",),
    destinations=("destination-",),
    known=_KNOWN,
    images=_IMAGES,
    image_folder="airbyte/",
    manifests=ManifestFiles(
        endings=(".yaml", ".yml"),
        package="airbyte-cdk",
        script="source-declarative-manifest",
        wrapper="declarative_wrapper",
    ),
    source_keys=SourceKeys,
    retried="whose transient_error may pass",
    served=ServeSpec(verb="destination", on_data_error="dlq", every_state=True),
)
