"""Requests connectors' specifications, and keeps them while the server runs.

Not here: the request itself (``api.asking``), forms.
"""

import threading
from typing import Any, NamedTuple, cast

from penstock.api.asking import AskedSpec, asked_spec, listed_settings, reference
from penstock.api.property_facts import PUBLIC
from penstock.api.roles import AskedRole
from penstock.config.home import Home
from penstock.config.pipeline import ConnectorSection
from penstock.config.secret_texts import MARKS_ONLY
from penstock.connectors.catalog.settings import LISTED_SECRET
from penstock.connectors.consent import ConsentRequest
from penstock.engine.specs.observer import RunObserver


class SpecName(NamedTuple):
    """A connector as a pipeline file names it."""

    use: str
    role: AskedRole


class ConnectorSpecs:
    """The specifications that connectors returned."""

    def __init__(self, home: Home) -> None:
        self._home = home
        self._known: dict[SpecName, AskedSpec] = {}
        self._lock = threading.Lock()

    def known(self, use: str, role: AskedRole) -> AskedSpec | None:
        """Returns a known specification; None: call :meth:`ask`."""
        with self._lock:
            return self._known.get(SpecName(use, role))

    def forget(self, use: str) -> None:
        """Makes the next call request the specification again."""
        with self._lock:
            for name in [name for name in self._known if name.use == use]:
                del self._known[name]

    def ask(
        self, section: ConnectorSection, role: AskedRole, observer: RunObserver, *, yes: bool
    ) -> AskedSpec:
        """Requests the specification of a section's connector, which is installed first if it is
        missing. Raises ``PenstockError``."""
        found = asked_spec(
            reference(section.use), role, self._home, observer, section.install,
            lambda wanted: settle(wanted, yes=yes),
        )  # fmt: skip
        with self._lock:
            self._known[SpecName(section.use, role)] = found
            self._known[SpecName(found.use, role)] = found
        return found


def form_schema(schema: dict[str, Any]) -> dict[str, Any]:
    """Returns a connector's schema for a form. What Penstock marks as secret by names alone is
    narrowed: an address or the name of a login method can be shown."""
    marks = schema.get(MARKS_ONLY)
    if not isinstance(marks, dict):
        return schema
    given = cast(dict[str, Any], marks)
    patterns = cast(dict[str, Any], given.get("patternProperties") or {})
    narrow = {f"^(?!.*{PUBLIC.pattern}).*(?:{p})": node for p, node in patterns.items()}
    return {**schema, MARKS_ONLY: {**given, "patternProperties": narrow}}


class FormSchema(NamedTuple):
    """The schema of a connector's form, and the word that marks its secrets. ``listed``: it comes
    from the index, as the connector does not describe itself."""

    schema: dict[str, Any]
    word: str | None
    listed: bool = False


def schema_of_form(asked: AskedSpec) -> FormSchema:
    """Returns the schema of a form: the connector's own, else one of the settings that the index
    lists."""
    if (found := listed_settings(asked)) is not None:
        return FormSchema(found, LISTED_SECRET, listed=True)
    return FormSchema(form_schema(asked.spec.config_schema), asked.secret_word)


def is_table(use: str) -> bool:
    """Returns whether a reference is a table, which has no specification. Raises
    ``ConfigError``."""
    return reference(use).format is not None


def settle(wanted: "list[ConsentRequest]", *, yes: bool) -> None:
    """Records the user's consent to the permissions that components request. Raises ``ConfigError``
    (``connector.consent``) without consent."""
    for want in wanted:
        if not yes:
            raise want.refusal()
        want.agree()
