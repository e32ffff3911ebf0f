"""Queries a connector that is named without a pipeline: resolves it, builds its environment if it
is missing, checks it.

No record moves to a destination and no JVM starts. Not here: printing (``cli``). Neighbours:
``roles`` decides which end a connector is; ``connectors`` runs it.
"""

from collections.abc import Callable
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from penstock.api.property_facts import properties_of
from penstock.api.roles import AskedRole, class_of, end_of
from penstock.config.home import Home
from penstock.config.sections import Install
from penstock.engine.specs.observer import RunObserver
from penstock.errors import ConfigError
from penstock.model.catalog import CheckResult, ConnectorSpec
from penstock.model.events import Control, Error, Event, LogEvent, SkippedItems

if TYPE_CHECKING:
    from penstock.connectors.connector import RunnableConnector
    from penstock.connectors.consent import ConsentRequest
    from penstock.connectors.reference import ConnectorRef

_NOT_KEPT = (
    "the connector changed its configuration, and this verb has no pipeline to save the change "
    "in: the old configuration may not work again; name a pipeline, which saves it"
)
Hear = Callable[[Event], None]
Settle = Callable[["list[ConsentRequest]"], None]
"""Asks the user for consent to permissions. Raises ``ConfigError`` without it."""
C = TypeVar("C", bound="RunnableConnector")


def reference(word: str) -> "ConnectorRef":
    """Parses a CONNECTOR. Raises ``ConfigError``."""
    from penstock.connectors.reference import parse_ref

    return parse_ref(word)


def source_reference(word: str) -> "ConnectorRef":
    """Parses a reference to a source. Raises ``ConfigError`` for a table, and for a package with
    the name of a destination."""
    ref = reference(word)
    if ref.format is not None:
        raise ConfigError(
            f"{word} is a table, not a source",
            code="connector.not_a_source",
            hint="name a connector, such as airbyte:source-faker",
        )
    if ref.name is not None and end_of(ref) is AskedRole.destination:
        raise ConfigError(
            f"{word} is a destination: it has no streams of its own",
            code="connector.not_a_source",
            hint="name a source; a destination has only `spec` and `check`",
        )
    return ref


def asked(
    kind: "type[C]", ref: "ConnectorRef", home: Home, observer: RunObserver, install: Install
) -> tuple[C, Hear]:
    """Returns a connector, whose environment is built first if it is missing, and the function that
    receives its events."""
    from penstock.connectors.resolve import resolve

    hear = listener(observer, AskedRole(kind.ROLE))
    found = resolve(
        kind,
        ref,
        home.connectors,
        log=hear,
        progress=lambda step: observer.phase("install", step),
        constraints=install.constraints,
        builds=install.builds,
    )
    return found, hear


class AskedSpec(NamedTuple):
    """A connector's specification. ``use``: its reference, of a package with the version that
    answered; ``secret_word``: as of a protocol package."""

    use: str
    spec: ConnectorSpec
    secret_word: str | None


def asked_spec(
    ref: "ConnectorRef",
    end: AskedRole,
    home: Home,
    observer: RunObserver,
    install: Install,
    settle: Settle,
) -> AskedSpec:
    """Requests the connector's specification. Raises ``ConfigError``, the role's error."""
    connector, _ = asked(class_of(end), ref, home, observer, install)
    settle(wanted_of(connector))
    spec = connector.spec()
    version = connector.describe()["version"]
    pinned = ref.name is not None and ref.version is None and ref.url is None and version
    use = f"{ref.text}@{version}" if pinned else ref.text
    return AskedSpec(use, spec, connector.protocol.secret_word)


def listed_settings(asked: AskedSpec) -> dict[str, Any] | None:
    """Returns the schema of the settings that the index lists for a connector that does not
    describe its configuration, as ``listed_schema`` makes it; None: it does, or the index has
    none."""
    from penstock.connectors.catalog.settings import listed_schema

    own = asked.spec.config_schema
    if properties_of(own, own):
        return None
    ref = reference(asked.use)
    name = ref.name or (PurePath(ref.command[0]).name if ref.command else "")
    return listed_schema(ref.protocol, name)


def check_connector(
    ref: "ConnectorRef",
    end: AskedRole,
    config: dict[str, Any],
    home: Home,
    observer: RunObserver,
    install: Install,
    settle: Settle,
) -> CheckResult:
    """Checks one end: a connector's credentials, or that a table's place is writable. Raises
    ``ConfigError``, the role's error."""
    if ref.format is None:
        connector, _ = asked(class_of(end), ref, home, observer, install)
        settle(wanted_of(connector))
        result = connector.check(config)
        return CheckResult(result.succeeded, result.message, end)
    from penstock.tables.formats import open_table

    options = {name: str(value) for name, value in config.items()}
    open_table(ref.format or "", ref.target or options.pop("path", ""), options).check()
    return CheckResult(True, f"{ref.text} can be written", end)


def wanted_of(connector: "RunnableConnector") -> "list[ConsentRequest]":
    """Lists the permissions that the connector requests and the user has not agreed to."""
    request = connector.consent_request()
    return [] if request is None else [request]


def listener(observer: RunObserver, end: AskedRole = AskedRole.source) -> Hear:
    """Returns a function that shows a connector's events by their level. These verbs do not keep a
    configuration that the connector changed: one event reports that, without the values."""
    changed = False

    def hear(event: Event, /) -> None:
        nonlocal changed
        match event:
            case Control():
                if not changed:
                    observer.log("WARN", end.value, _NOT_KEPT)
                changed = True
            case LogEvent():
                observer.log(event.level, end.value, event.message)
            case Error():
                observer.log("ERROR", end.value, event.message)
            case SkippedItems():
                observer.log("DEBUG", end.value, f"{event.what}: {event.count}")
            case _:
                pass

    return hear
