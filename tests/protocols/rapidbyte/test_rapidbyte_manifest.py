"""What a connector says of itself in its binary (protocol, section 9; reference, section 3)."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import rapidbyte_guests

from penstock.connectors.resolve import resolve
from penstock.connectors.source import SourceConnector
from penstock.errors import ConfigError
from penstock.model.catalog import ConnectorSpec, Stream, StreamId, SyncMode
from penstock.protocols.rapidbyte.declared.manifest import (
    MANIFEST_SECTION,
    SCHEMA_SECTION,
    config_schema,
    mode_problems,
    read_manifest,
    role_problems,
)
from penstock.protocols.rapidbyte.declared.stream_config import configure
from penstock.protocols.rapidbyte.guest.component import RapidbyteManifest
from penstock.protocols.rapidbyte.wire.wasm_binary import (
    COMPONENT,
    MODULE,
    MalformedBinary,
    custom_sections,
    encode_name,
    encode_section,
    leb128,
    memory_count,
    read_leb128,
    sections,
)
from penstock.protocols.reading import StreamOverrides

PLAIN: dict[str, Any] = {
    "id": "rapidbyte/source-postgres",
    "name": "PostgreSQL",
    "version": "0.1.0",
    "protocol_version": "4",
    "permissions": {
        "network": {"allow_runtime_config_domains": True},
        "env": {"allowed_vars": ["PGSSLROOTCERT"]},
    },
    "limits": {"max_memory": "128mb", "timeout_seconds": 60},
    "roles": {"source": {"supported_sync_modes": ["full_refresh"], "features": ["cdc"]}},
    "some_future_key": [1],
}


def custom(title: str, content: Any) -> bytes:
    raw = content if isinstance(content, bytes) else json.dumps(content).encode()
    return encode_section(0, encode_name(title) + raw)


def component(*parts: bytes) -> bytes:
    return COMPONENT + b"".join(parts)


def module(*parts: bytes) -> bytes:
    return encode_section(1, MODULE + b"".join(parts))


def with_manifest(**changes: Any) -> bytes:
    return component(custom(MANIFEST_SECTION, {**PLAIN, **changes}))


# -- where it lies


def test_in_a_section_at_the_top():
    found = read_manifest(with_manifest())
    assert found.problem is None and found.manifest is not None
    assert found.manifest.name == "PostgreSQL"
    assert found.manifest.max_memory == 128 << 20
    assert found.manifest.permissions.env.allowed_vars == ("PGSSLROOTCERT",)


def test_in_a_nested_module_as_rust_leaves_it():
    inner = module(custom(MANIFEST_SECTION, PLAIN))
    deeper = encode_section(4, component(inner))
    for binary in (component(inner), component(deeper)):
        assert read_manifest(binary).manifest is not None


def test_the_last_one_counts():
    old = {**PLAIN, "version": "0.0.1"}
    binary = component(module(custom(MANIFEST_SECTION, old)), custom(MANIFEST_SECTION, PLAIN))
    found = read_manifest(binary)
    assert found.manifest is not None and found.manifest.version == "0.1.0"


def test_appended_to_a_real_component():
    guest = rapidbyte_guests.c_guest("source")
    assert read_manifest(guest).problem == "it has no manifest"
    found = read_manifest(guest + custom(MANIFEST_SECTION, PLAIN))
    assert found.manifest is not None


def test_the_schema_section_replaces_the_manifests():
    schema = {"type": "object", "required": ["host"]}
    parts = (custom(MANIFEST_SECTION, {**PLAIN, "config_schema": {"type": "array"}}),)
    assert config_schema(read_manifest(component(*parts)).manifest) == {"type": "array"}
    found = read_manifest(component(*parts, custom(SCHEMA_SECTION, schema)))
    assert config_schema(found.manifest) == schema
    broken = read_manifest(component(*parts, custom(SCHEMA_SECTION, b"{")))
    assert config_schema(broken.manifest) == {"type": "array"}
    assert len(broken.warnings) == 1 and SCHEMA_SECTION in broken.warnings[0]


def test_the_schema_section_holds_without_a_manifest():
    schema = {"type": "object", "required": ["host"]}
    for more in ((), (custom(MANIFEST_SECTION, b"{"),)):
        found = read_manifest(component(custom(SCHEMA_SECTION, schema), *more))
        assert found.manifest is None and found.schema == schema
        assumed = read_manifest(component(custom(SCHEMA_SECTION, schema), *more), PLAIN)
        assert assumed.assumed and config_schema(assumed.manifest) == schema
    own = {**PLAIN, "config_schema": {"type": "object"}}
    told = read_manifest(component(custom(SCHEMA_SECTION, schema)), own)
    assert config_schema(told.manifest) == {"type": "object"}
    no_schema = read_manifest(component(custom(SCHEMA_SECTION, [])))
    assert no_schema.schema is None and SCHEMA_SECTION in no_schema.warnings[0]


@pytest.mark.parametrize("assume", [None, {**PLAIN, "roles": {"source": {
    "supported_sync_modes": ["full_refresh", "incremental"]}}}])  # fmt: skip
def test_a_component_without_a_manifest_has_its_config_checked_and_its_secrets_masked(
    tmp_path: Path, assume: dict[str, Any] | None
):
    """L10."""
    schema = {
        "type": "object",
        "properties": {
            "frames": {"type": "integer"},
            "mode": {"type": "string"},
            "password": {"type": "string", "x-secret": True},
        },
        "additionalProperties": False,
    }
    file = tmp_path / "bare.wasm"
    file.write_bytes(rapidbyte_guests.c_guest("source") + custom(SCHEMA_SECTION, schema))
    settings = {} if assume is None else {"assume_manifest": assume}
    source = resolve(
        SourceConnector, f"rapidbyte:{file}", tmp_path / "connectors", settings=settings
    )
    with pytest.raises(ConfigError) as caught:
        source.check({"frames": "text", "bogus": 1})
    assert len(caught.value.problems) == 2
    assert source.secrets({"frames": 1, "password": "hunter2hunter2"}) == ["hunter2hunter2"]
    assert source.check({"frames": 1, "password": "hunter2hunter2"}).succeeded


# -- missing, broken, of another version


@pytest.mark.parametrize(
    "binary, says",
    [
        (component(), "no manifest"),
        (component(custom(MANIFEST_SECTION, b"{")), "cannot be used"),
        (component(custom(MANIFEST_SECTION, {"id": "x"})), "name"),
        (with_manifest(limits={"max_memory": "lots"}), "is not a size"),
        (with_manifest(limits={"max_memory": "0"}), "is not a size"),
        (with_manifest(limits={"timeout_seconds": 0}), "not a number of seconds"),
        (with_manifest(permissions={"env": {"allowed_vars": "ALL"}}), "allowed_vars"),
        (b"not wasm at all", "cannot be read"),
        (component(b"\0\xff\xff\xff\xff\x0f"), "cannot be read"),
        (component(b"\0\x05"), "cannot be read"),
    ],
)
def test_what_cannot_be_used_is_no_manifest_and_says_why(binary: bytes, says: str):
    found = read_manifest(binary)
    assert found.manifest is None
    assert found.problem is not None and says in found.problem


def test_another_protocol_version_is_used_with_a_warning():
    found = read_manifest(with_manifest(protocol_version="3"))
    assert found.manifest is not None
    assert len(found.warnings) == 1 and "version 3" in found.warnings[0]


def test_assume_manifest_stands_in_and_never_replaces():
    assumed = read_manifest(component(), {**PLAIN, "name": "assumed"})
    assert assumed.assumed and assumed.manifest is not None
    assert assumed.manifest.name == "assumed"
    assert "stands in" in assumed.warnings[0]
    own = read_manifest(with_manifest(), {**PLAIN, "name": "assumed"})
    assert not own.assumed and own.manifest is not None and own.manifest.name == "PostgreSQL"
    (warning,) = own.warnings
    assert "assume_manifest is not used: permissions and limits narrow" in warning
    for binary in (component(), with_manifest()):
        with pytest.raises(ConfigError) as caught:
            read_manifest(binary, {"garbage": 1})
        assert caught.value.code == "config.assume_manifest"


# -- roles and modes


def test_roles_and_modes_are_enforced():
    found = read_manifest(with_manifest())
    assert found.manifest is not None
    assert role_problems(found.manifest, "source") == []
    (problem,) = role_problems(found.manifest, "destination")
    assert "does not support the destination role: it is a source" in problem
    assert mode_problems(found.manifest, "source", sync_modes=["full_refresh", "cdc"]) == []
    (problem,) = mode_problems(found.manifest, "source", sync_modes=["incremental"])
    assert "incremental" in problem


def source_manifest(name: str, *modes: str, features: Sequence[str] = ()) -> dict[str, Any]:
    roles = {"source": {"supported_sync_modes": modes, "features": features}}
    return {**PLAIN, "id": name, "roles": roles}


@pytest.mark.parametrize(
    ("manifest", "listed", "able"),
    [
        (source_manifest("them/numbers", "full_refresh", "incremental"), False, False),
        (source_manifest("them/numbers", "full_refresh", "incremental"), True, False),
        (source_manifest("them/numbers", "full_refresh", features=["stateful"]), False, False),
        (source_manifest("them/numbers", "full_refresh", features=["cdc"]), False, True),
        (source_manifest("them/numbers", "cdc"), False, True),
        (source_manifest("rapidbyte/source-postgres", "full_refresh", "incremental"), False, True),
        (source_manifest("them/my-source-postgres", "full_refresh"), False, False),
        (None, False, False),
        (None, True, True),
    ],
)
def test_cdc_is_for_those_that_name_it_and_v4s_own(
    manifest: dict[str, Any] | None, listed: bool, able: bool
):
    """Anyone else would be read whole by every run (protocol, section 9; reference, 3.2)."""
    modes = (SyncMode.full_refresh, SyncMode.incremental, *([SyncMode.cdc] if listed else []))
    users = Stream(id=StreamId(None, "users"), json_schema={}, sync_modes=modes)
    abilities = {} if manifest is None else {"manifest": manifest}
    spec = ConnectorSpec(protocol="rapidbyte", config_schema={}, abilities=abilities)
    overrides = StreamOverrides(sync_mode="cdc", destination_sync_mode="append")
    problems = RapidbyteManifest().problems(spec, [configure(users, overrides)])
    assert len(problems) == (0 if able else 1)
    assert all("does not support sync_mode cdc" in p for p in problems)


def test_features_are_shown(tmp_path: Path):
    file = tmp_path / "a.wasm"
    manifest = source_manifest("them/numbers", "full_refresh", features=["stateful", "cdc"])
    file.write_bytes(rapidbyte_guests.c_guest("source") + custom(MANIFEST_SECTION, manifest))
    source = resolve(SourceConnector, f"rapidbyte:{file}", tmp_path / "connectors")
    (line,) = [held for held in source.effective_limits({})[0] if held.name == "features"]
    assert line.value == ("stateful", "cdc") and "cdc allows" in line.rule


def test_write_modes_are_enforced():
    modes = [{"mode": "append"}, {"mode": "upsert", "primary_key": []}]
    found = read_manifest(with_manifest(roles={"destination": {"supported_write_modes": modes}}))
    assert found.manifest is not None
    assert mode_problems(found.manifest, "destination", write_mode="upsert") == []
    (problem,) = mode_problems(found.manifest, "destination", write_mode="replace")
    assert "replace" in problem and "append, upsert" in problem


def test_an_empty_transform_role_is_a_role():
    found = read_manifest(with_manifest(roles={"transform": {}}))
    assert found.manifest is not None and role_problems(found.manifest, "transform") == []


# -- the binary form


@pytest.mark.parametrize("number", [0, 1, 127, 128, 300, 65535, 2**32 - 1])
def test_leb_there_and_back(number: int):
    assert read_leb128(leb128(number), 0) == (number, len(leb128(number)))


def test_a_number_that_does_not_end():
    for data in (b"", b"\x80", b"\x80" * 9):
        with pytest.raises(MalformedBinary):
            read_leb128(data, 0)


def test_sections_and_memories_of_a_real_component():
    guest = rapidbyte_guests.c_guest("source")
    assert len(list(sections(guest))) > 10
    assert memory_count(guest) == 1
    assert list(custom_sections(guest)) is not None
    with pytest.raises(MalformedBinary):
        list(sections(guest[:-3]))


def test_nesting_is_bounded():
    binary = component(custom(MANIFEST_SECTION, PLAIN))
    for _ in range(50):
        binary = component(encode_section(4, binary))
    assert read_manifest(binary).manifest is None
