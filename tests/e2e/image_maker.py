"""Makes container images without a registry: a docker-archive of this machine's own Python, its
libraries, BusyBox and folders of files, in layers that several images share.

What it writes is the same for the same input: entries are sorted, times and owners are zero.
"""

import hashlib
import io
import json
import os
import re
import stat
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

_SKIPPED = re.compile(
    r"(^|/)(test|tests|idlelib|turtledemo|tkinter|lib2to3|ensurepip|distutils|pydoc_data"
    r"|__pycache__|site-packages|config-3[^/]*)(/|$)"
    r"|\.(a|pyc)$|(^|/)(_test|_xx|xxlimited|_ctypes_test|_tkinter)[^/]*\.so$"
)
_CACHES = re.compile(r"(^|/)__pycache__(/|$)|\.pyc$")
_OF_PACKAGES = re.compile(_CACHES.pattern + r"|(^|/)(tests?|bin)(/|$)")
_BUSYBOX = "/bin/busybox"
_USERS = (
    b"root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/sh\n"
    b"airbyte:x:1000:1000::/tmp:/bin/sh\n"
)
PACKAGES = "/usr/lib/python{}.{}/site-packages".format(*sys.version_info[:2])
PYTHON_ENV = (
    "PATH=/usr/bin:/bin",
    "PYTHONHOME=/usr",
    f"PYTHONPATH={PACKAGES}",  # Debian's Python looks elsewhere
    "PYTHONDONTWRITEBYTECODE=1",
)


class Layer:
    """Files of an image, by path."""

    def __init__(self) -> None:
        self._entries: dict[str, tuple[bytes, int, bytes | str]] = {}

    def folder(self, name: str, mode: int = 0o755) -> None:
        name = name.strip("/")
        while name and name not in self._entries:
            self._entries[name] = (tarfile.DIRTYPE, mode, b"")
            name, mode = os.path.dirname(name), 0o755

    def file(self, name: str, data: bytes, mode: int = 0o644) -> None:
        self.folder(os.path.dirname(name))
        self._entries[name.strip("/")] = (tarfile.REGTYPE, mode, data)

    def link(self, name: str, target: str) -> None:
        self.folder(os.path.dirname(name))
        self._entries[name.strip("/")] = (tarfile.SYMTYPE, 0o777, target)

    def copy(self, source: str, name: str) -> None:
        executable = os.stat(source).st_mode & stat.S_IXUSR
        self.file(name, Path(source).read_bytes(), 0o755 if executable else 0o644)

    def tree(self, source: Path, name: str, skipped: re.Pattern[str] = _CACHES) -> None:
        for path in sorted(source.rglob("*")):
            inside = path.relative_to(source).as_posix()
            if path.is_file() and not skipped.search(inside):
                self.copy(str(path), f"{name}/{inside}")

    def tar(self) -> bytes:
        out = io.BytesIO()
        with tarfile.open(fileobj=out, mode="w", format=tarfile.GNU_FORMAT) as archive:
            for name in sorted(self._entries):
                kind, mode, content = self._entries[name]
                member = tarfile.TarInfo(name)
                member.type, member.mode, member.mtime = kind, mode, 0
                if isinstance(content, str):
                    member.linkname = content
                    archive.addfile(member)
                else:
                    member.size = len(content)
                    archive.addfile(member, io.BytesIO(content))
        return out.getvalue()


@dataclass(frozen=True)
class Made:
    """An image: its tag, its layers from the bottom, what it starts and as whom."""

    tag: str
    layers: tuple[bytes, ...]
    entrypoint: tuple[str, ...] = ()
    user: str = ""
    env: tuple[str, ...] = PYTHON_ENV
    more: dict[str, Any] = field(default_factory=dict)

    def config(self) -> bytes:
        made = {
            "architecture": "amd64" if os.uname().machine == "x86_64" else "arm64",
            "os": "linux",
            "created": "1970-01-01T00:00:00Z",
            "config": {
                "Env": list(self.env),
                "Entrypoint": list(self.entrypoint) or None,
                "User": self.user,
                "WorkingDir": "/",
                **self.more,
            },
            "rootfs": {"type": "layers", "diff_ids": [_digest(x) for x in self.layers]},
            "history": [{"created": "1970-01-01T00:00:00Z"} for _ in self.layers],
        }
        return json.dumps(made, sort_keys=True).encode()


def write_archive(path: Path, images: Iterable[Made]) -> None:
    """What ``docker load`` takes; a layer that several images have is in it once."""
    manifest: list[dict[str, Any]] = []
    written: set[str] = set()
    with tarfile.open(path, "w") as archive:

        def add(name: str, content: bytes) -> None:
            if name not in written:
                written.add(name)
                member = tarfile.TarInfo(name)
                member.size = len(content)
                archive.addfile(member, io.BytesIO(content))

        for image in images:
            config = image.config()
            name = f"{hashlib.sha256(config).hexdigest()}.json"
            layers = [f"{_digest(x)[7:]}/layer.tar" for x in image.layers]
            for layer, content in zip(layers, image.layers, strict=True):
                add(layer, content)
            add(name, config)
            manifest.append({"Config": name, "RepoTags": [image.tag], "Layers": layers})
        add("manifest.json", json.dumps(manifest).encode())


def python_layer() -> bytes:
    """This machine's Python with its standard library and the shared libraries that it needs, and
    no shell."""
    layer = Layer()
    version = "{}.{}".format(*sys.version_info[:2])
    library = Path(sysconfig.get_paths()["stdlib"])
    program = os.path.realpath(sys.executable)
    layer.copy(program, f"/usr/bin/python{version}")
    layer.link("/usr/bin/python3", f"python{version}")
    layer.tree(library, f"/usr/lib/python{version}", _SKIPPED)
    layer.folder(PACKAGES)
    modules = sorted((library / "lib-dynload").glob("*.so"))
    kept = [str(m) for m in modules if not _SKIPPED.search(m.name)]
    for name, real in sorted(_libraries([program, *kept]).items()):
        ours = name.startswith(sys.base_prefix)
        layer.copy(real, f"/usr/lib/{os.path.basename(name)}" if ours else name)
    for name in ("libnss_files.so.2", "libnss_dns.so.2"):
        for found in Path("/lib").glob(f"*/{name}"):
            layer.copy(os.path.realpath(found), str(found))
    for name in ("/proc", "/sys", "/dev", "/etc", "/root", "/run"):
        layer.folder(name)
    layer.folder("/tmp", 0o1777)
    layer.file("/etc/passwd", _USERS)
    layer.file("/etc/group", b"root:x:0:\nnogroup:x:65534:\nairbyte:x:1000:\n")
    layer.file("/etc/nsswitch.conf", b"hosts: files dns\npasswd: files\ngroup: files\n")
    return layer.tar()


def shell_layer() -> bytes:
    """BusyBox and a link for each of its commands."""
    layer = Layer()
    layer.copy(_BUSYBOX, _BUSYBOX)
    listed = subprocess.run([_BUSYBOX, "--list"], capture_output=True, text=True, check=True)
    for name in sorted({*listed.stdout.split()} - {"busybox"}):
        layer.link(f"/bin/{name}", "busybox")
    return layer.tar()


def node_layer(program: str) -> bytes:
    """This machine's Node.js and its shared libraries."""
    layer = Layer()
    layer.copy(os.path.realpath(program), "/usr/bin/node")
    for name, real in sorted(_libraries([program]).items()):
        layer.copy(real, name)
    return layer.tar()


def folder_layer(folder: Path, name: str) -> bytes:
    """Every file below it, at ``name``."""
    layer = Layer()
    layer.tree(folder, name)
    return layer.tar()


def packages_layer(folder: Path) -> bytes:
    """Installed packages, without their tests, and the shared libraries that they need."""
    layer = Layer()
    layer.tree(folder, PACKAGES, _OF_PACKAGES)
    own = {path.name for path in folder.rglob("*.so*")}
    for name, real in sorted(_libraries([str(p) for p in folder.rglob("*.so")]).items()):
        if os.path.basename(name) not in own:
            layer.copy(real, name)
    return layer.tar()


def compiled_layer(folder: Path, statement: str) -> bytes:
    """The byte code of every module that ``statement`` imports of these packages and of the
    standard library: without it each container would compile them anew."""
    with tempfile.TemporaryDirectory() as made:
        told = subprocess.run(
            [sys.executable, "-c", _COMPILE.format(statement), made],
            capture_output=True,
            text=True,
            check=True,
            env={**os.environ, "PYTHONPATH": str(folder), "PYTHONNOUSERSITE": "1"},
        )
        layer = Layer()
        library = sysconfig.get_paths()["stdlib"]
        inside = f"/usr/lib/python{'{}.{}'.format(*sys.version_info[:2])}"
        for line in told.stdout.splitlines():
            compiled, _, source = line.partition(" ")
            for outside, place in ((str(folder), PACKAGES), (library, inside)):
                if (
                    source.startswith(f"{outside}/")
                    and "site-packages" not in source[len(outside) :]
                ):
                    layer.copy(compiled, place + source[len(outside) :])
                    break
        return layer.tar()


_COMPILE = """
import importlib.util, py_compile, sys
{}
for number, module in enumerate(list(sys.modules.values())):
    source = getattr(module, "__file__", None) or ""
    if source.endswith(".py"):
        target = f"{{sys.argv[1]}}/{{number}}.pyc"
        mode = py_compile.PycInvalidationMode.UNCHECKED_HASH
        py_compile.compile(source, target, invalidation_mode=mode)
        print(target, importlib.util.cache_from_source(source))
"""


def files_layer(files: dict[str, Path]) -> bytes:
    """Folders and files of this machine, each at a path of the image."""
    layer = Layer()
    for name, path in files.items():
        if path.is_dir():
            layer.tree(path, name)
        else:
            layer.copy(str(path), name)
    return layer.tar()


def has_shell() -> bool:
    return os.path.exists(_BUSYBOX)


def _libraries(programs: list[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for program in programs:
        told = subprocess.run(["ldd", program], capture_output=True, text=True).stdout
        for match in re.finditer(r"(?:=> )?(/\S+) \(0x", told):
            found[match[1]] = os.path.realpath(match[1])
    return found


def _digest(layer: bytes) -> str:
    return f"sha256:{hashlib.sha256(layer).hexdigest()}"
