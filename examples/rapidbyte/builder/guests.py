"""Guests from source, with tools from the package registry alone: Python through componentize-py, C
through ziglang; and their manifest, put into the binary.

A folder of its own holds what makes one connector: the code, ``manifest.json`` and
``config-schema.json``. Not here: how a core module becomes a component (``core_component``), which
examples there are (``../build.py``). The tests build their own guests with it too.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from boundary import binary
from core_component import componentize
from wit_text import WIT

ROLES = ("source", "destination", "transform")
SDK = Path(__file__).parents[1] / "sdk"
C_SDK = SDK / "c"
PYTHON_SDK = SDK / "python"
SECTIONS = {
    "manifest.json": "rapidbyte_manifest_v1",
    "config-schema.json": "rapidbyte_config_schema_v1",
}
ZIG = (
    "cc", "-target", "wasm32-freestanding", "-mcpu=generic+bulk_memory", "-O2", "-nostdlib",
    "-Wl,--no-entry", "-Wl,-z,stack-size=65536", "-s",
)  # fmt: skip
_PYTHON_TOOL = "import sys; from componentize_py import script; sys.exit(script())"
_LONGEST = 600
"""Seconds that a tool may take."""


class BuildError(Exception):
    """A tool failed or is not there; its message says what to do."""


def c_guest(
    sources: Sequence[Path],
    role: str,
    out: Path,
    manifest: Path | None = None,
    zig_cache: Path | None = None,
) -> None:
    """C with the SDK's files to one component. ``manifest``: the folder that has one."""
    env = dict(os.environ)
    if zig_cache is not None:
        env["ZIG_GLOBAL_CACHE_DIR"] = str(zig_cache)
    with tempfile.TemporaryDirectory() as folder:
        core = Path(folder) / "core.wasm"
        sdk = sorted(C_SDK.glob("*.c"))
        _run(
            [sys.executable, "-m", "ziglang", *ZIG, f"-DROLE_{role.upper()}", f"-I{C_SDK}",
             "-o", str(core), *map(str, [*sources, *sdk])],
            env,
            needs="ziglang",
        )  # fmt: skip
        component = componentize(core.read_bytes(), role)
    out.write_bytes(with_sections(component, manifest))


def python_guest(
    module: str, folders: Sequence[Path], role: str, out: Path, manifest: Path | None = None
) -> None:
    """``module``: the one that has the class of the role; it and what it imports lie in
    ``folders`` or in the SDK."""
    with tempfile.TemporaryDirectory() as scratch:
        wit = Path(scratch) / "wit"
        wit.mkdir()
        shutil.copy(WIT, wit)
        made = Path(scratch) / "made.wasm"
        paths = [part for folder in (*folders, PYTHON_SDK) for part in ("-p", str(folder))]
        # A virtual environment's packages would be put into the guest.
        env = {k: v for k, v in os.environ.items() if k != "VIRTUAL_ENV"}
        _run(
            [sys.executable, "-c", _PYTHON_TOOL, "-d", str(wit), "-w", f"rapidbyte-{role}",
             "componentize", *paths, module, "-o", str(made)],
            env,
            needs="componentize-py",
        )  # fmt: skip
        out.write_bytes(with_sections(made.read_bytes(), manifest))


def with_sections(component: bytes, folder: Path | None) -> bytes:
    """The component with what the folder says of it, as custom sections at its end."""
    out = [component]
    for file, section in SECTIONS.items() if folder is not None else ():
        assert folder is not None
        text = json.dumps(json.loads((folder / file).read_text()), separators=(",", ":"))
        out.append(
            binary.encode_section(binary.CUSTOM, binary.encode_name(section) + text.encode())
        )
    return b"".join(out)


def _run(command: list[str], env: dict[str, str], needs: str) -> None:
    done = subprocess.run(
        command, env=env, capture_output=True, text=True, timeout=_LONGEST, check=False
    )
    if done.returncode == 0:
        return
    said = (done.stdout + done.stderr).strip()
    if "No module named" in said:
        raise BuildError(f"{needs} is not installed here: see README.md beside build.py\n{said}")
    raise BuildError(f"{needs} failed with {done.returncode}:\n{said}")
