"""The user's yes to what a component asks for beyond the usual: every host, this machine, the root
folder.

Asked before any of its code runs, once, and kept in Penstock's home by the hash of its file:
another version asks again. What a pipeline's ``permissions`` name, or narrow, needs no other yes.
Not here: who puts the question (``cli.consent``), what an ask is (``protocols``).
"""

import os
from pathlib import Path

import msgspec

from penstock.connectors.launch import Launch
from penstock.errors import ConfigError
from penstock.files import replace
from penstock.protocols import load


class Wanting(msgspec.Struct, frozen=True, kw_only=True):
    """``asks``: each a few words. ``file``: where the yes is kept."""

    connector: str
    digest: str
    asks: tuple[str, ...]
    file: str

    def agree(self) -> None:
        """Keep the user's yes. Raises ``ConfigError`` where the home refuses."""
        path = Path(self.file)
        kept = sorted({*_kept(path), *self.asks})
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            replace(path, msgspec.json.encode({"connector": self.connector, "asks": kept}))
        except OSError as e:
            raise ConfigError(
                f"the yes to {self.connector} cannot be kept: {path}: {e.strerror}",
                code="config.home",
                hint="set PENSTOCK_HOME or --home to a folder that you may write to",
            ) from None

    def refusal(self) -> ConfigError:
        return ConfigError(
            f"{self.connector} asks for what needs your yes",
            code="connector.consent",
            problems=[f"{self.connector} asks for {ask}" for ask in self.asks],
            hint="name in the pipeline file what it may reach (permissions.network.allowed_hosts, "
            "permissions.fs.allowed_preopens), or say yes once with --yes: it is remembered for "
            "this very file",
        )


def wanting(launch: Launch, connector: str) -> Wanting | None:
    """What a component asks for that nobody has agreed to; none of its code is run. None: nothing,
    or it is no component. Raises ``ConfigError``, ``SourceError``."""
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
    return Wanting(connector=connector, digest=component.digest, asks=left, file=str(file))


class _Agreed(msgspec.Struct):
    asks: list[str] = []


def _kept(file: Path) -> set[str]:
    try:
        return set(msgspec.json.decode(file.read_bytes(), type=_Agreed).asks)
    except (OSError, msgspec.DecodeError):
        return set()
