"""Builds the guests of these tests from PyPI alone, once: C through ziglang, Python through
componentize-py. What was built lies beside pytest's cache, named by what it was built from."""

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path

from core_guest import componentize
from wit_text import WIT

ROOT = Path(__file__).parents[3]
SOURCES = ROOT / "tests" / "stubs" / "rapidbyte"
CACHE = ROOT / ".pytest_cache" / "rapidbyte-guests"
HERE = Path(__file__).parent
_ZIG = [
    "cc", "-target", "wasm32-freestanding", "-mcpu=generic+bulk_memory", "-O2", "-nostdlib",
    "-Wl,--no-entry", "-Wl,-z,stack-size=65536", "-s",
]  # fmt: skip


def c_guest(role: str) -> bytes:
    source = SOURCES / "guest.c"
    tools = [HERE / "core_guest.py", HERE / "wit_text.py", WIT]
    return _built(
        f"c-{role}", [source, *tools], f"ziglang {version('ziglang')} {_ZIG}",
        lambda out: _compile_c(source, role, out),
    )  # fmt: skip


def python_guest() -> bytes:
    """A source."""
    sources = [SOURCES / "py_source.py", SOURCES / "ipc_writer.py"]
    return _built(
        "py-source", [*sources, WIT], f"componentize-py {version('componentize-py')}",
        _componentize_python,
    )  # fmt: skip


def _compile_c(source: Path, role: str, out: Path) -> None:
    core = out.with_suffix(".core")
    command = [sys.executable, "-m", "ziglang", *_ZIG, f"-DROLE_{role.upper()}",
               "-o", str(core), str(source)]  # fmt: skip
    env = {**os.environ, "ZIG_GLOBAL_CACHE_DIR": str(CACHE / "zig")}
    _run(command, env)
    out.write_bytes(componentize(core.read_bytes(), role))


def _componentize_python(out: Path) -> None:
    tool = Path(sys.executable).with_name("componentize-py")
    with tempfile.TemporaryDirectory() as wit:
        shutil.copy(WIT, wit)
        command = [str(tool), "-d", wit, "-w", "rapidbyte-source", "componentize",
                   "-p", str(SOURCES), "py_source", "-o", str(out)]  # fmt: skip
        _run(command, {k: v for k, v in os.environ.items() if k != "VIRTUAL_ENV"})


def _run(command: list[str], env: dict[str, str]) -> None:
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"


def _built(name: str, inputs: list[Path], tool: str, build: object) -> bytes:
    digest = hashlib.sha256(tool.encode())
    for path in inputs:
        digest.update(path.read_bytes())
    kept = CACHE / f"{name}-{digest.hexdigest()[:16]}.wasm"
    if not kept.exists():
        CACHE.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=CACHE) as folder:
            out = Path(folder) / f"{name}.wasm"
            assert callable(build)
            build(out)
            out.replace(kept)
        for old in set(CACHE.glob(f"{name}-*.wasm")) - {kept}:
            old.unlink(missing_ok=True)
    return kept.read_bytes()
