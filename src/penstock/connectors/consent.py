"""Records the user's consent to the wide permissions that a component requests: every host, this
machine, the root folder.

Consent is required once, before any of its code runs, and kept in Penstock's home by the hash of
the component's file: another version requires it again. Permissions that a pipeline's
``permissions`` name, or narrow, need no consent. Not here: the question to the user
(``cli.consent``), the manifest (``protocols``).
"""

import os
from pathlib import Path

import msgspec

from penstock.connectors.launch import Launch
from penstock.errors import ConfigError
from penstock.files import replace
from penstock.protocols import load


class ConsentRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Permissions that a component requests and the user has not agreed to. ``asks``: a short text
    each. ``file``: where the consent is kept."""

    connector: str
    digest: str
    asks: tuple[str, ...]
    file: str

    def agree(self) -> None:
        """Records the user's consent. Raises ``ConfigError`` where the home cannot be written."""
        path = Path(self.file)
        kept = sorted({*_kept(path), *self.asks})
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            replace(path, msgspec.json.encode({"connector": self.connector, "asks": kept}))
        except OSError as e:
            raise ConfigError(
                f"the consent to {self.connector} cannot be saved: {path}: {e.strerror}",
                code="config.home",
                hint="set PENSTOCK_HOME or --home to a folder that you may write to",
            ) from None

    def refusal(self) -> ConfigError:
        """Returns the error for a component without consent."""
        return ConfigError(
            f"{self.connector} requests what needs your consent",
            code="connector.consent",
            problems=[f"{self.connector} requests {ask}" for ask in self.asks],
            hint="name in the pipeline file what it may reach (permissions.network.allowed_hosts, "
            "permissions.fs.allowed_preopens), or agree once with --yes, which is remembered for "
            "this file",
        )


def consent_request(launch: Launch, connector: str) -> ConsentRequest | None:
    """Returns the permissions that a component requests and the user has not agreed to; None: there
    are none, or it is no component. Runs none of its code. Raises ``ConfigError``,
    ``SourceError``."""
    component, manifest = launch.component, load(launch.protocol).manifest
    if component is None or manifest is None:
        return None
    asks = manifest.wide(launch)
    if not asks:
        return None
    folder = component.agreements
    file = Path(folder or os.devnull) / component.digest
    kept = _kept(file) if folder is not None else set[str]()
    left = tuple(ask for ask in asks if ask not in kept)
    if not left:
        return None
    return ConsentRequest(connector=connector, digest=component.digest, asks=left, file=str(file))


class _Agreed(msgspec.Struct):
    asks: list[str] = []


def _kept(file: Path) -> set[str]:
    try:
        return set(msgspec.json.decode(file.read_bytes(), type=_Agreed).asks)
    except (OSError, msgspec.DecodeError):
        return set()
