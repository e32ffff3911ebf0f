"""Environments built by uv from wheels made here: real builds, without the network."""

import os
import shutil
import stat
import subprocess
import sys
import threading
import zipfile
from pathlib import Path

import msgspec
import pytest

from penstock.connectors import uv
from penstock.connectors.environments import installed, mark_ready, version_key
from penstock.connectors.install import PackageRequest, ensure, remove
from penstock.connectors.launch import Launch, ready
from penstock.connectors.uv import satisfies
from penstock.errors import SourceError
from penstock.runtimes.contract import RunTimeouts
from penstock.runtimes.masking import Masker
from penstock.runtimes.process import ProcessRuntime

pytestmark = pytest.mark.network


def wheel(
    folder: Path,
    name: str,
    version: str,
    *,
    requires_python: str = "",
    requires: tuple[str, ...] = (),
    scripts: tuple[str, ...] = (),
) -> None:
    """A wheel whose scripts print their arguments and version."""
    stem = name.replace("-", "_")
    info = f"{stem}-{version}.dist-info"
    metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
    metadata += f"Requires-Python: {requires_python}\n" if requires_python else ""
    metadata += "".join(f"Requires-Dist: {r}\n" for r in requires)
    points = "".join(f"{s} = {stem}:main\n" for s in scripts)
    folder.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(folder / f"{stem}-{version}-py3-none-any.whl", "w") as z:
        z.writestr(f"{stem}.py", f"import sys\ndef main(): print({version!r}, *sys.argv[1:])\n")
        z.writestr(f"{info}/METADATA", metadata)
        z.writestr(
            f"{info}/WHEEL",
            "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        )
        if points:
            z.writestr(f"{info}/entry_points.txt", f"[console_scripts]\n{points}")
        z.writestr(f"{info}/RECORD", "")


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of wheels in the place of the package registry."""
    wheels = tmp_path / "wheels"
    wheels.mkdir()
    monkeypatch.setenv("UV_NO_INDEX", "1")
    monkeypatch.setenv("UV_FIND_LINKS", str(wheels))
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "cache"))
    return wheels


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home" / "connectors"


def want(
    name: str, version: str | None = None, constraints: tuple[str, ...] = ()
) -> PackageRequest:
    return PackageRequest(
        protocol="airbyte",
        reference=f"airbyte:{name}",
        name=name,
        package=f"airbyte-{name}",
        version=version,
        scripts=(f"airbyte-{name}", name),
        prefixes=("source-", "destination-"),
        constraints=constraints,
    )


def quiet(text: str) -> None:
    pass


def answer(executable: str) -> str:
    return subprocess.check_output([executable, "spec"], text=True).strip()


def test_built_once_and_then_used_without_the_index(index: Path, home: Path) -> None:
    wheel(index, "airbyte-source-a", "1.0", requires=("dep",), scripts=("source-a", "other"))
    wheel(index, "airbyte-source-a", "1.1", requires=("dep",), scripts=("source-a", "other"))
    wheel(index, "dep", "3.0")
    said: list[str] = []
    first = ensure(want("source-a"), home, said.append)
    assert first.environment.version == "1.1"
    pins = [w for w in first.environment.lock.split() if "==" in w]
    assert pins == ["airbyte-source-a==1.1", "dep==3.0"]
    assert first.environment.lock.count("--hash=sha256:") == 2 and first.environment.sources == ()
    assert answer(first.executable) == "1.1 spec"
    assert any("resolving" in line for line in said) and any("ready" in line for line in said)
    shutil.rmtree(index)
    assert ensure(want("source-a"), home, quiet) == first
    assert ensure(want("source-a", "1.1"), home, quiet) == first
    assert installed(home) == [first]


def test_versions_lie_side_by_side_upgrade_and_removal(index: Path, home: Path) -> None:
    wheel(index, "airbyte-source-a", "1.9", scripts=("source-a",))
    old = ensure(want("source-a"), home, quiet)
    wheel(index, "airbyte-source-a", "1.10", scripts=("source-a",))
    assert ensure(want("source-a"), home, quiet) == old, "the index is not asked again"
    new = ensure(want("source-a"), home, quiet, upgrade=True)
    assert new.environment.version == "1.10"
    assert ensure(want("source-a"), home, quiet) == new
    assert ensure(want("source-a", "1.9"), home, quiet) == old
    assert ensure(want("source-a"), home, quiet, upgrade=True) == new, "same lock, same folder"
    assert remove(want("source-a", "1.9"), home, quiet) == [old]
    assert not Path(old.path).exists()
    assert installed(home) == [new]
    assert remove(want("source-a"), home, quiet) == [new]
    assert remove(want("source-b"), home, quiet) == []
    assert installed(home) == []


def test_constraints_bound_dependencies_and_make_another_environment(
    index: Path, home: Path
) -> None:
    """An old connector whose unpinned dependency moved on (airbyte.md §7, 9)."""
    wheel(index, "airbyte-source-a", "1.0", requires=("cdk",), scripts=("source-a",))
    wheel(index, "cdk", "1.0")
    wheel(index, "cdk", "7.0")
    newest = ensure(want("source-a", "1.0"), home, quiet)
    bounded = ensure(want("source-a", "1.0", ("cdk<2",)), home, quiet)
    assert "cdk==7.0" in newest.environment.lock
    assert "cdk==1.0" in bounded.environment.lock
    assert newest.environment.key != bounded.environment.key
    assert ensure(want("source-a", "1.0"), home, quiet) == newest


def test_an_unfinished_build_is_built_again_and_cleared(index: Path, home: Path) -> None:
    wheel(index, "airbyte-source-a", "1.0", scripts=("source-a",))
    first = ensure(want("source-a"), home, quiet)
    (Path(first.path) / "READY").unlink()
    again = ensure(want("source-a"), home, quiet)
    assert answer(again.executable) == "1.0 spec"
    left = [p.name for p in Path(again.path).parent.iterdir() if p.is_dir()]
    assert left == [Path(again.path).name]


def test_an_environment_that_lost_its_python_is_built_again(index: Path, home: Path) -> None:
    wheel(index, "airbyte-source-a", "1.0", scripts=("source-a",))
    first = ensure(want("source-a"), home, quiet)
    python = Path(first.path) / "venv" / "bin" / "python"
    python.unlink()
    python.symlink_to("/no/such/python")
    assert installed(home) == []
    assert answer(ensure(want("source-a"), home, quiet).executable) == "1.0 spec"


def test_concurrent_builders_build_once(index: Path, home: Path) -> None:
    wheel(index, "airbyte-source-a", "1.0", scripts=("source-a",))
    results: list[str] = []
    said: list[str] = []

    def build() -> None:
        results.append(ensure(want("source-a"), home, said.append).path)

    threads = [threading.Thread(target=build) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert len(results) == 3 and len(set(results)) == 1
    assert sum("installing" in line for line in said) == 1
    assert any("another process builds" in line for line in said)


def test_executable_is_the_named_script_or_the_only_one(index: Path, home: Path) -> None:
    wheel(index, "airbyte-source-a", "1.0", scripts=("helper", "airbyte-source-a"))
    wheel(index, "airbyte-source-b", "1.0", scripts=("strange",))
    wheel(index, "airbyte-source-c", "1.0", scripts=("one", "two"))
    assert ensure(want("source-a"), home, quiet).environment.script == "airbyte-source-a"
    assert ensure(want("source-b"), home, quiet).environment.script == "strange"
    with pytest.raises(SourceError) as caught:
        ensure(want("source-c"), home, quiet)
    assert caught.value.code == "connector.no_executable"
    assert "one, two" in str(caught.value)
    assert [e.name for e in installed(home)] == ["source-a", "source-b"]


def test_wrong_name_says_what_was_tried(index: Path, home: Path) -> None:
    wheel(index, "airbyte-source-a", "1.0", scripts=("source-a",))
    with pytest.raises(SourceError) as caught:
        ensure(want("source-nope"), home, quiet)
    assert caught.value.code == "connector.not_found"
    assert "airbyte-source-nope" in str(caught.value)
    assert "was not found" in str(caught.value) and "\n" not in caught.value.message
    assert not (home / "airbyte" / "airbyte-source-nope").exists()
    with pytest.raises(SourceError) as caught:
        ensure(want("a"), home, quiet)
    assert caught.value.hint == "did you mean airbyte:source-a ?"


def test_wrong_version_names_the_newest(index: Path, home: Path) -> None:
    wheel(index, "airbyte-source-a", "1.0", scripts=("source-a",))
    with pytest.raises(SourceError) as caught:
        ensure(want("source-a", "9.9"), home, quiet)
    assert caught.value.code == "connector.not_found"
    assert "9.9" in str(caught.value)
    assert "1.0" in (caught.value.hint or "")


def test_what_cannot_be_resolved_is_told_in_uvs_words(index: Path, home: Path) -> None:
    wheel(index, "airbyte-source-a", "1.0", requires=("gone>=2",), scripts=("source-a",))
    with pytest.raises(SourceError) as caught:
        ensure(want("source-a"), home, quiet)
    assert caught.value.code == "connector.install_failed"
    assert "gone" in str(caught.value)


def test_python_that_is_not_here_is_named_and_never_downloaded(index: Path, home: Path) -> None:
    """uv itself ignores the upper bound."""
    wheel(index, "airbyte-source-a", "1.0", requires_python=">=3.5,<3.6", scripts=("source-a",))
    with pytest.raises(SourceError) as caught:
        ensure(want("source-a"), home, quiet)
    assert caught.value.code == "connector.python_missing"
    assert "<3.6" in str(caught.value)


def test_another_installed_python_is_taken_where_ours_is_excluded(
    index: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours = uv.our_python()
    other = uv.Python(ours.path, (3, 9, 1))  # ours under another number: none is installed
    monkeypatch.setattr(uv, "other_pythons", lambda: [other])
    wheel(index, "airbyte-source-a", "1.0", requires_python=">=3.8,<3.10", scripts=("source-a",))
    assert ensure(want("source-a"), home, quiet).environment.python == "3.9"


def test_a_host_without_the_environment_rebuilds_it_from_the_launch(
    index: Path, home: Path
) -> None:
    """A worker needs only the launch: exact pins, no resolution."""
    wheel(index, "airbyte-source-a", "1.0", requires=("dep",), scripts=("source-a",))
    wheel(index, "dep", "1.0")
    entry = ensure(want("source-a"), home, quiet)
    launch = Launch(protocol="airbyte", command=(entry.executable,), environment=entry.environment)
    shutil.rmtree(home)
    wheel(index, "dep", "2.0")
    sent = msgspec.json.decode(msgspec.json.encode(launch), type=Launch)
    with ProcessRuntime.of(ready(sent), Masker()).open(["spec"], RunTimeouts()) as channel:
        assert channel.read(30) == b"1.0 spec\n"
    assert [e.environment.lock for e in installed(home)] == [entry.environment.lock]


def test_a_home_that_cannot_be_written(tmp_path: Path, index: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    with pytest.raises(SourceError) as caught:
        ensure(want("source-a"), blocked / "connectors", quiet)
    assert caught.value.code == "connector.install_failed"
    assert "--home" in (caught.value.hint or "")


def test_the_marker_is_whole_or_absent(index: Path, home: Path) -> None:
    wheel(index, "airbyte-source-a", "1.0", scripts=("source-a",))
    entry = ensure(want("source-a"), home, quiet)
    marker = Path(entry.path) / "READY"
    assert stat.S_ISREG(os.stat(marker).st_mode)
    marker.write_bytes(marker.read_bytes()[:40])
    assert installed(home) == []
    mark_ready(entry)
    assert installed(home) == [entry]


@pytest.mark.parametrize(
    ("version", "specifier", "fits"),
    [
        ((3, 11, 7), "", True),
        ((3, 11, 7), ">=3.10,<3.12", True),
        ((3, 12, 0), ">=3.10,<3.12", False),
        ((3, 11, 7), ">=3.10, <4.0", True),
        ((3, 11, 7), "<=3.11", False),
        ((3, 11, 7), "==3.11.*", True),
        ((3, 10, 1), "!=3.10.*", False),
        ((3, 11, 7), "~=3.9", True),
        ((3, 11, 7), "~=3.10.2", False),
        ((3, 9, 0), "~=3.9.0", True),
        ((3, 11, 7), ">3.11", True),
        ((3, 11, 7), "strange", True),
    ],
)
def test_requires_python(version: tuple[int, int, int], specifier: str, fits: bool) -> None:
    assert satisfies(version, specifier) is fits


def test_versions_in_order() -> None:
    versions = ["1.10", "1.9", "1.10rc1", "0.0.48", "2.0.dev1"]
    assert sorted(versions, key=version_key) == ["0.0.48", "1.9", "1.10rc1", "1.10", "2.0.dev1"]


def test_light_import_of_what_a_lane_needs() -> None:
    code = (
        "import sys, penstock.connectors.launch\n"
        "print([m for m in ('uv','asyncio','sqlalchemy','typer','rich','pyspark','yaml',"
        "'jsonschema_rs','penstock.connectors.install') if m in sys.modules])"
    )
    assert subprocess.check_output([sys.executable, "-c", code], text=True) == "[]\n"
