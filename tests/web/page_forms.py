"""Reads the forms of a page as a browser does, by the rules of HTML, and what it would send."""

from html.parser import HTMLParser

from penstock.web.forms.fields import FormField


class PageForms(HTMLParser):
    """``forms``: of each form its address and its inputs, in order, as (name, value)."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.forms: list[tuple[str, list[tuple[str, str]]]] = []
        self._select: tuple[str, list[tuple[str, bool]]] | None = None
        self._area: tuple[str, list[str]] | None = None
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        name, kind = given.get("name"), given.get("type") or "text"
        if tag == "form":
            self.forms.append((given.get("action") or "", []))
        elif tag == "input" and name:
            on = "checked" in given or kind not in ("checkbox", "radio")
            if on and kind != "submit":
                value = given.get("value") or ""
                self._add(name, value if kind == "hidden" else value.replace("\n", ""))
        elif tag == "select":
            self._select = (name or "", [])
        elif tag == "option" and self._select is not None:
            self._select[1].append((given.get("value") or "", "selected" in given))
        elif tag == "textarea":
            self._area = (name or "", [])

    def handle_endtag(self, tag: str) -> None:
        if tag == "select" and self._select is not None:
            name, options = self._select
            chosen = [v for v, on in options if on] or [v for v, _ in options[:1]]
            for value in chosen[-1:]:
                self._add(name, value)
            self._select = None
        elif tag == "textarea" and self._area is not None:
            text = "".join(self._area[1]).replace("\r\n", "\n").replace("\r", "\n")
            self._add(self._area[0], text.removeprefix("\n").replace("\n", "\r\n"))
            self._area = None

    def handle_data(self, data: str) -> None:
        if self._area is not None:
            self._area[1].append(data)

    def _add(self, name: str, value: str) -> None:
        self.forms[-1][1].append((name, value))

    def sent(self, address: str) -> dict[str, list[str]]:
        """What the form of an address sends as it is."""
        made: dict[str, list[str]] = {}
        for name, value in next(inputs for action, inputs in self.forms if action == address):
            made.setdefault(name, []).append(value)
        return made


def sent(fields: list[FormField]) -> dict[str, list[str]]:
    """What a browser sends of a form as it is: by the rules of HTML forms, not by ours."""
    made: dict[str, list[str]] = {}
    for f in fields:
        match f.kind:
            case "boolean":
                made[f"{f.name}#here"] = ["1"]
                made |= {f.name: ["1"]} if f.checked else {}
            case "choices":
                made[f"{f.name}#here"] = ["1"]
                chosen = [o.value for o in f.options if o.chosen]
                made |= {f.name: chosen} if chosen else {}
            case "choice":
                made[f.name] = [next((o.value for o in f.options if o.chosen), "")]
            case "lines":
                made[f"{f.name}#here"] = ["1"]
                made[f.name] = [f.value.replace("\r\n", "\n").replace("\n", "\r\n")]
            case "variant":
                made[f"{f.name}#form"] = [next((o.value for o in f.options if o.chosen), "")]
            case "items":
                made[f"{f.name}#count"] = [str(len(f.children))]
                made[f"{f.name}#turn"] = [f.lists_turn]
            case "named":
                made[f"{f.name}#here"] = ["1"]
                made[f"{f.name}#keys"] = [c.key for c in f.children]
                made[f"{f.name}#new"] = [""]
            case "secret":
                made[f.name] = [""]
            case "object" | "fixed" | "elsewhere" | "hidden":
                pass
            case _:
                made[f.name] = [f.value.replace("\r\n", "\n").replace("\n", "\r\n")]
        made |= sent(f.children)
    return made
