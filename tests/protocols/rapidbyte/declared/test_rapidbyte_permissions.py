"""The merge table of the protocol, "Pipeline-Level Permissions & Limits": each row and sentence."""

from pathlib import Path
from typing import Any

import msgspec
import pytest
import rapidbyte_guests
from test_rapidbyte_manifest import component

from penstock.config.sections import (
    EnvironmentPermissions,
    FilesystemPermissions,
    Limits,
    NetworkPermissions,
    Permissions,
)
from penstock.errors import ConfigError
from penstock.protocols.rapidbyte.declared.manifest import (
    ComponentManifest,
    ManifestResult,
    read_manifest,
)
from penstock.protocols.rapidbyte.declared.permissions import (
    EffectivePermissions,
    effective,
    grants,
    wide_permissions,
)

A, B, C = "a.example", "b.example", "c.example"
NO_MANIFEST = ManifestResult(problem="it has no manifest")


def manifest(**permissions: Any) -> ManifestResult:
    limits = permissions.pop("limits", {})
    assume = {
        "id": "x", "name": "x", "version": "1", "protocol_version": "4",
        "permissions": permissions, "limits": limits,
    }  # fmt: skip
    found = read_manifest(component(), assume)
    assert isinstance(found.manifest, ComponentManifest)
    return ManifestResult(manifest=found.manifest)


def merged(
    found: ManifestResult,
    hosts: tuple[str, ...] | None = None,
    env: tuple[str, ...] | None = None,
    fs: tuple[str, ...] | None = None,
    memory: int | None = None,
    seconds: int | None = None,
    config: dict[str, Any] | None = None,
) -> EffectivePermissions:
    permissions = Permissions(
        network=NetworkPermissions(allowed_hosts=hosts),
        env=EnvironmentPermissions(allowed_vars=env),
        fs=FilesystemPermissions(allowed_preopens=fs),
    )
    limits = Limits(max_memory=memory, timeout_seconds=seconds)
    return effective(found, permissions, limits, config or {})


def rule(result: EffectivePermissions, key: str) -> str:
    return next(line.rule for line in result.rulings if line.name == key)


NETWORK = [
    # (manifest, pipeline) -> effective
    ((A, B), (B, C), (B,)),
    ((A, B), None, (A, B)),  # omitted leaves the manifest's
    ((A, B), (), ()),  # [] blocks all
    ((A,), (B,), ()),  # never widens
    ((), (A,), ()),
    (("*",), (A,), (A,)),
    (("*",), None, ("*",)),
    (("*.example",), (A, "other.org"), (A,)),
    ((A,), ("*.example",), (A,)),
    (("*.b.example",), ("*.example",), ("*.b.example",)),
    (("*.example",), ("example",), ()),  # *.d is not d
    (("A.Example",), (" a.example ",), (A,)),  # one spelling
    (("10.0.0.1",), ("10.0.0.1",), ("10.0.0.1",)),
    (("[::1]",), ("0:0:0:0:0:0:0:1",), ("::1",)),
]


@pytest.mark.parametrize("declared, asked, expected", NETWORK)
def test_network_by_set_intersection(declared: Any, asked: Any, expected: Any):
    found = manifest(network={"allowed_domains": list(declared)})
    assert merged(found, hosts=asked).hosts == expected


def test_network_of_the_config_where_the_manifest_allows_it():
    config = {"host": "DB.Example:5432", "nested": [{"read_url": "postgres://u:p@r.example:1/x"}]}
    open_ = manifest(network={"allow_runtime_config_domains": True})
    assert merged(open_, config=config).hosts == ("db.example", "r.example")
    assert merged(open_, config=config, hosts=("r.example",)).hosts == ("r.example",)
    assert merged(open_, config=config, hosts=()).hosts == ()
    assert merged(manifest(network={}), config=config).hosts == ()
    both = manifest(network={"allow_runtime_config_domains": True, "allowed_domains": [A]})
    assert merged(both, config=config).hosts == (A, "db.example", "r.example")


def private(
    found: ManifestResult, config: dict[str, Any] | None = None, **said: Any
) -> EffectivePermissions:
    permissions = Permissions(network=NetworkPermissions(**said))
    return effective(found, permissions, None, config or {})


def test_who_may_lie_in_a_private_network():
    """The user names it, in the file's permissions (in full, or by its domain as the page does) or
    in the connector's configuration: a manifest's word alone reaches no address inside (issue 9),
    and ``*`` names no host."""
    any_host = manifest(network={"allowed_domains": ["*"]})
    assert private(any_host).named == ()
    listed = ("*.analytics.corp:5432", "db.corp:5432", "*")
    assert private(any_host, allowed_hosts=listed).named == listed[:2]
    page = manifest(network={"allowed_domains": ["a.analytics.corp", "b.other.corp"]})
    reach = private(page, allowed_hosts=("*.analytics.corp",)).reach
    assert (reach.hosts, reach.named) == (("a.analytics.corp",), ("a.analytics.corp",))
    assert private(manifest(network={"allowed_domains": ["*.corp"]})).named == ()
    assert private(any_host, {"host": "localhost", "name": "b.corp"}).named == ("localhost",)
    assert private(any_host, {"host": "a.corp"}, allowed_hosts=("b.corp",)).named == ("b.corp",)
    local = manifest(network={"allowed_domains": ["localhost", "db.corp"]})
    assert private(local).named == ("localhost",)  # the user agreed to it, see below
    assert private(local, allowed_hosts=("*",)).named == ()
    assert private(manifest(network={}), {"host": "localhost"}).named == ()
    v4 = manifest(network={"allow_runtime_config_domains": True})
    assert private(v4, {"host": "10.0.0.5:5432"}).reach.named == ("10.0.0.5",)
    assert private(any_host, allow_private=True).reach.private
    assert not private(manifest(network={}), allow_private=True).reach.private
    assumed = ManifestResult(manifest=manifest(network={"allowed_domains": ["db.corp"]}).manifest,
                    assumed=True)  # fmt: skip
    assert private(assumed).named == ("db.corp",)
    wide = manifest(network={"allowed_domains": ["*.corp", "*"]}).manifest
    assert private(ManifestResult(manifest=wide, assumed=True)).named == ("*.corp",)


def test_variables_of_sparks_and_ours_are_granted_to_nobody():
    """Issue 9: a lane's environment has secrets of Spark's."""
    never = ["PYTHON_WORKER_FACTORY_SECRET", "_PYSPARK_X", "SPARK_AUTH_SECRET", "PENSTOCK_HOME"]
    assume = {"id": "x", "name": "x", "version": "1", "protocol_version": "4",
              "permissions": {"env": {"allowed_vars": ["TOKEN", *never]}}}  # fmt: skip
    found = read_manifest(component(), assume)
    assert merged(found).variables == ("TOKEN",)
    assert all(name in " ".join(found.warnings) for name in never)
    forged = rapidbyte_guests.allowed(variables=tuple(never))
    assert grants(forged, dict.fromkeys(never, "x")).env == {}


def test_a_manifest_that_names_what_is_no_host():
    assume = {"id": "x", "name": "x", "version": "1", "protocol_version": "4",
              "permissions": {"network": {"allowed_domains": ["127.0.0.1\0.corp", A]}}}  # fmt: skip
    found = read_manifest(component(), assume)
    assert merged(found).hosts == (A,)
    assert "'127.0.0.1\\x00.corp'" in " ".join(found.warnings)


def test_a_wildcard_in_a_config_opens_nothing():
    open_ = manifest(network={"allow_runtime_config_domains": True})
    assert merged(open_, config={"host": "*", "server": "*.example"}).hosts == ()


HOME = "/srv/people/ann"
WIDE = [
    ({"network": {"allowed_domains": ["*", "a.example"]}}, {}, ["every host on the network (*)"]),
    ({"network": {"allowed_domains": ["*"]}}, {"hosts": ("db.corp",)}, []),
    ({"network": {"allowed_domains": ["*"]}}, {"hosts": ("*",)}, []),
    (
        {"network": {"allowed_domains": ["localhost:80", "10.0.0.5", "*.example", "1.1.1.1"]}}, {},
        ["an address inside, or this machine (10.0.0.5)",
         "an address inside, or this machine (localhost:80)"],
    ),
    ({"network": {"allow_runtime_config_domains": True}}, {}, []),
    ({"fs": {"preopens": ["/data", "/data/../:ro"]}}, {},
     ["the root folder, and with it every file (/data/../:ro)"]),
    ({"fs": {"preopens": ["//", "//:ro"]}}, {},
     ["the root folder, and with it every file (//)",
      "the root folder, and with it every file (//:ro)"]),
    ({"fs": {"preopens": ["/proc/self", "/sys", "/proceeds"]}}, {},
     ["files of the kernel, and with them every process of yours (/proc/self)",
      "files of the kernel, and with them every process of yours (/sys)"]),
    ({"fs": {"preopens": ["../../..", "data", ""]}}, {},
     [f"a folder that differs wherever it runs ({p})" for p in ("../../..", "data", "")]),
    ({"fs": {"preopens": [HOME, f"{HOME}/..", f"{HOME}/data", f"{HOME}s"]}}, {},
     [f"your home folder, or one around it ({p})" for p in (HOME, f"{HOME}/..")]),
    ({"fs": {"preopens": ["/"]}}, {"fs": ("/",)}, []),
    ({"env": {"allowed_vars": ["*", "A"]}}, {}, ["every variable (*)"]),
]  # fmt: skip


@pytest.mark.parametrize("declared, said, expected", WIDE)
def test_what_a_user_must_agree_to(
    declared: Any, said: Any, expected: list[str], monkeypatch: pytest.MonkeyPatch
):
    """Issue 9: where the manifest asks for much and the pipeline says nothing of it."""
    monkeypatch.setenv("HOME", HOME)
    permissions = Permissions(
        network=NetworkPermissions(allowed_hosts=said.get("hosts")),
        fs=FilesystemPermissions(allowed_preopens=said.get("fs")),
    )
    found = manifest(**declared)
    assert wide_permissions(found, permissions) == expected
    assert wide_permissions(msgspec.structs.replace(found, assumed=True), permissions) == []
    assert wide_permissions(NO_MANIFEST, permissions) == []


FOLDERS = [
    (("/d",), None, ("/d",)),
    (("/d",), ("/d:ro",), ("/d:ro",)),
    (("/d:ro",), ("/d",), ("/d:ro",)),
    (("/d:ro",), None, ("/d:ro",)),
    (("/d", "/d:ro"), ("/d",), ("/d",)),
    (("/d:ro",), ("/e:ro",), ()),
]


@pytest.mark.parametrize("declared, asked, expected", FOLDERS)
def test_a_folder_that_may_only_be_read(declared: Any, asked: Any, expected: Any):
    result = merged(manifest(fs={"preopens": list(declared)}), fs=asked)
    assert result.folders == expected
    given = grants(result, {})
    assert given.read_only == tuple(f[:-3] for f in expected if f.endswith(":ro"))
    assert given.folders == tuple(f for f in expected if not f.endswith(":ro"))


@pytest.mark.parametrize(
    ("declared", "asked"),
    [
        (["{0}", "{0}/in"], ["{0}", "{0}/in:ro"]),
        (["{0}/in:ro", "{0}"], None),
        (["{0}", "{0}:ro"], None),
        (["{0}", "{0}/in/../in/deep:ro"], None),
        (["{0}", "{0}/../link:ro"], None),
        (["/", "{0}:ro"], None),
        (["/{0}", "{0}/in:ro"], None),
    ],
)
def test_l10_a_folder_that_may_only_be_read_lies_in_none_that_may_be_written(
    tmp_path: Path, declared: list[str], asked: list[str] | None
):
    """WASI opens each folder for itself: a guest wrote into ``/d/in:ro`` by ``/d//in``, which is a
    path of ``/d``."""
    outer = tmp_path / "d"
    (outer / "in").mkdir(parents=True)
    (tmp_path / "link").symlink_to(outer / "in")
    found = manifest(fs={"preopens": [text.format(outer) for text in declared]})
    narrowed = None if asked is None else tuple(text.format(outer) for text in asked)
    with pytest.raises(ConfigError) as caught:
        merged(found, fs=narrowed)
    assert caught.value.code == "config.unsupported"
    assert "may only be read" in caught.value.problems[0]


@pytest.mark.parametrize(
    "declared", [("/d:ro", "/d/in"), ("/d", "/dd:ro"), ("/d:ro", "/d/in:ro"), ("/d", "/d/in")]
)
def test_other_folders_may_lie_in_each_other(declared: tuple[str, ...]):
    assert merged(manifest(fs={"preopens": list(declared)})).folders == tuple(sorted(declared))


SETS = [
    (("A", "B"), ("B", "C"), ("B",)),
    (("A", "B"), None, ("A", "B")),
    (("A", "B"), (), ()),
    (("A",), ("B",), ()),
    ((), ("A",), ()),
    (("A",), ("a",), ()),  # exact spellings
]


@pytest.mark.parametrize("declared, asked, expected", SETS)
def test_variables_and_folders_by_set_intersection(declared: Any, asked: Any, expected: Any):
    found = manifest(env={"allowed_vars": list(declared)}, fs={"preopens": list(declared)})
    result = merged(found, env=asked, fs=asked)
    assert result.variables == expected
    assert result.folders == expected


LEAST = [
    # (manifest, pipeline) -> effective
    (None, None, None),
    (100, None, 100),
    (None, 50, 50),
    (100, 50, 50),
    (50, 100, 50),  # the pipeline only narrows
]


@pytest.mark.parametrize("declared, asked, expected", LEAST)
def test_memory_and_time_by_min(declared: int | None, asked: int | None, expected: int | None):
    given = {} if declared is None else {"max_memory": declared, "timeout_seconds": declared}
    result = merged(manifest(limits=given), memory=asked, seconds=asked)
    assert result.max_memory == expected  # default: unlimited
    assert result.timeout_seconds == (300 if expected is None else expected)


def test_a_default_is_no_bound_of_the_manifests():
    assert merged(manifest(), seconds=900).timeout_seconds == 900
    assert merged(manifest(limits={"timeout_seconds": 900})).timeout_seconds == 900


def test_nothing_said_by_the_pipeline_leaves_the_manifest():
    found = manifest(
        network={"allowed_domains": [A]}, env={"allowed_vars": ["V"]}, fs={"preopens": ["/d"]},
        limits={"max_memory": "1kb", "timeout_seconds": 7},
    )  # fmt: skip
    result = effective(found, None, None, {})
    assert (result.hosts, result.variables, result.folders) == ((A,), ("V",), ("/d",))
    assert (result.max_memory, result.timeout_seconds) == (1024, 7)


def test_without_a_manifest_the_block_grants_nothing_and_still_limits():
    """Issue 5, part 9; v4 itself failed open here."""
    result = merged(NO_MANIFEST, hosts=("*.example", A), env=("V",),
                    fs=("/d",), memory=10, seconds=20, config={"host": A})  # fmt: skip
    assert (result.hosts, result.variables, result.folders) == ((), (), ())
    assert (result.max_memory, result.timeout_seconds) == (10, 20)
    assert "it has no manifest" in rule(effective(NO_MANIFEST, None, None,
                                                  {}), "network.allowed_hosts")  # fmt: skip


def test_the_memory_of_a_files_resources_holds_for_each_component():
    """v4 reads ``resources.max_memory`` nowhere."""
    for declared, most, expected in (
        (None, 70, (70, "resources.max_memory")),
        (100, 70, (70, "resources.max_memory")),
        (50, 70, (50, "manifest")),
        (50, None, (50, "manifest")),
    ):
        found = manifest(limits={} if declared is None else {"max_memory": declared})
        result = effective(found, None, None, {}, most)
        assert (result.max_memory, rule(result, "limits.max_memory")) == expected


def test_plan_is_told_which_rule_won():
    found = manifest(network={"allowed_domains": [A, B]}, limits={"max_memory": 100})
    result = merged(found, hosts=(A,), env=(), memory=50)
    assert rule(result, "network.allowed_hosts") == "manifest and pipeline"
    assert rule(result, "env.allowed_vars") == "the pipeline blocks all"
    assert rule(result, "fs.allowed_preopens") == "manifest; the pipeline sets nothing"
    assert rule(result, "limits.max_memory") == "pipeline"
    assert rule(result, "limits.timeout_seconds") == "default"
    kept = merged(found, memory=500)
    assert rule(kept, "limits.max_memory") == "manifest"
    assumed = effective(ManifestResult(manifest=found.manifest, assumed=True), None, None, {})
    assert rule(assumed, "limits.max_memory") == "assume_manifest"


def test_only_variables_that_are_allowed_and_set_are_given():
    found = manifest(env={"allowed_vars": ["GIVEN", "UNSET"]})
    given = grants(merged(found), {"GIVEN": "1", "SECRET": "2"})
    assert given.env == {"GIVEN": "1"}
