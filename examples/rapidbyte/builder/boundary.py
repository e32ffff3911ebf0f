"""Penstock's own modules for the outer form of binaries (``wasm_binary``) and the names of the
boundary (``wit``), taken by their files: the package around them needs more than the building of
guests."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

_FOLDER = Path(__file__).parents[3] / "src" / "penstock" / "protocols" / "rapidbyte" / "wire"


def _module(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"rapidbyte_{name}", _FOLDER / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


abi = _module("wit")
binary = _module("wasm_binary")
