"""Asks a connector that is named without a pipeline: resolves it, builds its environment where it
is not there, checks it.

No record moves to a destination and no JVM starts. Not here: printing (``cli``). Neighbours:
``roles`` says which end a connector is; ``connectors`` runs it.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

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
    "the connector changed its configuration, and this verb has no pipeline to keep it under: what "
    "it was given may not work again; name a pipeline, which keeps such changes"
)
Hear = Callable[[Event], None]
Settle = Callable[["list[ConsentRequest]"], None]
"""Has the user agree to permissions. Raises ``ConfigError`` where the user does not."""
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
            hint="name a source; of a destination there is `spec` and `check`",
        )
    return ref


def asked(
    kind: "type[C]", ref: "ConnectorRef", home: Home, observer: RunObserver, install: Install
) -> tuple[C, Hear]:
    """Returns a connector to ask, whose environment is built first if it is not there, and the
    function that its events go to."""
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
    """What a connector says of itself. ``use``: its reference, a package with the version that was
    asked; ``secret_word``: as of a protocol package."""

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
    """Asks a connector for its specification. Raises ``ConfigError``, the role's error."""
    connector, _ = asked(class_of(end), ref, home, observer, install)
    settle(wanted_of(connector))
    spec = connector.spec()
    version = connector.describe()["version"]
    pinned = ref.name is not None and ref.version is None and ref.url is None and version
    use = f"{ref.text}@{version}" if pinned else ref.text
    return AskedSpec(use, spec, connector.protocol.secret_word)


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
    """Lists what the connector asks for and the user has not agreed to."""
    request = connector.consent_request()
    return [] if request is None else [request]


def listener(observer: RunObserver, end: AskedRole = AskedRole.source) -> Hear:
    """Returns a function that shows a connector's events beside its answers, by their level. A
    configuration that it changed is not kept by these verbs: that is said once, without its
    values."""
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
