"""Keeps in memory what a form that is not saved yet needs: the secrets that were typed into it,
which no page shows again, and the text of the file that it was made of.

A page that comes back from the server has empty fields for secrets; the next one sent is filled
with what was typed before. All of it ends with the server. Not here: reading a form
(``forms.posted``).
"""

import threading
from collections import OrderedDict
from collections.abc import Container, Mapping
from secrets import token_hex

import msgspec

_FORMS = 50
_TEXTS = 20
_LARGEST = 1 << 20  # characters of a text that is kept


class HeldForm(msgspec.Struct):
    """The typed secrets of a form: ``inputs`` by the names of their inputs, those that came back
    empty; ``variables`` by the names that they get in the file of secrets."""

    inputs: dict[str, str] = {}
    variables: dict[str, str] = {}


class HeldForms:
    """The forms of one server, by the ids in their pages; the newest are kept."""

    def __init__(self) -> None:
        self._forms: OrderedDict[str, HeldForm] = OrderedDict()
        self._texts: OrderedDict[str, str] = OrderedDict()
        self._lock = threading.Lock()

    @staticmethod
    def new_id() -> str:
        return token_hex(8)

    def of(self, id_: str) -> HeldForm:
        """Returns what is held of a form."""
        return self._forms.get(id_) or HeldForm()

    def filled(self, id_: str, form: Mapping[str, list[str]]) -> Mapping[str, list[str]]:
        """Returns what was sent, with what was typed before into fields that came back empty."""
        more = {
            name: [text]
            for name, text in self.of(id_).inputs.items()
            if form.get(name) == [""] and f"{name}#drop" not in form
        }
        return {**form, **more}

    def hold(
        self, id_: str, inputs: Mapping[str, str], variables: Mapping[str, str], within: str,
        sent: Container[str],
    ) -> None:  # fmt: skip
        """Replaces what is held of the fields that come back empty: those whose names begin with
        ``within``. ``inputs``, ``variables``: all that is typed now; ``sent``: the names of the
        fields that were sent. Others (of a form that is not chosen now) stay."""
        held = self.of(id_).inputs
        kept = {n: t for n, t in held.items() if n not in sent or not n.startswith(within)}
        typed = {n: t for n, t in inputs.items() if n.startswith(within)}
        with self._lock:
            self._forms[id_] = HeldForm(kept | typed, dict(variables))
            self._forms.move_to_end(id_)
            while len(self._forms) > _FORMS:
                self._forms.popitem(last=False)

    def drop(self, id_: str) -> None:
        """Forgets a form, which is saved."""
        with self._lock:
            self._forms.pop(id_, None)

    def keep_text(self, mark: str, text: str) -> None:
        """Keeps the text of a file that a form is made of."""
        if len(text) > _LARGEST:
            return
        with self._lock:
            self._texts[mark] = text
            self._texts.move_to_end(mark)
            while len(self._texts) > _TEXTS:
                self._texts.popitem(last=False)

    def text(self, mark: str) -> str | None:
        """Returns the text with a mark; None: it is not kept."""
        return self._texts.get(mark)
