"""The facade of the source role: a reference becomes something one can ask.

Not here: reading (``engine`` and ``protocols/*`` do that over ``launch.runtime_for``), building
(``install``). Config is validated against the connector's own schema before the connector is asked,
and its secrets are masked in every answer, error and line (L10).
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from penstock.connectors.environments import Installed
from penstock.connectors.install import Wanted, ensure
from penstock.connectors.launch import Launch, runtime_for
from penstock.connectors.masked import mask_error, masked_sink
from penstock.connectors.reference import ConnectorRef, RefKind, parse_ref
from penstock.connectors.uv_tool import Progress
from penstock.errors import ConfigError, PenstockError
from penstock.model.catalog import Catalog, CheckResult, ConnectorSpec
from penstock.model.events import Event, Log
from penstock.protocols import load
from penstock.protocols.contract import EventSink, ProtocolPackage
from penstock.runtimes.contract import Runtime, Timeouts
from penstock.runtimes.masking import Masker

SPEC_TIMEOUTS = Timeouts(total=300.0)
CHECK_TIMEOUTS = Timeouts(total=600.0)
DISCOVER_TIMEOUTS = Timeouts(total=3600.0)

_SPEC_FORMAT = 1
A = TypeVar("A")


def silent(event: Event, /) -> None:
    """A sink where nobody listens."""


def quiet(text: str) -> None:
    """Progress that nobody watches."""


class _CachedSpec(msgspec.Struct):
    format: int
    spec: ConnectorSpec


class SourceConnector:
    """A source that can be run. ``log`` hears what it says beside its answers, stderr as INFO; it
    is called from another thread too. ``extra_secrets``: values that are secret wherever they
    stand, whatever the connector's schema says of them."""

    def __init__(
        self,
        ref: ConnectorRef,
        protocol: ProtocolPackage,
        launch: Launch,
        *,
        entry: Installed | None = None,
        log: EventSink = silent,
        extra_secrets: Sequence[str] = (),
    ) -> None:
        self._extra_secrets = tuple(extra_secrets)
        self.ref = ref
        self.protocol = protocol
        self._launch = launch
        self._entry = entry
        self._log = log
        self._spec: ConnectorSpec | None = None

    def describe(self) -> dict[str, Any]:
        """``{"connector", "version", "path", "lock"}``; version and lock are None for a local
        command. ``lock``: the hash that names its environment."""
        if self._entry is None:
            path = self._launch.command[0]
            return {"connector": self.ref.text, "version": None, "path": path, "lock": None}
        return describe_installed(self._entry)

    def launch(self) -> Launch:
        return self._launch

    def spec(self, timeouts: Timeouts = SPEC_TIMEOUTS) -> ConnectorSpec:
        """Asked once; of an installed connector once for its environment's life, which its lock
        decides. Raises ``SourceError``."""
        self._spec = self._spec or self._stored_spec()
        if self._spec is None:
            masker = Masker(self._extra_secrets)
            runtime = runtime_for(self._launch, self._extra_secrets, self._heard)
            ask = self.protocol.source.spec
            try:
                self._spec = ask(runtime, timeouts, masked_sink(masker, self._log))
            except PenstockError as e:
                mask_error(masker, e)
                raise
            self._store_spec(self._spec)
        return self._spec

    def validate(self, config: dict[str, Any]) -> None:
        """Raises ``ConfigError`` with every fault and its path."""
        from penstock.protocols.config_schema import validate_config

        for note in validate_config(self.spec(), config, self.protocol.secret_word):
            self._log(Log("WARN", note))

    def secrets(self, config: dict[str, Any]) -> list[str]:
        """The secret values of a config and the extra ones, for ``runtime_for`` and a
        ``Masker``."""
        from penstock.protocols.config_schema import secret_values

        found = secret_values(self.spec().config_schema, config, self.protocol.secret_word)
        return [*found, *self._extra_secrets]

    def check(self, config: dict[str, Any], timeouts: Timeouts = CHECK_TIMEOUTS) -> CheckResult:
        """Raises ``ConfigError`` (config does not fit), ``SourceError``."""
        masker, result = self._ask(self.protocol.source.check, config, timeouts)
        return CheckResult(result.succeeded, result.message and masker.mask(result.message))

    def discover(self, config: dict[str, Any], timeouts: Timeouts = DISCOVER_TIMEOUTS) -> Catalog:
        """Raises ``ConfigError`` (config does not fit), ``SourceError``."""
        return self._ask(self.protocol.source.discover, config, timeouts)[1]

    def _ask(
        self,
        question: Callable[[Runtime, dict[str, Any], Timeouts, EventSink], A],
        config: dict[str, Any],
        timeouts: Timeouts,
    ) -> tuple[Masker, A]:
        self.validate(config)
        secrets = self.secrets(config)
        masker = Masker(secrets)
        runtime = runtime_for(self._launch, secrets, self._heard)
        try:
            return masker, question(runtime, config, timeouts, masked_sink(masker, self._log))
        except PenstockError as e:
            mask_error(masker, e)
            raise

    def _heard(self, line: str) -> None:
        self._log(Log("INFO", line))

    def _spec_file(self) -> Path | None:
        return None if self._entry is None else Path(self._entry.path) / "spec.json"

    def _stored_spec(self) -> ConnectorSpec | None:
        file = self._spec_file()
        if file is None:
            return None
        try:
            cached = msgspec.json.decode(file.read_bytes(), type=_CachedSpec)
        except (OSError, msgspec.DecodeError):
            return None
        return cached.spec if cached.format == _SPEC_FORMAT else None

    def _store_spec(self, spec: ConnectorSpec) -> None:
        file = self._spec_file()
        if file is None:
            return
        temporary = file.with_suffix(".new")
        try:
            temporary.write_bytes(msgspec.json.encode(_CachedSpec(_SPEC_FORMAT, spec)))
            temporary.replace(file)
        except OSError:
            return  # a cache: a home that cannot be written to is asked each time


def resolve_source(
    ref: ConnectorRef | str,
    connectors: Path,
    *,
    log: EventSink = silent,
    progress: Progress = quiet,
    upgrade: bool = False,
    constraints: Sequence[str] = (),
    env_keys: Sequence[str] = (),
    base: Path | None = None,
    extra_secrets: Sequence[str] = (),
) -> SourceConnector:
    """A source, its environment built first if need be. ``connectors``: where environments lie.
    ``upgrade``, ``constraints``: see ``install``. ``env_keys``: variables of ours it is given.
    ``base``: where relative paths count from and local commands run (default: here).
    ``extra_secrets``: see ``SourceConnector``.
    Raises ``ConfigError`` (no such form; not a source connector), ``SourceError``."""
    ref = parse_ref(ref) if isinstance(ref, str) else ref
    if ref.protocol is None:
        raise ConfigError(
            f"{ref.text!r} is not a source connector ({ref.kind.value})",
            code="connector.not_a_source",
            hint="a source is PROTOCOL:NAME, PROTOCOL:./executable or a command",
        )
    protocol = load(ref.protocol)
    if ref.kind is RefKind.package:
        entry = ensure(wanted(ref, protocol, constraints), connectors, progress, upgrade=upgrade)
        return installed_source(ref, protocol, entry, log, env_keys, extra_secrets)
    here = (base or Path.cwd()).absolute()
    command = list(ref.command)
    if ref.kind is RefKind.path:
        command[0] = str((here / Path(command[0]).expanduser()).resolve())
    launch = Launch(
        protocol=protocol.name, command=tuple(command), cwd=str(here), env_keys=tuple(env_keys)
    )
    return SourceConnector(ref, protocol, launch, log=log, extra_secrets=extra_secrets)


def installed_source(
    ref: ConnectorRef,
    protocol: ProtocolPackage,
    entry: Installed,
    log: EventSink = silent,
    env_keys: Sequence[str] = (),
    extra_secrets: Sequence[str] = (),
) -> SourceConnector:
    launch = Launch(
        protocol=protocol.name,
        command=(entry.executable,),
        # Its stdout is JSON, whatever the locale says of text.
        env={"PYTHONUTF8": "1"},
        env_keys=tuple(env_keys),
        environment=entry.environment,
    )
    return SourceConnector(ref, protocol, launch, entry=entry, log=log, extra_secrets=extra_secrets)


def wanted(ref: ConnectorRef, protocol: ProtocolPackage, constraints: Sequence[str] = ()) -> Wanted:
    """What ``install`` is asked for by a reference of kind package."""
    name = ref.name or ""
    package = protocol.command_name(name)
    return Wanted(
        protocol=protocol.name,
        reference=ref.text,
        name=name,
        package=package,
        version=ref.version,
        scripts=(package, name),
        constraints=tuple(constraints),
    )


def describe_installed(entry: Installed) -> dict[str, Any]:
    """One element of ``list``, the answer of ``add`` and ``remove``."""
    environment = entry.environment
    return {
        "connector": f"{environment.protocol}:{entry.name}",
        "version": environment.version,
        "path": entry.path,
        "lock": environment.key,
    }
