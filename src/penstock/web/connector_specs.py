"""Asks connectors for their specifications, and keeps the answers while the server runs.

Not here: the asking itself (``api.asking``), forms.
"""

import threading
from typing import NamedTuple

from penstock.api.asking import AskedSpec, asked_spec, reference
from penstock.api.roles import AskedRole
from penstock.config.home import Home
from penstock.config.pipeline import ConnectorSection
from penstock.connectors.consent import ConsentRequest
from penstock.engine.specs.observer import RunObserver


class SpecName(NamedTuple):
    """A connector as a pipeline file names it."""

    use: str
    role: AskedRole


class ConnectorSpecs:
    """The specifications that were asked for."""

    def __init__(self, home: Home) -> None:
        self._home = home
        self._known: dict[SpecName, AskedSpec] = {}
        self._lock = threading.Lock()

    def known(self, use: str, role: AskedRole) -> AskedSpec | None:
        """Returns a specification that is known; None: ask for it."""
        with self._lock:
            return self._known.get(SpecName(use, role))

    def forget(self, use: str) -> None:
        """Asks the connector again the next time."""
        with self._lock:
            for name in [name for name in self._known if name.use == use]:
                del self._known[name]

    def ask(
        self, section: ConnectorSection, role: AskedRole, observer: RunObserver, *, yes: bool
    ) -> AskedSpec:
        """Asks the connector of a section, which is installed first if it is not here. Raises
        ``PenstockError``."""
        found = asked_spec(
            reference(section.use), role, self._home, observer, section.install,
            lambda wanted: settle(wanted, yes=yes),
        )  # fmt: skip
        with self._lock:
            self._known[SpecName(section.use, role)] = found
            self._known[SpecName(found.use, role)] = found
        return found


def is_table(use: str) -> bool:
    """Whether a reference is a table, which has no specification. Raises ``ConfigError``."""
    return reference(use).format is not None


def settle(wanted: "list[ConsentRequest]", *, yes: bool) -> None:
    """Keeps the user's yes to what components ask for. Raises ``ConfigError``
    (``connector.consent``) without one."""
    for want in wanted:
        if not yes:
            raise want.refusal()
        want.agree()
