"""Guests, compiled once per process, and the stages that run them."""

from collections.abc import Callable
from typing import Any

import pytest
import rapidbyte_guests

from penstock.protocols.rapidbyte.guest.session import CompiledConnector, load
from penstock.protocols.rapidbyte.guest.stage import Stage
from penstock.runtimes.wasm.compile_cache import CompileCache

COMPILED = rapidbyte_guests.CACHE / "compiled"


@pytest.fixture(scope="session")
def cache() -> CompileCache:
    return CompileCache(COMPILED)


@pytest.fixture(scope="session")
def guest(cache: CompileCache) -> Callable[..., CompiledConnector]:
    def loaded(role: str, *, plain: bool = False) -> CompiledConnector:
        return load(rapidbyte_guests.c_guest(role), role, cache, plain=plain)  # type: ignore[arg-type]

    return loaded


@pytest.fixture(scope="session")
def stage(guest: Callable[..., CompiledConnector]) -> Callable[..., Stage]:
    """``stage(role, config, plain=False, allow={...}, **Stage fields)``."""

    def made(
        role: str,
        config: dict[str, Any],
        *,
        plain: bool = False,
        allow: dict[str, Any] | None = None,
        **more: Any,
    ) -> Stage:
        loaded = guest(role, plain=plain)
        return Stage(loaded, config, rapidbyte_guests.allowed(**(allow or {})), role, **more)

    return made
