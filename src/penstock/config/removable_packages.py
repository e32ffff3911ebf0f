"""Refuses features that need a package that users may remove to save disk (docs/install.md).

Not here: pandas and Polars, which the user chooses (``api.reading``).
"""

from importlib.util import find_spec

from penstock.config.packages import install
from penstock.errors import ConfigError

_NEEDED_BY = {
    "datafusion": "the transform transform-sql",
    "deltalake": "a delta: destination",
    "wasmtime": "a WebAssembly component",
}


def need(package: str) -> None:
    """Raises ``ConfigError`` (``config.package``) where ``package`` is not installed."""
    if find_spec(package) is None:
        raise ConfigError(
            f"{_NEEDED_BY[package]} needs the package {package}, which is not installed",
            code="config.package",
            hint=install(package),
        )
