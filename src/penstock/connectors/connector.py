"""Queries a connector of any role for its spec and a check: validates its config against its own
schema, masks its secrets in every answer, error and line (L10).

Neighbours: ``source``, ``destination`` and ``transform`` are the roles; ``install`` builds
environments.
"""

from collections import deque
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar

import msgspec

from penstock.config.protocol_spec import specs
from penstock.config.sections import Limits, Permissions
from penstock.connectors.consent import ConsentRequest, consent_request
from penstock.connectors.environments import Installed
from penstock.connectors.launch import Launch, connect
from penstock.connectors.moved_dependencies import mending
from penstock.connectors.npm import find_node
from penstock.connectors.reference import ConnectorRef, RefKind
from penstock.errors import ConfigError, PenstockError, Role
from penstock.files import replace
from penstock.model.catalog import CheckResult, ConnectorSpec
from penstock.model.events import Event, LogEvent
from penstock.protocols.connection import Connection, EventSink
from penstock.protocols.contract import EffectiveLimit, ProtocolPackage
from penstock.runtimes.contract import ConnectionStats, Image, RunTimeouts
from penstock.runtimes.env import given_secrets, secrets_of
from penstock.runtimes.masking import Masker, changed_texts

SPEC_TIMEOUTS = RunTimeouts(total=300.0)
CHECK_TIMEOUTS = RunTimeouts(total=600.0)

_SPEC_FORMAT = 2
_LAST_LINES = 60  # a traceback


def silent(event: Event, /) -> None:
    """Drops an event."""


class _CachedSpec(msgspec.Struct):
    format: int
    spec: ConnectorSpec


def installed_launch(
    protocol: ProtocolPackage, entry: Installed, here: Path, env_keys: Sequence[str]
) -> Launch:
    """Returns the launch of an installed connector. ``here``: its working folder, on hosts that
    have that folder. ``env_keys``: variables that it gets. Raises ``ConnectorError``."""
    of_npm = entry.environment.manager == "npm"
    return Launch(
        protocol=protocol.name,
        command=(find_node(), entry.executable) if of_npm else (entry.executable,),
        cwd=str(here),
        # It reads and prints JSON, which is UTF-8 in every locale.
        env={"PYTHONUTF8": "1", **specs()[protocol.name].variables},
        env_keys=tuple(env_keys),
        environment=entry.environment,
    )


def local_launch(
    ref: ConnectorRef, protocol: ProtocolPackage, here: Path, env_keys: Sequence[str]
) -> Launch:
    """Returns the launch of a command, or of an executable by its path. A relative path starts from
    ``here``."""
    command = list(ref.command)
    if ref.kind is RefKind.path:
        command[0] = str((here / Path(command[0]).expanduser()).resolve())
    return Launch(
        protocol=protocol.name, command=tuple(command), cwd=str(here), env_keys=tuple(env_keys)
    )


def restricted(
    launch: Launch,
    role: Role,
    permissions: Permissions | None,
    limits: Limits | None,
    builds: bool = True,
) -> Launch:
    """Returns the launch with its role, and with the permissions and limits that apply to it on
    every host."""
    replace = msgspec.structs.replace
    return replace(launch, role=role, permissions=permissions, limits=limits, builds=builds)


class RunnableConnector:
    """A connector that can be run. ``log`` receives the events other than its answers, stderr as
    INFO; it is called from another thread too. ``extra_secrets``: values masked everywhere,
    independently of the connector's schema. ``timeouts``: the pipeline's, for the spec too."""

    ROLE: ClassVar[Role]
    SPEC_FILE = "spec.json"

    def __init__(
        self,
        ref: ConnectorRef,
        protocol: ProtocolPackage,
        launch: Launch,
        *,
        entry: Installed | None = None,
        log: EventSink = silent,
        extra_secrets: Sequence[str] = (),
        timeouts: RunTimeouts | None = None,
    ) -> None:
        self.ref = ref
        self.protocol = protocol
        self._launch = launch
        self._entry = entry
        self._log = log
        self._extra_secrets = tuple(extra_secrets)
        self._spec_timeouts = SPEC_TIMEOUTS if timeouts is None else _for_spec(timeouts)
        self._spec: ConnectorSpec | None = None
        self._variables: Sequence[str] | None = None
        self._noted: set[str] = set()
        self._last_lines: deque[str] = deque(maxlen=_LAST_LINES)  # of stderr

    @classmethod
    def takes(cls, ref: ConnectorRef, protocol: ProtocolPackage) -> None:
        """Raises ``ConfigError`` where the protocol has no such role."""

    @classmethod
    def stranger(cls, ref: ConnectorRef) -> ConfigError:
        """Returns the error for a reference that is not a connector of this role."""
        return ConfigError(
            f"{ref.text!r} is not a {cls.ROLE} connector ({ref.kind.value})",
            code=f"connector.not_a_{cls.ROLE}",
            hint=f"a {cls.ROLE} connector is PROTOCOL:NAME, PROTOCOL:./executable or a command",
        )

    def describe(self) -> dict[str, Any]:
        """Returns ``{"connector", "version", "path", "lock"}``; version and lock (the hash that
        names its environment, or a component's digest) are None for a local command."""
        component = self._launch.component
        if component is not None:
            lock = component.digest[:12]
            version, path = self._component_version(), component.path
            return {"connector": self.ref.text, "version": version, "path": path, "lock": lock}
        image = self._launch.image
        if image is not None:
            lock = image.id.removeprefix("sha256:")[:12]
            version, path = self.ref.version, image.reference
            return {"connector": self.ref.text, "version": version, "path": path, "lock": lock}
        if self._entry is None:
            path = self._launch.command[0]
            return {"connector": self.ref.text, "version": None, "path": path, "lock": None}
        return describe_installed(self._entry)

    def _component_version(self) -> str | None:
        version = self.spec().abilities.get("manifest", {}).get("version")
        return None if version is None else str(version)

    @property
    def package(self) -> str | None:
        """Returns the package of the index in whose environment it runs; None: it is no package, or
        was named by its address."""
        entry = self._entry
        return None if entry is None or entry.environment.url else entry.environment.package

    def launch(self) -> Launch:
        """Returns what is needed to run it. Raises ``ConfigError`` (``connector.consent``)."""
        self._consented()
        return self._launch

    @property
    def image(self) -> Image | None:
        """Returns the image of its container; None: it is not a container image."""
        return self._launch.image

    def asks(self) -> list[EffectiveLimit]:
        """Returns the permissions that its manifest requests; runs none of its code."""
        manifest = self.protocol.manifest
        return [] if manifest is None else manifest.asks(self._launch)

    def consent_request(self) -> ConsentRequest | None:
        """Returns the permissions that it requests and the user has not agreed to; None if there
        are none."""
        return consent_request(self._launch, self.ref.text)

    def _consented(self) -> None:
        """Raises ``ConfigError`` (``connector.consent``) where the user has not agreed to its
        permissions; called before any of its code runs."""
        request = self.consent_request()
        if request is not None:
            raise request.refusal()

    def spec(self) -> ConnectorSpec:
        """Returns its spec. Requests it once; of an installed connector once per environment, whose
        lock fixes its code. Raises ``ConfigError``, the role's error."""
        self._spec = self._spec or self._stored_spec()
        if self._spec is None:
            with self._asked(self._extra_secrets) as connection:
                self._spec = connection.spec(self._spec_timeouts, self._log)
            self._store_spec(self._spec)
        return self._spec

    def validate(self, config: dict[str, Any]) -> list[str]:
        """Validates a config against the connector's schema. Returns notes for the caller to show.
        Raises ``ConfigError`` with every problem and its path."""
        from penstock.protocols.json_schema.config_check import validate_config

        notes = validate_config(self.spec(), config, self.protocol.secret_word, self._detail)
        self._noted.update(notes)
        return notes

    def _detail(self, text: str) -> None:
        """Logs a detail once."""
        if text not in self._noted:
            self._noted.add(text)
            self._log(LogEvent("DEBUG", text))

    def _validated(self, config: dict[str, Any]) -> None:
        """Validates a config before the connector gets it. Logs notes that were not yet returned to
        a caller. Raises ``ConfigError``."""
        given = set(self._noted)
        for note in self.validate(config):
            if note not in given:
                self._log(LogEvent("WARN", note))

    def effective_limits(self, config: dict[str, Any]) -> tuple[list[EffectiveLimit], list[str]]:
        """Returns the permissions and limits that its manifest and the user grant it, and notes;
        empty where its protocol has no manifests."""
        manifest = self.protocol.manifest
        if manifest is None:
            return [], []
        with Masker(self.secrets(config)).errors():
            return manifest.effective(self._launch, config)

    def built(self) -> list[str]:
        """Returns notes of its environment: packages that were built from source, and a package of
        another name than the reference's."""
        notes = [] if self._entry is None else list(self._entry.environment.sources)
        if notes:
            notes = [f"built from source, which ran their code: {', '.join(notes)}"]
        named = self.protocol.package_names(self.ref.name or "")[0]
        if self.package not in (None, named):
            full = f"{self.protocol.name}:{self.package}"
            notes.append(
                f"{self.ref.text} stays the package {self.package} here, which it meant before: a "
                f"new pipeline would get {named}; write `use: {full}`"
            )
        return notes

    def secrets(self, config: dict[str, Any]) -> list[str]:
        """Returns the secret values of a config and the extra ones, for a ``Masker``."""
        from penstock.protocols.json_schema.config_check import secret_values

        found = secret_values(self.spec().config_schema, config, self.protocol.secret_word)
        return [*found, *self._extra_secrets, *self._given()]

    def _given(self) -> list[str]:
        """Returns the values of the environment variables that it gets."""
        manifest = self.protocol.manifest
        if self._launch.component is None or manifest is None:
            return given_secrets(self._launch)
        if self._variables is None:
            lines, _ = manifest.effective(self._launch, {})
            self._variables = next((n.value for n in lines if n.name == "env.allowed_vars"), ())
        return secrets_of(self._variables or ())

    def changed(self, before: dict[str, Any], after: dict[str, Any]) -> None:
        """Adds the values that are new in a changed configuration (CONTROL) to the secrets,
        regardless of its schema: any of them may be a credential (L10)."""
        self._extra_secrets = (*self._extra_secrets, *sorted(changed_texts(before, after)))

    def check(self, config: dict[str, Any], timeouts: RunTimeouts = CHECK_TIMEOUTS) -> CheckResult:
        """Runs its check. Raises ``ConfigError`` (the config does not fit), the role's error."""
        self._consented()
        self._validated(config)
        with self._asked(self.secrets(config)) as connection:
            return connection.check(config, timeouts, self._log)

    @contextmanager
    def _asked(self, secrets: Sequence[str]) -> Generator[Connection]:
        """Yields a connection for one request. Adds a hint to an error with a known cause."""
        try:
            yield connect(self._launch, Masker(secrets), ConnectionStats(), stderr=self._heard)
        except PenstockError as e:
            said = "\n".join((*self._last_lines, e.message))
            e.hint = self.mending(said) or e.hint
            raise

    def mending(self, words: str) -> str | None:
        """Returns a hint if it failed with these words because a dependency moved."""
        entry = self._entry
        given = () if entry is None else entry.constraints
        return mending(words, self.ref.text, given=given, installed=entry is not None)

    def _heard(self, line: str) -> None:
        self._last_lines.append(line)
        self._log(LogEvent("INFO", line))

    def _spec_file(self) -> Path | None:
        return None if self._entry is None else Path(self._entry.path) / self.SPEC_FILE

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
        try:
            cached = _CachedSpec(_SPEC_FORMAT, spec)
            replace(file, msgspec.json.encode(cached), permissions=0o666)
        except OSError:
            return  # a cache: without it the connector is queried each time


def _for_spec(timeouts: RunTimeouts) -> RunTimeouts:
    """Returns the timeouts of the request for the spec: the pipeline's until the first output. Its
    total is meant for runs of hours, and does not bound an answer."""
    total = max(timeouts.start, SPEC_TIMEOUTS.total or 0.0)
    return RunTimeouts(start=timeouts.start, stop=timeouts.stop, total=total)


def describe_installed(entry: Installed) -> dict[str, Any]:
    """Returns an environment in the form of ``list``, ``add`` and ``remove``."""
    environment = entry.environment
    return {
        "connector": f"{environment.protocol}:{environment.url or entry.name}",
        "version": environment.version,
        "path": entry.path,
        "lock": environment.key,
        "built_from_source": list(environment.sources),
    }
