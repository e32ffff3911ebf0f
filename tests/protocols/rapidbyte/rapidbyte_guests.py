"""Builds the guests of these tests from PyPI alone, once, with the builder and the SDKs that guest
authors use (``examples/rapidbyte``). What was built is kept, named by what it was built from."""

import hashlib
import sys
import tempfile
from collections.abc import Callable, Iterable
from importlib.metadata import version
from pathlib import Path
from typing import Any
from unittest import mock

from kept_builds import KEPT, building
from penstock.protocols.rapidbyte.declared.permissions import EffectivePermissions

ROOT = Path(__file__).parents[3]
SOURCES = ROOT / "tests" / "stubs" / "rapidbyte"
CACHE = KEPT / "rapidbyte-guests"
BUILDER = ROOT / "examples" / "rapidbyte" / "builder"
if str(BUILDER) not in sys.path:
    sys.path.insert(0, str(BUILDER))

import core_component  # noqa: E402
import guests  # noqa: E402
from wit_text import WIT  # noqa: E402


def c_guest(role: str, file: str = "guest.c") -> bytes:
    return c_guest_file(role, file).read_bytes()


def c_guest_file(role: str, file: str = "guest.c") -> Path:
    source = SOURCES / file
    return built(
        f"c-{source.stem}-{role}", [source, *guests.C_SDK.iterdir()],
        lambda out: guests.c_guest([source], role, out, zig_cache=CACHE / "zig"),
    )  # fmt: skip


def lend_script(home: Path, place: Path) -> None:
    """Writes the source ``script.c`` to ``place``, for runs of a home that shares what is
    compiled."""
    home.mkdir(parents=True)
    (CACHE / "compiled").mkdir(parents=True, exist_ok=True)
    (home / "compiled").symlink_to(CACHE / "compiled")
    place.write_bytes(c_guest("source", "script.c"))


def c_guest_without(role: str, function: str, file: str = "guest.c") -> bytes:
    """One that does not export a function of its interface."""
    source = SOURCES / file

    def build(out: Path) -> None:
        wit = core_component.read()
        del wit.interfaces[role].functions[function]
        with mock.patch.object(core_component, "read", lambda: wit):
            guests.c_guest([source], role, out, zig_cache=CACHE / "zig")

    inputs = [source, *guests.C_SDK.iterdir()]
    return built(f"c-{source.stem}-{role}-no-{function}", inputs, build).read_bytes()


def python_guest() -> bytes:
    """A source."""
    sources = [SOURCES / "py_source.py", *guests.PYTHON_SDK.rglob("*.py")]
    return built(
        "py-source", sources,
        lambda out: guests.python_guest("py_source", [SOURCES], "source", out),
    ).read_bytes()  # fmt: skip


def built(name: str, inputs: Iterable[Path], build: Callable[[Path], None]) -> Path:
    """Built anew where an input, the builder, the WIT or a tool is not as it was; by one process of
    tests, while the others wait."""
    digest = hashlib.sha256()
    for package in ("ziglang", "componentize-py"):
        digest.update(f"{package} {version(package)}\n".encode())
    for path in sorted({*inputs, *BUILDER.glob("*.py"), WIT}):
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    kept = CACHE / f"{name}-{digest.hexdigest()[:16]}.wasm"
    with building(kept) as missing:
        if missing:
            with tempfile.TemporaryDirectory(dir=CACHE) as folder:
                out = Path(folder) / f"{name}.wasm"
                build(out)
                out.replace(kept)
    return kept


def allowed(**more: Any) -> EffectivePermissions:
    """What it may reach is named by its user, unless the test says otherwise."""
    fields: dict[str, Any] = {
        "hosts": (),
        "variables": (),
        "folders": (),
        "max_memory": None,
        "timeout_seconds": 60,
        "rulings": (),
    }
    fields["named"] = more.get("hosts", ())
    return EffectivePermissions(**{**fields, **more})
