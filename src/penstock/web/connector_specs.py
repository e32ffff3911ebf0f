"""Asks connectors for their specifications, and keeps the answers while the server runs.

Not here: the asking itself (``api.asking``), forms.
"""

import threading
from pathlib import PurePath
from typing import Any, NamedTuple, cast

from penstock.api.asking import AskedSpec, asked_spec, reference
from penstock.api.property_facts import PUBLIC, properties_of
from penstock.api.roles import AskedRole
from penstock.config.home import Home
from penstock.config.pipeline import ConnectorSection
from penstock.config.secret_texts import MARKS_ONLY
from penstock.connectors.catalog.settings import listed_schema
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


def form_schema(schema: dict[str, Any]) -> dict[str, Any]:
    """Returns a connector's schema with what Penstock marks as secret by names alone narrowed to
    what a form hides: an address or the word for a kind of login can be read."""
    marks = schema.get(MARKS_ONLY)
    if not isinstance(marks, dict):
        return schema
    given = cast(dict[str, Any], marks)
    patterns = cast(dict[str, Any], given.get("patternProperties") or {})
    narrow = {f"^(?!.*{PUBLIC.pattern}).*(?:{p})": node for p, node in patterns.items()}
    return {**schema, MARKS_ONLY: {**given, "patternProperties": narrow}}


class FormSchema(NamedTuple):
    """The schema of a connector's form, and the word that marks its secrets. ``listed``: it is of
    the index, as the connector does not describe itself."""

    schema: dict[str, Any]
    word: str | None
    listed: bool = False


def schema_of_form(use: str, asked: AskedSpec) -> FormSchema:
    """Returns what a form is made of: the connector's own schema, else the settings that the index
    lists."""
    own = asked.spec.config_schema
    if not properties_of(own, own):
        ref = reference(use)
        name = ref.name or (PurePath(ref.command[0]).name if ref.command else "")
        if (found := listed_schema(ref.protocol, name)) is not None:
            return FormSchema(found, "secret", listed=True)
    return FormSchema(form_schema(own), asked.secret_word)


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
