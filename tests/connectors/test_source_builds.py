"""L10: code of a package that is built from source is held to what the connector itself is, gets
none of our variables, cannot reach the package index with our passwords, and is built once; locks
hold hashes that a rebuild checks."""

import base64
import http.server
import io
import json
import os
import shutil
import subprocess
import tarfile
import threading
from collections.abc import Generator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from test_install import answer, home, index, quiet, want, wheel

from penstock.config.command_line import Options, with_options
from penstock.config.load import parse_pipeline
from penstock.config.sections import (
    EnvironmentPermissions,
    Install,
    Limits,
    NetworkPermissions,
    Permissions,
)
from penstock.connectors import source_builds, uv
from penstock.connectors.install import PackageRequest, ensure, rebuild
from penstock.connectors.launch import Launch, ready
from penstock.connectors.reference import RefKind, parse_ref
from penstock.connectors.resolve import resolve
from penstock.connectors.source import SourceConnector
from penstock.connectors.source_builds import needs_build, without
from penstock.errors import ConfigError, SourceError
from penstock.runtimes import limits as confine
from penstock.runtimes.limits import no_namespace

pytestmark = pytest.mark.network

__all__ = ["home", "index"]  # fixtures

# A build back end that lies in the package itself, so that nothing else is fetched: it writes down
# each call and what it sees, then makes the wheel.
BACKEND = """
import json, os, zipfile
def _note(call):
    with open({witness!r}, "a") as f:
        f.write(json.dumps({{"call": call, "env": dict(os.environ)}}) + "\\n")
    {body}
INFO = "Metadata-Version: 2.1\\nName: {name}\\nVersion: {version}\\n{requires}"
WHEEL = "Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n"
POINTS = "[console_scripts]\\nsource-a = {module}:main\\n"
def get_requires_for_build_wheel(settings=None):
    _note("requires")
    return {needs!r}
def prepare_metadata_for_build_wheel(folder, settings=None):
    _note("metadata")
    info = "{module}-{version}.dist-info"
    os.makedirs(os.path.join(folder, info))
    open(os.path.join(folder, info, "METADATA"), "w").write(INFO)
    return info
def build_wheel(folder, settings=None, metadata=None):
    _note("build")
    name = "{module}-{version}-py3-none-any.whl"
    info = "{module}-{version}.dist-info/"
    with zipfile.ZipFile(os.path.join(folder, name), "w") as z:
        z.writestr("{module}.py", "import sys\\ndef main(): print('built', *sys.argv[1:])\\n")
        z.writestr(info + "METADATA", INFO)
        z.writestr(info + "WHEEL", WHEEL)
        z.writestr(info + "entry_points.txt", POINTS)
        z.writestr(info + "RECORD", "")
    return name
"""
PROJECT = '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'


def source(
    folder: Path,
    witness: Path,
    name: str = "airbyte-source-a",
    version: str = "1.0",
    *,
    requires_python: str = "",
    body: str = "pass",
    needs: tuple[str, ...] = (),
) -> Path:
    """A source distribution, in metadata so old that its dependencies are not in it. ``needs``: to
    be built, which it says only when it is run."""
    module = name.replace("-", "_")
    requires = f"Requires-Python: {requires_python}\n" if requires_python else ""
    told: dict[str, Any] = {
        "witness": str(witness),
        "name": name,
        "version": version,
        "module": module,
    }
    told["needs"] = list(needs)
    backend = BACKEND.format(**told, body=body, requires=requires.replace("\n", "\\n"))
    info = f"Metadata-Version: 1.2\nName: {name}\nVersion: {version}\n{requires}"
    file = folder / f"{module}-{version}.tar.gz"
    with tarfile.open(file, "w:gz") as archive:
        for path, text in (
            ("backend.py", backend),
            ("pyproject.toml", PROJECT),
            ("PKG-INFO", info),
        ):
            member = tarfile.TarInfo(f"{module}-{version}/{path}")
            member.size = len(text.encode())
            archive.addfile(member, io.BytesIO(text.encode()))
    return file


def calls(witness: Path) -> list[dict[str, Any]]:
    if not witness.exists():
        return []
    return [json.loads(line) for line in witness.read_text().splitlines()]


def under(wanted: PackageRequest, **changes: Any) -> PackageRequest:
    return msgspec.structs.replace(wanted, **changes)


def test_a_source_package_is_built_once_without_our_variables(
    index: Path, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_TOKEN", "leak")
    monkeypatch.setenv("PENSTOCK_HOME", "leak")
    monkeypatch.setenv("UV_PUBLISH_TOKEN", "leak")
    witness = tmp_path / "witness"
    source(index, witness)
    said: list[str] = []
    entry = ensure(want("source-a"), home, said.append)
    assert answer(entry.executable) == "built spec"
    seen = calls(witness)
    assert [c["call"] for c in seen].count("build") == 1
    assert not [c for c in seen if "leak" in c["env"].values()]
    assert entry.environment.sources == ("airbyte-source-a",)
    assert "building from source: airbyte-source-a" in said
    assert not list(home.rglob(".uv-*")), "its cache is gone"
    assert not list((tmp_path / "cache").glob("sdists-*/**/*.whl")), "none for other projects"
    number = len(seen)
    assert ensure(want("source-a"), home, quiet) == entry
    assert len(calls(witness)) == number


def test_wheels_run_nothing(index: Path, home: Path, tmp_path: Path) -> None:
    """Not even where a source of the same version lies beside."""
    witness = tmp_path / "witness"
    source(index, witness)
    wheel(index, "airbyte-source-a", "1.0", scripts=("source-a",))
    entry = ensure(want("source-a"), home, quiet)
    assert entry.environment.sources == () and calls(witness) == []


def test_where_builds_are_refused_nothing_of_it_runs(
    index: Path, home: Path, tmp_path: Path
) -> None:
    witness = tmp_path / "witness"
    source(index, witness)
    with pytest.raises(SourceError) as caught:
        ensure(under(want("source-a"), builds=False), home, quiet)
    assert caught.value.code == "connector.build_refused"
    assert "--no-builds" in caught.value.message and "airbyte-source-a" in caught.value.message
    assert calls(witness) == []


def test_a_dependency_that_is_source_counts_too(index: Path, home: Path, tmp_path: Path) -> None:
    witness = tmp_path / "witness"
    wheel(index, "airbyte-source-a", "1.0", requires=("dep",), scripts=("source-a",))
    source(index, witness, "dep", "2.0")
    with pytest.raises(SourceError) as caught:
        ensure(under(want("source-a"), builds=False), home, quiet)
    assert caught.value.code == "connector.build_refused" and "dep exists" in caught.value.message
    assert calls(witness) == []
    entry = ensure(want("source-a"), home, quiet)
    assert entry.environment.sources == ("dep",)
    assert [c["call"] for c in calls(witness)].count("build") == 1


# What code of a package may try: everything that it finds is written down.
HOSTILE = """
import glob, json, os, urllib.request
found = dict(os.environ)
places = glob.glob("/proc/[0-9]*/environ") + glob.glob("/proc/[0-9]*/cmdline")
for home in {homes!r} + [os.path.expanduser("~")]:
    places += [home + n for n in ("/.netrc", "/.config/uv/uv.toml", "/.config/pip/pip.conf")]
for folder, _, names in os.walk({cache!r}):
    places += [os.path.join(folder, n) for n in names if not n.endswith(".tar.gz")]
for place in places:
    try:
        with open(place, "rb") as f:
            found[place] = f.read().decode("latin-1")
    except OSError:
        pass
try:
    found["reached"] = urllib.request.urlopen({url!r}, timeout=5).read().decode("latin-1")
except Exception as e:
    found["reached"] = repr(e)
with open({out!r}, "a") as f:
    f.write(json.dumps(found) + "\\n")
"""


class Index(http.server.BaseHTTPRequestHandler):
    """A package index that wants a password; the files lie in ``folder``."""

    folder: Path
    refused = 0

    def do_GET(self) -> None:
        wanted = "Basic " + base64.b64encode(b"me:p4ssw0rd-env").decode()
        parts = self.path.strip("/").split("/")
        if self.headers.get("Authorization") != wanted:
            type(self).refused += 1
            self.send_response(401)
            self.send_header("WWW-Authenticate", 'Basic realm="index"')
            content = b""
        elif parts[0] == "files":
            self.send_response(200)
            content = (self.folder / parts[1]).read_bytes()
        else:
            stem = parts[1].replace("-", "_") + "-"
            names = [f.name for f in self.folder.iterdir() if f.name.startswith(stem)]
            self.send_response(200 if names else 404)
            self.send_header("Content-Type", "text/html")
            content = "".join(f'<a href="/files/{n}">{n}</a>' for n in names).encode()
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture
def guarded(index: Path, monkeypatch: pytest.MonkeyPatch) -> Generator[str]:
    """The index behind a password that uv has from its environment; its address without."""
    Index.folder, Index.refused = index, 0
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Index)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    port = server.server_address[1]
    monkeypatch.delenv("UV_NO_INDEX")
    monkeypatch.delenv("UV_FIND_LINKS")
    monkeypatch.setenv("UV_DEFAULT_INDEX", f"http://me:p4ssw0rd-env@127.0.0.1:{port}/simple")
    yield f"http://127.0.0.1:{port}/simple"
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize("hosts", [None, (), ("db.corp",)])
def test_hostile_code_of_a_build_finds_no_password_and_no_network(
    index: Path,
    guarded: str,
    home: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    hosts: tuple[str, ...] | None,
) -> None:
    """What builds it, known only by running it and source itself, uv fetches all the same."""
    if (why := no_namespace()) is not None:
        pytest.skip(f"this machine has no namespaces: {why}")
    user = tmp_path / "user"
    (user / ".config" / "uv").mkdir(parents=True)
    (user / ".config" / "uv" / "uv.toml").write_text("# p4ssw0rd-toml\n")
    (user / ".netrc").write_text("machine elsewhere.example login me password p4ssw0rd-netrc\n")
    monkeypatch.setenv("HOME", str(user))
    out, script = tmp_path / "out", tmp_path / "hostile.py"
    script.write_text(
        HOSTILE.format(homes=[str(user)], cache=str(home), url=f"{guarded}/dep/", out=str(out))
    )
    body = f"exec(open({str(script)!r}).read(), {{}})"
    source(index, tmp_path / "witness", body=body, needs=("dep",))
    source(index, tmp_path / "witness", "dep", "2.0", body=body)
    network = None if hosts is None else NetworkPermissions(allowed_hosts=hosts)
    entry = ensure(under(want("source-a"), permissions=Permissions(network=network)), home, quiet)
    assert answer(entry.executable) == "built spec"
    python = Path(entry.path) / "venv" / "bin" / "python"
    assert python.resolve() == Path(uv.our_python().path)
    seen = [json.loads(line) for line in out.read_text().splitlines()]
    assert len(seen) > 4, "both packages, each hook"
    assert not [k for s in seen for k, v in s.items() if "p4ssw0rd" in v]
    assert not [k for s in seen for k in s if k.startswith("UV_")]
    assert all(s["HOME"] != str(user) for s in seen)
    reached = "Connection refused" if hosts is not None else "401"
    assert all(reached in s["reached"] for s in seen)


def test_a_build_without_a_network_is_refused_where_there_are_no_namespaces(
    index: Path, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(confine, "no_namespace", lambda: "not here")
    monkeypatch.setattr(source_builds, "no_namespace", lambda: "not here")
    witness = tmp_path / "witness"
    source(index, witness)
    held = Permissions(network=NetworkPermissions(allowed_hosts=()))
    with pytest.raises(SourceError) as caught:
        ensure(under(want("source-a"), permissions=held), home, quiet)
    assert caught.value.code == "connector.build_refused"
    assert "no network namespace (not here)" in caught.value.message
    assert calls(witness) == []
    ensure(want("source-a"), home, quiet)
    assert not [k for c in calls(witness) for k in c["env"] if k.startswith("UV_")]


def test_where_uv_would_build_with_another_python_nothing_is_built(
    index: Path, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_stand_in(self: source_builds.BuildPolicy, python: uv.Python, folder: Path) -> None:
        (folder / "bin").mkdir(parents=True)
        (folder / "bin" / "python3").symlink_to(python.path)

    monkeypatch.setattr(source_builds.BuildPolicy, "_make_stand_in", no_stand_in)
    witness = tmp_path / "witness"
    source(index, witness)
    with pytest.raises(SourceError, match="would not be confined") as caught:
        ensure(want("source-a"), home, quiet)
    assert caught.value.code == "connector.build_refused" and calls(witness) == []


def test_a_worker_builds_only_what_the_pipeline_lets_build(
    index: Path, home: Path, tmp_path: Path
) -> None:
    """The environment was made before, by `add`; another host has not got it."""
    witness = tmp_path / "witness"
    source(index, witness)
    ensure(want("source-a"), home, quiet)
    number = len(calls(witness))
    built = resolve(SourceConnector, "airbyte:source-a", home, base=tmp_path, builds=False)
    sent = msgspec.json.decode(msgspec.json.encode(built.launch()), type=Launch)
    shutil.rmtree(home)
    with pytest.raises(SourceError) as caught:
        ready(sent)
    assert caught.value.code == "connector.build_refused" and len(calls(witness)) == number
    assert "PENSTOCK_HOME" in (caught.value.hint or "")


def test_a_worker_builds_without_a_network_where_the_connector_has_none(
    index: Path, home: Path, tmp_path: Path
) -> None:
    if (why := no_namespace()) is not None:
        pytest.skip(f"this machine has no namespaces: {why}")
    held = Permissions(network=NetworkPermissions(allowed_hosts=()))
    net = tmp_path / "net"
    body = f"open({str(net)!r}, 'a').write(os.readlink('/proc/self/ns/net') + '\\n')"
    source(index, tmp_path / "witness", body=body)
    built = resolve(SourceConnector, "airbyte:source-a", home, base=tmp_path, permissions=held)
    shutil.rmtree(home)
    net.unlink()
    ready(built.launch())
    assert os.readlink("/proc/self/ns/net") not in net.read_text().split()


def test_a_build_is_under_the_connector_s_limit_of_memory(
    index: Path, home: Path, tmp_path: Path
) -> None:
    source(index, tmp_path / "witness", body="hog = bytearray(600 << 20)")
    limits = Limits(max_memory=256 << 20)
    with pytest.raises(SourceError) as caught:
        ensure(under(want("source-a"), limits=limits), home, quiet)
    assert caught.value.code == "source.memory"


def test_variables_granted_to_a_connector_are_not_its_build_s(
    index: Path, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_TOKEN", "leak")
    witness = tmp_path / "witness"
    source(index, witness)
    held = Permissions(env=EnvironmentPermissions(allowed_vars=("MY_TOKEN",)))
    ensure(under(want("source-a"), permissions=held), home, quiet)
    assert calls(witness) and not [c for c in calls(witness) if "MY_TOKEN" in c["env"]]


def test_the_newest_is_taken_also_where_only_an_older_one_has_a_wheel(
    index: Path, home: Path, tmp_path: Path
) -> None:
    wheel(index, "airbyte-source-a", "0.9", scripts=("source-a",))
    source(index, tmp_path / "witness", version="1.0")
    assert ensure(want("source-a"), home, quiet).environment.version == "1.0"


def test_the_pythons_that_a_source_accepts_are_known(
    index: Path, home: Path, tmp_path: Path
) -> None:
    """uv takes no notice of an upper bound; old connectors mean it."""
    source(index, tmp_path / "witness", requires_python=">=3.6,<3.7")
    with pytest.raises(SourceError) as caught:
        ensure(want("source-a"), home, quiet)
    assert caught.value.code == "connector.python_missing"


def test_a_rebuild_checks_the_hashes_of_the_lock(index: Path, home: Path, tmp_path: Path) -> None:
    """On another host the index gives other files under the same names and versions."""
    witness = tmp_path / "witness"
    source(index, witness, "dep", "2.0")
    wheel(index, "airbyte-source-a", "1.0", requires=("dep",), scripts=("source-a",))
    first = ensure(want("source-a"), home, quiet).environment
    assert first.lock.count("--hash=sha256:") == 2
    elsewhere = msgspec.structs.replace(first, folder=str(tmp_path / "elsewhere"))
    assert answer(rebuild(elsewhere, None, None)).endswith(" spec")
    number = len(calls(witness))
    source(index, witness, "dep", "2.0", body="evil = 1")
    third = msgspec.structs.replace(first, folder=str(tmp_path / "third"))
    with pytest.raises(SourceError, match=r"[Hh]ash mismatch"):
        rebuild(third, None, None)
    assert len(calls(witness)) == number, "what is not what was locked is not run"


def test_plan_and_add_say_what_was_built(index: Path, home: Path, tmp_path: Path) -> None:
    source(index, tmp_path / "witness")
    built = resolve(SourceConnector, "airbyte:source-a", home, base=tmp_path)
    assert built.describe()["built_from_source"] == ["airbyte-source-a"]
    assert built.built() == ["built from source, which ran their code: airbyte-source-a"]
    wheel(index, "airbyte-source-b", "1.0", scripts=("source-b",))
    assert resolve(SourceConnector, "airbyte:source-b", home, base=tmp_path).built() == []


def test_the_file_and_the_command_line_refuse_builds_and_bound_versions() -> None:
    text = """
version: "1.0"
pipeline: p
source: { use: "airbyte:source-a", install: { builds: false, constraints: ["pydantic<2"] } }
destination: { use: "singer:target-b" }
"""
    pipeline = parse_pipeline(text, {}, name="p.yaml")
    assert pipeline.source.install == Install(builds=False, constraints=("pydantic<2",))
    assert pipeline.destination.install == Install()
    over = with_options(pipeline, Options(constraints=("six<1",), no_builds=True))
    assert over.source.install == Install(builds=False, constraints=("pydantic<2", "six<1"))
    assert over.destination.install == Install(builds=False, constraints=("six<1",))


@pytest.mark.parametrize("protocol", ["airbyte", "singer"])
def test_who_dies_of_pkg_resources_is_told_what_to_pin(
    home: Path, tmp_path: Path, protocol: str
) -> None:
    file = tmp_path / "old"
    words = "Traceback (most recent call last):\\nModuleNotFoundError: No module named "
    file.write_text(f"#!/bin/sh\nprintf \"{words}'pkg_resources'\\n\" >&2\nexit 1\n")
    file.chmod(0o755)
    with pytest.raises(SourceError) as caught:
        resolve(SourceConnector, f"{protocol}:{file}", home, base=tmp_path).discover({})
    assert caught.value.hint is not None and "--constraint 'setuptools<80'" in caught.value.hint


def test_a_constraint_on_setuptools_installs_it(index: Path, home: Path) -> None:
    """Nothing asks for it: it is imported by packages that took it for granted."""
    wheel(index, "airbyte-source-a", "1.0", scripts=("source-a",))
    wheel(index, "setuptools", "79.0")
    wheel(index, "setuptools", "90.0")
    entry = ensure(want("source-a", constraints=("setuptools<80",)), home, quiet)
    assert "setuptools==79.0" in entry.environment.lock


def test_a_package_at_an_address_is_locked_by_its_hash(
    index: Path, home: Path, tmp_path: Path
) -> None:
    """An archive of source: confined as any build; the index of a worker needs not have it."""
    witness = tmp_path / "witness"
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    url = source(elsewhere, witness, "tap-x", "1.0").as_uri()
    with pytest.raises(SourceError) as caught:
        resolve(SourceConnector, f"singer:{url}", home, base=tmp_path, builds=False)
    assert caught.value.code == "connector.build_refused" and calls(witness) == []
    built = resolve(SourceConnector, f"singer:{url}", home, base=tmp_path)
    environment = built.launch().environment
    assert environment is not None and environment.lock.count("--hash=sha256:") == 1
    assert environment.url == url and environment.sources == ("tap-x",)
    assert built.describe()["connector"] == f"singer:{url}"
    assert [c["call"] for c in calls(witness)].count("build") == 1
    number = len(calls(witness))
    assert (
        resolve(SourceConnector, f"singer:{url}", home, base=tmp_path).describe()
        == built.describe()
    )
    assert len(calls(witness)) == number
    source(elsewhere, witness, "tap-x", "1.0", body="evil = 1")
    with pytest.raises(SourceError, match=r"[Hh]ash mismatch"):
        rebuild(msgspec.structs.replace(environment, folder=str(tmp_path / "third")))


def test_a_repository_is_locked_at_its_commit(index: Path, home: Path, tmp_path: Path) -> None:
    if shutil.which("git") is None:
        pytest.skip("git is not here")
    repository = tmp_path / "tap-x"
    with tarfile.open(source(tmp_path, tmp_path / "witness", "tap-x", "1.0")) as archive:
        archive.extractall(tmp_path)
    (tmp_path / "tap_x-1.0").rename(repository)
    git = ["git", "-C", str(repository), "-c", "user.name=a", "-c", "user.email=a@b"]
    subprocess.run([*git, "init", "-q"], check=True)
    subprocess.run([*git, "add", "."], check=True)
    subprocess.run([*git, "commit", "-q", "-m", "one"], check=True)
    head = subprocess.check_output([*git, "rev-parse", "HEAD"], text=True).strip()
    built = resolve(SourceConnector, f"singer:git+{repository.as_uri()}", home, base=tmp_path)
    environment = built.launch().environment
    assert environment is not None and environment.version == head[:12]
    assert f"@{head}" in environment.lock


def test_a_wheel_at_an_address_runs_nothing(index: Path, home: Path, tmp_path: Path) -> None:
    wheel(tmp_path / "elsewhere", "tap-y", "2.0", scripts=("tap-y",))
    file = next((tmp_path / "elsewhere").glob("*.whl"))
    built = resolve(SourceConnector, f"singer:{file.as_uri()}", home, base=tmp_path, builds=False)
    assert answer(built.launch().command[0]) == "2.0 spec"
    assert built.built() == []


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("singer:git+https://github.com/org/tap-x.git@v1.2", "tap-x"),
        ("singer:git+ssh://git@host/org/tap_x.git", "tap-x"),
        ("airbyte:https://host/files/source_x-1.0-py3-none-any.whl", "source-x"),
        ("singer:https://host/archive/main.zip#egg=tap-x", "tap-x"),
    ],
)
def test_addresses_as_pip_takes_them(text: str, name: str) -> None:
    ref = parse_ref(text)
    assert (ref.kind, ref.name, ref.url) == (RefKind.package, name, text.partition(":")[2])


@pytest.mark.parametrize(
    "address",
    [
        "git+https://me:hunter2@host/tap-x.git",
        "git+https://hunter2@host/tap-x.git",  # a token, as GitHub takes it
        "git+ssh://git:hunter2@host/tap-x.git",
        "https://hunter2@host/",
        "ftp://me:hunter2@host/tap-x.zip",  # of no known kind
    ],
)
def test_a_password_in_an_address_is_refused_and_not_quoted(address: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_ref(f"singer:{address}")
    assert "hunter2" not in f"{caught.value.message} {caught.value.hint}"


def test_uv_s_words_for_a_package_without_a_wheel() -> None:
    hint = "hint: Wheels are required for `tap-x` because building from source is disabled"
    assert needs_build(hint) == "tap-x"
    assert needs_build("Because tap-x==1.0 has no usable wheels and you require it") == "tap-x"
    assert needs_build("Because there is no version of tap-x==99") is None


def test_a_lock_without_some_packages() -> None:
    lock = "a==1 \\\n    --hash=sha256:00\nb-c==2 \\\n    --hash=sha256:11\n"
    assert without(lock, ["b-c"]) == "a==1 \\\n    --hash=sha256:00\n"
    assert without(lock, ["b"]) == lock
