"""Recognises Rapidbyte v4's pipeline files, and defines where their rules and defaults differ.

Both formats have ``version: "1.0"``, and Penstock's keys are a superset. A file is v4's when it has
``destination.write_mode``, which v4 requires, and every ``use`` in it is a v4 reference
(``source-postgres``, ``ns/name@v1``): no protocol prefix, no path, no Spark table. Such a file is
read as v4 reads it: unknown keys are ignored (with a warning here), a key without a value is its
default, ``${NAME}`` has no default syntax and no escape. One difference is kept on purpose: v4
pastes variables into the text before parsing it; here they never add structure.
"""

import re
from typing import Any

import msgspec

from penstock.config import yaml_nodes
from penstock.config.cross_checks import RULES
from penstock.config.pipeline import Destination, Resources, StreamOptions, Transform
from penstock.config.reader import Dialect, Fault
from penstock.config.sections import StateSettings
from penstock.config.table_formats import table_formats
from penstock.config.yaml_nodes import Node, Scalar
from penstock.model.catalog import SyncMode

_REFERENCE = re.compile(r"(?:[\w.-]+/)*[\w-]+(?:@v?[\w.-]+)?")

_DEFAULTS: dict[str, Any] = {
    "destination.schema_evolution.type_change": "fail",
    "destination.on_data_error": "fail",
    "destination.metadata_columns": "none",
    "resources": Resources(),
}

OWN_TRANSFORMS = ("transform-sql", "transform-validate")
_STATE_CONNECTION = "host=localhost dbname=rapidbyte_state"

_ALIASES = {("destination.schema_evolution.removed_column", "add"): "ignore"}


def is_v4(root: Node) -> bool:
    """Returns whether the file is Rapidbyte v4's, by its keys alone, before variables are
    resolved."""
    if not isinstance(root, yaml_nodes.Mapping):
        return False
    source, destination = root.get("source"), root.get("destination")
    if not isinstance(source, yaml_nodes.Mapping) or not isinstance(
        destination, yaml_nodes.Mapping
    ):
        return False
    transforms = root.get("transforms")
    stages: list[Node] = [source, destination]
    if isinstance(transforms, yaml_nodes.Sequence):
        stages += transforms.items
    return destination.get("write_mode") is not None and all(map(_names_v4_connector, stages))


def _names_v4_connector(stage: Node) -> bool:
    use = stage.get("use") if isinstance(stage, yaml_nodes.Mapping) else None
    if not isinstance(use, Scalar):
        return False
    return _REFERENCE.fullmatch(use.text) is not None and use.text not in table_formats()


def _cursor_needed(stream: StreamOptions) -> tuple[StreamOptions, list[Fault]]:
    if stream.sync_mode is SyncMode.incremental and stream.cursor_field is None:
        return stream, [("sync_mode", f"stream '{stream.name}' is incremental and has no "
                         "cursor_field")]  # fmt: skip
    return stream, []


def _key_of_upsert(destination: Destination) -> tuple[Destination, list[Fault]]:
    """Drops ``primary_key`` where v4 ignores it: v4 reads it for upsert only, so other streams need
    not have such columns."""
    if destination.write_mode != "upsert":
        return msgspec.structs.replace(destination, primary_key=None), []
    if not destination.primary_key:
        return destination, [("write_mode", "write_mode upsert needs primary_key")]
    return destination, []


def _own_transform(transform: Transform) -> tuple[Transform, list[Fault]]:
    """Finds v4's own transforms, which are built in here, as v4 finds a connector: by the last part
    of its name, without the version."""
    name = transform.use.rpartition("/")[2].partition("@")[0]
    if name not in OWN_TRANSFORMS:
        return transform, []
    return msgspec.structs.replace(transform, use=name), []


def _state_default(state: StateSettings) -> tuple[StateSettings, list[Fault]]:
    if state.backend == "postgres" and not (state.url or state.connection):
        state = msgspec.structs.replace(state, connection=_STATE_CONNECTION)
    return state, []


V4 = Dialect(
    name="rapidbyte-v4",
    rules={
        **RULES,
        StateSettings: (_state_default, *RULES[StateSettings]),
        StreamOptions: (*RULES[StreamOptions], _cursor_needed),
        Transform: (*RULES[Transform], _own_transform),
        Destination: (*RULES[Destination], _key_of_upsert),
    },
    aliases=_ALIASES,
    defaults=_DEFAULTS,
    lenient=True,
    null_is_absent=True,
)

PENSTOCK = Dialect(name="penstock", rules=RULES)
